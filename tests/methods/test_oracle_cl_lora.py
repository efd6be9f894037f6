"""CL-LoRA has the public code's numbers in a loop of three tasks, in two steps and in stale ones."""

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.cl_lora import METHOD
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.dual_lora import likeness

pytestmark = oracle.HERE
TASKS, CLASSES, IMAGES, HALF = 3, 4, 24, 2
CLOSE, MOVED, TINY = 1e-5, 1e-4, 2e-2  # the page's tolerances; of gradients and steps, of tiny gradients
SETTINGS = {
    "rank": 4, "general": HALF, "learning_rate": 0.03, "weight_decay": 0.01, "batch": 10, "passes": 3,
}  # fmt: skip
PUBLISHED = {key: value for key, value in METHOD.AS_PUBLISHED.items() if key in METHOD.Config.model_fields}
RUNS = {"R": "two_asis", "S": "stale_asis"}
TRAINED = 15  # tensors, under the page's names


def numbers() -> dict:
    return oracle.numbers("methods/cl_lora.npz")


def images_of(task: TaskInfo) -> Batch:
    labels = torch.arange(IMAGES) % CLASSES + task.first_label
    return Batch(oracle.images(task.index, IMAGES), labels)


def seeded(name: str) -> np.random.Generator:
    return np.random.default_rng([7, sum(name.encode()) * 131 + len(name)])


def orthonormal(name: str) -> Tensor:
    Q, R = np.linalg.qr(seeded(name).random((48, 4)))
    return torch.tensor((Q * np.sign(np.diag(R))).T, dtype=torch.float32)


@torch.no_grad()
def begun(method: METHOD, index: int) -> TaskInfo:
    """Announce a task, with the page's matrices, block weights and head."""
    task = TaskInfo(index, tuple(range(CLASSES * index, CLASSES * (index + 1))), CLASSES * index)
    method.grow(task)
    own = method.specific[-1]
    for l in range(4):
        for place, target in enumerate("qv"):
            if l < HALF:
                method.shared.A[l, place] = orthonormal(f"lora.blocks.{l}.{target}.D")
            else:
                own.A[l - HALF, place] = orthonormal(f"lora.{index}.blocks.{l}.{target}.D")
    own.weights.copy_(torch.tensor(0.5 + seeded(f"lora.{index}.block_weight").random((3, 2))))
    method.head.weight.copy_(oracle.filled(f"proxy.{index}.weight", (CLASSES, 48)))
    return task


def built(**changes) -> METHOD:
    config = METHOD.Config(**{**PUBLISHED, **SETTINGS, **changes})
    return METHOD(config, oracle.backbone(), StreamInfo(0, TASKS))


def parameters(method: METHOD) -> dict[str, tuple[torch.nn.Parameter, tuple]]:
    """What learns, under the page's names, each with its place in its parameter."""
    own, head = method.specific[-1], method.head
    found = {"block_weight": (own.weights, ()), "proxy_weight": (head.weight, ())}
    found["proxy_sigma"] = (head.sigma, (None,))
    for l in range(4):
        for place, target in enumerate("qv"):
            at, lora = (l % HALF, place), method.shared if l < HALF else own
            found[f"U_b{l}{target}"] = (lora.B, at)
            if l >= HALF:
                found[f"D_b{l}{target}"] = (lora.A, at)
    assert len(found) == TRAINED
    return found


def compare(method: METHOD, page: dict, prefix: str, tolerance: float, gradients: bool = False) -> None:
    """All that the page has of one moment."""
    written = [key for key in page if key.startswith(f"{prefix}_")]
    assert len(written) >= 2
    names = parameters(method)
    for key in written:
        parameter, at = names[key.removeprefix(f"{prefix}_")]
        value = parameter.grad if gradients else parameter
        found = value.detach()[at] if at else value
        allowed = TINY if "kd1_grad_U" in key else tolerance
        assert oracle.close(found, page[key], allowed), key


def watch(method: METHOD, page: dict, t: str, seen: dict) -> None:
    """Have all steps but those behind a loss compared with the page, and losses of distillation kept."""
    sgd, distillation = method.sgd, method.distillation
    step = sgd.step

    def stepped() -> None:
        batch = len(seen["kd"]) - 1
        if seen["within"] and batch < 2 and f"{t}_kd{batch}_grad_proxy_weight" in page:
            compare(method, page, f"{t}_kd{batch}_grad", MOVED, gradients=True)
        step()
        if seen["within"] and batch == 0 and f"{t}_kd0_step_proxy_weight" in page:
            compare(method, page, f"{t}_kd0_step", MOVED)

    def kept(*tokens):
        value, gradients = distillation(*tokens)
        seen["kd"].append(value.item())
        return value, gradients

    sgd.step, method.distillation = stepped, kept


