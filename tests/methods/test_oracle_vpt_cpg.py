"""VPT-CPG as published has the public code's numbers in three tasks (folder `shared/oracle`)."""

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.vpt_cpg import METHOD as CPG

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.projection import fused_projection
from cl_bench.nn.prompt_experts import PromptExperts, squared_variation

pytestmark = oracle.HERE
NUMBERS = oracle.numbers("methods/vpt_cpg.npz") if oracle.FOLDER.is_dir() else {}
TOLERANCE = 1e-4  # of the page, for fp32
CLASSES, IMAGES, BATCH, PASSES, TASKS, BLOCKS = 4, 24, 10, 4, 3, 4


def info(index: int) -> TaskInfo:
    return TaskInfo(index, tuple(range(CLASSES * index, CLASSES * (index + 1))), CLASSES * index)


class OfTask(TaskInfo):
    """A task that knows how many images it has."""

    def __len__(self) -> int:
        return IMAGES


def task(index: int) -> OfTask:
    return OfTask(**vars(info(index)))


def images_of(given: TaskInfo) -> Batch:
    labels = torch.arange(IMAGES) % CLASSES + given.first_label
    return Batch(oracle.images(given.index, IMAGES), labels)


def built(**options) -> CPG:
    sizes = {"experts": 8, "top_k": 3, "prompts": 2, "temperature": 5.0, "weight_decay": 5e-3}
    method = CPG(
        CPG.Config(**{**CPG.AS_PUBLISHED, **sizes, **options}),
        oracle.backbone(),
        StreamInfo(init_seed=0, num_tasks=TASKS + 1),
    )
    method.statistics_batch = BATCH
    with torch.no_grad():
        for i in range(BLOCKS):
            for name, own in (
                ("gate", method.prompts.W_g),
                ("noise", method.prompts.W_n),
                ("experts", method.P),
            ):
                own[i] = oracle.drawn(f"{name}.blocks.{i}", tuple(own[i].shape), 0.4)
    return method


def grow(method: CPG, index: int) -> None:
    """Announce a task, with the page's head where the public code draws one."""
    method.grow(info(index))
    head = method.head.heads[-1]
    if index == 1:
        assert oracle.close(head.weight, NUMBERS["t1_head_start"], TOLERANCE)
        return
    with torch.no_grad():
        head.weight.copy_(oracle.drawn(f"head.{index}.weight", (CLASSES, 48), 0.04))
        head.bias.copy_(oracle.drawn(f"head.{index}.bias", (CLASSES,), 0.02))


def values(method: CPG, prefix: str, gate: str, grad: bool = False) -> dict[str, torch.Tensor]:
    """What is trained, or its gradients, by the page's names."""
    head = method.head.heads[-1]
    found = {f"{prefix}_head_weight": head.weight, f"{prefix}_head_bias": head.bias}
    own = {gate: method.prompts.W_g, "experts": method.P}
    found = {key: (value.grad if grad else value).detach() for key, value in found.items()}
    for name, value in own.items():
        for i in range(BLOCKS):
            found[f"{prefix}_{name}_b{i}"] = (value.grad if grad else value).detach()[i].clone()
    return found


def compare(found: dict[str, torch.Tensor]) -> None:
    assert found
    for key, value in found.items():
        assert oracle.close(value, NUMBERS[key], TOLERANCE), key


def uneven(method: CPG, batch: Batch) -> list[float]:
    """CV2 of importance and load, block by block."""
    found = []

    def see(l, q, g, load):
        found.append(float(squared_variation(g.sum(0)) + squared_variation(load)))

    with torch.no_grad():
        method.backbone.features(batch.images, method.prompts.watched(see, noise=method.noise))
    return found