def learn(method: METHOD, task: TaskInfo, page: dict, t: str) -> None:
    """Nine batches of a task, the first two in detail."""
    [phase], seen, entropies = method.phases(task), {"kd": [], "within": False}, []
    optimizer, batches = phase.optimizer(), images_of(task).split(10)
    plain_step, distillation = optimizer.step, method.distillation
    watch(method, page, t, seen)
    for turn in range(phase.passes * len(batches)):
        factor = phase.rate(turn // len(batches), {})
        if f"{t}_lr_factor" in page:
            assert factor == pytest.approx(float(page[f"{t}_lr_factor"][turn // len(batches)]))
        optimizer.param_groups[0]["lr"] = 0.03 * factor
        optimizer.zero_grad()
        seen["within"] = True
        loss = phase.loss(batches[turn % len(batches)])
        seen["within"] = False
        loss.backward()
        *old, own = (updates.weights for updates in method.specific)
        entropies.append(loss.item() - (1e-4 * likeness(own, old).item() if old else 0.0))
        if turn < 2 and f"{t}_ce{turn}_grad_proxy_weight" in page:
            compare(method, page, f"{t}_ce{turn}_grad", MOVED, gradients=True)
        plain_step()
        if turn == 0:
            compare(method, page, f"{t}_ce0_step", MOVED)
    compare(method, page, f"{t}_end", MOVED)
    assert entropies == pytest.approx(page[f"{t}_ce_losses"].tolist(), rel=CLOSE)
    if task.index:
        assert seen["kd"] == pytest.approx(page[f"{t}_kd_losses"].tolist(), rel=CLOSE)
    method.distillation = distillation


@torch.no_grad()
def compare_task(method: METHOD, page: dict, t: str, index: int) -> None:
    """Class means under the task's own updates, features under all, and scores of test images."""
    test, own = Batch(oracle.images(9)), method.classes[index]
    segment = slice(48 * index, 48 * (index + 1))
    assert oracle.close(method.prototypes.means[own], page[f"{t}_proto"][own, segment], CLOSE)
    if f"{t}_test_features" in page:
        features = torch.cat([method.features(test, i) for i in range(index + 1)], dim=1)
        assert oracle.close(features, page[f"{t}_test_features"], CLOSE)
    assert float(page[f"{t}_fc_sigma"][0]) == 1.0
    scores = method.predict(test)
    assert oracle.close(scores, page[f"{t}_test_logits"], CLOSE)
    assert scores.argmax(1).tolist() == page[f"{t}_test_logits"].argmax(1).tolist()


@pytest.mark.parametrize("run", RUNS)
def test_three_tasks_are_learned_as_the_public_code_learns_them(run):
    """R computes the loss of the second step after the first, S, as the code does, before it."""
    page, method = numbers(), built(steps=RUNS[run])
    for index in range(TASKS):
        t, task = f"{run}_t{index}" if index else "t0", begun(method, index)
        if index and run == "R":
            for l in range(HALF):
                for place, target in enumerate("qv"):
                    share = method.shared.row_weights()[l, place]
                    assert oracle.close(share, page[f"{t}_rowweight_b{l}{target}"], MOVED)
        learn(method, task, page, t)
        method.end_task(task, oracle.Plain(images_of))
        compare_task(method, page, t, index)
    for l in range(HALF):
        for place, target in enumerate("qv"):
            assert oracle.close(method.shared.A[l, place], page[f"D_b{l}{target}"], CLOSE)


def test_what_is_trained_is_what_the_public_code_trains():
    method, unused = built(), {"init_proto_sigma", "init_proto_weight"}
    begun(method, 0)
    assert {*parameters(method)} == {*numbers()["t0_trained"].tolist()} - unused
    assert len(method.trained()) == 6 and not method.shared.A.requires_grad


def test_as_meant_the_first_task_is_the_same_and_later_ones_have_both_gradients_in_one_step():
    """At the start of the second task: the page's of distillation, and those of a plain loss."""
    page, method = numbers(), built(steps="one")
    task = begun(method, 0)
    method.make_optimizer()
    learn(method, task, page, "t0")
    method.end_task(task, oracle.Plain(images_of))
    task = begun(method, 1)
    [batch, *_] = images_of(task).split(10)
    x = method.lower(method.backbone.hidden(batch.images, 0))
    method.zero_grad()
    method.own_loss(x, batch, task).backward()
    own = {key: parameter.grad.clone() for key, parameter in method.trained().items()}
    method.zero_grad()
    loss = method.loss(batch, task)
    loss.backward()
    for kind in ("weight", "sigma"):
        more = method.get_parameter(f"head.{kind}").grad - own[f"head.{kind}"]
        expected = page[f"R_t1_kd0_grad_proxy_{kind}"]
        assert oracle.close(more.reshape(expected.shape), expected, MOVED)
    assert torch.allclose(method.shared.B.grad, own["shared.B"], atol=1e-8)  # student and teacher are one
    assert loss.item() == pytest.approx(page["R_t1_kd_losses"][0] + 1.3866, abs=2e-2)