def learn(method: CPG, index: int) -> None:
    """The steps of a task, the first in detail."""
    given, t = task(index), f"t{index}"
    optimizer = method.make_optimizer(given)
    [group] = optimizer.param_groups
    batches = images_of(given).split(BATCH)
    assert len(group["params"]) == 4 and all(one is not method.prompts.W_n for one in group["params"])
    for number in range(PASSES * len(batches)):
        batch = batches[number % len(batches)]
        group["lr"] = 0.01 * float(NUMBERS[f"{t}_lr_factor"][number // len(batches)])
        optimizer.zero_grad()
        balance = uneven(method, batch)
        assert balance == pytest.approx(NUMBERS[f"{t}_moe_losses"][number].tolist(), rel=TOLERANCE, abs=1e-6)
        loss = method.loss(batch, given)
        ce = float(NUMBERS[f"{t}_ce_losses"][number])
        assert loss.item() == pytest.approx(ce + 0.05 * np.mean(balance), rel=1e-5)
        loss.backward()
        if number == 0:
            compare(values(method, f"{t}_grad", "w_gate", grad=True))
        optimizer.step()
        if number == 0:
            compare(values(method, f"{t}_step1", "w_gate"))
    compare(values(method, f"{t}_end", "gate"))


def check_projectors(method: CPG, index: int) -> None:
    """Second moments after a task, and what later updates are multiplied by."""
    for i in range(BLOCKS):
        C1, C2 = method.C1[i], method.C2[i]
        assert oracle.close(C1 @ oracle.probe(1), NUMBERS[f"t{index}_C1_probe_b{i}"], TOLERANCE)
        assert oracle.close(C2, NUMBERS[f"t{index}_C2_b{i}"], TOLERANCE)
    for number, C in ((1, method.C1[0]), (2, method.C2[0])):
        spectrum = torch.linalg.eigvalsh(C).flip(0)
        assert oracle.close(spectrum, NUMBERS[f"t{index}_svals{number}_b0"], TOLERANCE)
    method.begin_task(task(index + 1), None)
    for i in range(BLOCKS):
        B1, B2 = (B[i] for B in method.B)
        assert oracle.close(B1.double() @ oracle.probe(2), NUMBERS[f"t{index}_P1_probe_b{i}"], TOLERANCE)
        assert oracle.close(B2, NUMBERS[f"t{index}_P2_b{i}"], TOLERANCE)
        assert [R[i] for R in method.nullities] == NUMBERS[f"t{index}_null_b{i}"].tolist()


def check_predictions(method: CPG, index: int) -> None:
    test, gates = Batch(oracle.images(9)), []
    with torch.no_grad():
        assert oracle.close(method.predict(test), NUMBERS[f"t{index}_test_logits"], TOLERANCE)
        watched = method.prompts.watched(lambda l, q, g, load: gates.append(g), noise=False)
        method.backbone.features(test.images, watched)
    for i, g in enumerate(gates):
        expected = NUMBERS[f"t{index}_test_gates_b{i}"]
        assert oracle.close(g, expected, TOLERANCE) and np.array_equal(g.numpy() > 0, expected > 0)
    assert len(gates) == BLOCKS


def test_three_tasks_are_learned_and_remembered_as_by_the_public_code():
    method, trainer = built(), oracle.Plain(images_of)
    method.begin_task(task(0), trainer)
    for index in range(TASKS):
        assert not NUMBERS[f"t{index}_moe_training_flag"].any()
        grow(method, index)
        learn(method, index)
        method.end_task(task(index), trainer)
        check_predictions(method, index)
        if index + 1 < TASKS:
            check_projectors(method, index)


@pytest.mark.parametrize(("case", "k"), [(0, 3), (1, 4), (2, 4)])
@pytest.mark.parametrize("noise", [True, False])
def test_a_router_alone_has_the_public_codes_gates_load_and_gradients(monkeypatch, case, k, noise):
    given = {
        name: torch.tensor(NUMBERS[f"moe{case}_{name}"]).double()
        for name in ("gate", "noise", "x", "eps", "R")
    }
    D, E = given["gate"].shape
    experts = PromptExperts((1, E, 1, D), k, True, True, torch.Generator()).double()
    with torch.no_grad():
        experts.W_g[0], experts.W_n[0] = given["gate"], given["noise"]
    monkeypatch.setattr(torch, "randn_like", lambda a: given["eps"])
    x = given["x"].requires_grad_(True)
    gates, load = experts.route(0, x, noise)
    cv = squared_variation(gates.float().sum(0)) + squared_variation(load.float())
    prefix = f"moe{case}" if noise else f"moe{case}_eval"
    for name, found in (("gates", gates), ("load", load), ("cv", cv)):
        assert oracle.close(found, NUMBERS[f"{prefix}_{name}"], 2e-6), name
    if noise:
        (squared_variation(gates.sum(0)) + squared_variation(load) + (gates * given["R"]).sum()).backward()
        noisy = torch.zeros_like(given["noise"]) if experts.W_n.grad is None else experts.W_n.grad[0]
        for name, found in (("gate", experts.W_g.grad[0]), ("noise", noisy), ("x", x.grad)):
            assert oracle.close(found, NUMBERS[f"moe{case}_grad_{name}"], 1e-5), name


@pytest.mark.parametrize("case", range(5))
def test_a_projector_alone_is_the_public_codes(case):
    n, N, d = NUMBERS[f"proj{case}_cfg"]
    n, N = int(n), int(N)
    X = np.random.default_rng([5, 7, 20 + case]).standard_normal((N, n)) * d ** np.arange(n)
    if case == 2:
        X[:, 150:] *= 1e-2
    C = torch.tensor(X.T @ X / N)
    for name, eta in (("P1", 1.0), ("P2", 0.99)):
        found, R = fused_projection(C, eta, "official", "fro")
        assert int(NUMBERS[f"proj{case}_nullity"]) == R
        assert oracle.close(found @ oracle.probe(5, n), NUMBERS[f"proj{case}_{name}_probe"], 1e-5)


def test_rates_fall_when_the_public_codes_do():
    method = CPG(CPG.Config(**CPG.AS_PUBLISHED), oracle.backbone(), oracle.stream(1, 1))
    found = [method.rate(10 * epoch) for epoch in range(10)]
    assert found == pytest.approx([1.0] * 4 + [0.1] * 3 + [0.01] * 3)
    meant = CPG(CPG.Config(), oracle.backbone(), oracle.stream(1, 1))
    assert [meant.rate(10 * e) for e in range(10)] == pytest.approx([1.0] * 5 + [0.1] * 3 + [0.01] * 2)
