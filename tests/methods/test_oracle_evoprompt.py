"""EvoPrompt has the public code's numbers in three tasks (folder `shared/oracle`)."""

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.evoprompt import EvoPrompt
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.prompt_memory import stretched

pytestmark = oracle.HERE
TASKS, IMAGES, TEST, BATCH = 3, 18, 9, 6
L, D, LENGTH, HIDDEN = 4, 48, 3, 8
SIZES = {"prompt_length": LENGTH, "hidden": HIDDEN, "learning_rate": 0.006, "batch": BATCH, "passes": 3}
OPTIONS = EvoPrompt.Config.model_fields
PUBLISHED = {key: value for key, value in EvoPrompt.AS_PUBLISHED.items() if key in OPTIONS}
TRAINED = 5e-4  # Adam divides by gradients near 0: rounding moves a few weights (in double: by 1.2e-4)


def images_of(task: TaskInfo) -> Batch:
    return Batch(oracle.images(task.index, IMAGES), oracle.labels(task.index, IMAGES))


def heads() -> list[tuple[Tensor, Tensor]]:
    weight, bias = oracle.filled("head.weight", (9, D)), oracle.filled("head.bias", (9,))
    return list(zip(weight.split(oracle.CLASSES), bias.split(oracle.CLASSES), strict=True))


def flat(parts) -> Tensor:
    """V_0, U_0, V_1, U_1, ... as the oracle lays them out."""
    V, U = parts
    return torch.cat([part.flatten() for l in range(L) for part in (V[l], U[l])])


def unflat(values: np.ndarray) -> list[Tensor]:
    blocks = torch.tensor(values).unflatten(0, (L, -1)).split([HIDDEN * D, LENGTH * D * HIDDEN], dim=1)
    return [blocks[0].unflatten(1, (HIDDEN, D)), blocks[1].unflatten(1, (LENGTH * D, HIDDEN))]


@torch.no_grad()
def load(method: EvoPrompt, values: np.ndarray) -> None:
    for part, value in zip(method.memory.parameters(), unflat(values), strict=True):
        part.copy_(value)


def built(**changes) -> EvoPrompt:
    config = EvoPrompt.Config(**{**SIZES, **PUBLISHED, **changes})
    method = EvoPrompt(config, oracle.backbone(), StreamInfo(0, TASKS, task_sizes=(3, 3, 3)))
    method.unlearned = heads()
    with torch.no_grad():
        for name, part in method.memory.named_parameters():
            for l in range(L):
                part[l] = oracle.drawn(f"memory.{l}.{name}", tuple(part[l].shape), 0.1)
    return method


def grown(method: EvoPrompt, index: int) -> TaskInfo:
    task = oracle.task(index)
    method.grow(task)
    with torch.no_grad():
        for parameter, value in zip(method.head.heads[-1].parameters(), heads()[index], strict=True):
            parameter.copy_(value)
    return task


def head_rows(method: EvoPrompt, which: int = 0) -> Tensor:
    """Weights (9, 48), or with 1 biases (9,), of classes seen and to come."""
    seen = [tuple(head.parameters())[which] for head in method.head.heads]
    return torch.cat([*seen, *(head[which] for head in method.unlearned[len(seen) :])])


@pytest.fixture(scope="module")
def numbers() -> dict:
    return oracle.numbers("methods/evoprompt.npz")


def test_queries_and_prompts_are_the_public_codes(numbers):
    method, batch = built(), Batch(oracle.images(0, IMAGES)[:BATCH])
    q = method.query(batch)
    assert oracle.close(q, numbers["query"], 2e-5)
    prompts = method.memory.units(q)[1].unflatten(2, (LENGTH, D))
    assert oracle.close(prompts, numbers["prompts"], 2e-5)


def test_three_tasks_are_learned_and_fused_as_by_the_public_code(numbers):
    method = built()
    test = Batch(torch.cat([oracle.images(10 + index, TEST) for index in range(TASKS)]))
    for index in range(TASKS):
        task, t, seen = grown(method, index), f"t{index}", oracle.CLASSES * (index + 1)
        method.begin_task(task, oracle.Plain(images_of))
        assert oracle.close(method.prototypes.means, numbers[f"{t}_prototypes"], 2e-5)
        assert oracle.close(head_rows(method), numbers[f"{t}_head_after_init"], 2e-5)
        first = images_of(task).split(BATCH)[0]
        features = method.represent(first.images, method.query(first))
        assert oracle.close(features, numbers[f"{t}_init_feat"], 2e-5)
        assert oracle.close(method.all_scores(features), numbers[f"{t}_init_logits"], 2e-5)
        train(method, task, numbers)
        assert oracle.close(flat(method.memory.parameters()), numbers[f"{t}_trained_memory"], TRAINED)
        assert oracle.close(head_rows(method), numbers[f"{t}_trained_head"], 2e-4)
        assert oracle.close(head_rows(method, 1), numbers[f"{t}_trained_head_bias"], 2e-4)
        o = method.attribution(task, oracle.Plain(images_of)).split(method.sizes, dim=1)
        for part, name in zip(o, ("V", "U"), strict=True):
            assert oracle.close(part, numbers[f"{t}_attr_{name}"], 2e-4), name
        method.end_task(task, oracle.Plain(images_of))
        memory = numbers[f"{t}_memory" if index else f"{t}_trained_memory"]
        assert oracle.close(flat(method.memory.parameters()), memory, TRAINED)
        for part, name in zip(method.Omega.split(method.sizes, dim=1), ("V", "U"), strict=True):
            assert oracle.close(part, numbers[f"{t}_omega_{name}"], 2e-4), name
        scores = method.all_scores(method.represent(test.images, method.query(test)))
        assert oracle.close(scores, numbers[f"{t}_test_logits"], 1e-4)
        probabilities = torch.softmax(method.predict(test), dim=1)
        assert oracle.close(probabilities, numbers[f"{t}_test_probs"][:, :seen], 1e-4)


def train(method: EvoPrompt, task: TaskInfo, numbers: dict) -> None:
    """Nine steps; the first one of the first two tasks in detail."""
    t, optimizer = f"t{task.index}", method.make_optimizer(task)
    for step, batch in enumerate(images_of(task).split(BATCH) * 3):
        optimizer.zero_grad()
        loss = method.loss(batch, task)
        loss.backward()
        grads = [parameter.grad for parameter in method.trained_parameters()]
        norm = torch.stack([grad.norm() for grad in grads]).norm()
        assert loss.item() == pytest.approx(numbers[f"{t}_losses"][step], rel=1e-5)
        assert norm.item() == pytest.approx(numbers[f"{t}_grad_norms"][step], rel=2e-5)
        detailed = step == 0 and task.index < 2
        if detailed:
            compare(method, numbers, f"{t}_grad", [part.grad for part in method.memory.parameters()])
            rows = slice(task.first_label, task.first_label + oracle.CLASSES)
            # together: a bias's gradient is what is left of terms as large as the weights'
            own = [numbers[f"{t}_grad_head.{name}"][rows] for name in ("weight", "bias")]
            assert oracle.close(end_to_end(grads[2:]), end_to_end(map(torch.tensor, own)).numpy(), 2e-5)
        method.after_backward(task)
        optimizer.step()
        if detailed:
            compare(method, numbers, f"{t}_step1", [*method.memory.parameters()])


def end_to_end(parts) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


def compare(method: EvoPrompt, numbers: dict, key: str, parts: list[Tensor]) -> None:
    written = [name for name in numbers if name.startswith(f"{key}_memory.")]
    assert written
    for name in written:
        l, kind = name.removeprefix(f"{key}_memory.").split(".")
        assert oracle.close(parts["VU".index(kind)][int(l)], numbers[name], 1e-5), name


@pytest.mark.parametrize("index", [1, 2])
def test_a_trained_memory_alone_is_aligned_and_fused_as_by_the_public_code(numbers, index):
    method, t, before = built(), f"t{index}", f"t{index - 1}"
    method.R = unflat(numbers[f"{before}_memory" if index > 1 else f"{before}_trained_memory"])
    load(method, numbers[f"{t}_trained_memory"])
    method.Omega.copy_(joined(numbers, f"{before}_omega"))
    aligned = [method.memory.aligned(l, method.R) for l in range(L)]
    for l, ((_, T_V), (_, T_U)) in enumerate(aligned):
        assert oracle.close(T_V, numbers[f"{t}_plan_V"][l], 1e-4)
        if l in (0, 3):
            assert oracle.close(T_U @ oracle.probe(5, LENGTH * D, 3), numbers[f"{t}_plan_U_{l}_probe"], 1e-3)
    memories = [torch.stack([block[part][0] for block in aligned]) for part in (0, 1)]
    assert oracle.close(flat(memories), numbers[f"{t}_aligned_memory"], 1e-5)
    o = method.evolve(joined(numbers, f"{t}_attr").double())
    assert oracle.close(flat(method.memory.parameters()), numbers[f"{t}_memory"], 1e-5)
    parts = zip(o.split(method.sizes, dim=1), method.Omega.split(method.sizes, dim=1), strict=True)
    for name, (own, old) in zip("VU", parts, strict=True):
        gains = [0.5 * (1 + stretched(own[l]) - stretched(old[l])) for l in range(L)]
        assert oracle.close(torch.stack(gains), numbers[f"{t}_weight_{name}"], 1e-5)


def joined(numbers: dict, key: str) -> Tensor:
    return torch.tensor(np.concatenate([numbers[f"{key}_V"], numbers[f"{key}_U"]], axis=1))


def test_an_image_counts_where_it_is_right_among_all_classes_as_published_else_among_those_seen(numbers):
    counted = {}
    for attribution in ("all", "seen"):
        method = built(attribution=attribution)
        task = grown(method, 0)
        with torch.no_grad():
            load(method, numbers["t0_trained_memory"])
            for head, name in ((0, "trained_head"), (1, "trained_head_bias")):
                trained = torch.tensor(numbers[f"t0_{name}"][: oracle.CLASSES])
                list(method.head.heads[0].parameters())[head].copy_(trained)
            batch = images_of(task)
            units = torch.cat(method.memory.units(method.query(batch)), dim=2).relu()
            scores = method.all_scores(method.represent(batch.images, method.query(batch)))
        right = scores[:, : 9 if attribution == "all" else 3].argmax(dim=1) == batch.labels
        expected = units[:, right].double().mean(dim=1)
        assert oracle.close(method.attribution(task, oracle.Plain(images_of)), expected, 1e-5)
        counted[attribution] = right
    assert counted["all"].tolist() == numbers["t0_correct"].astype(bool).tolist()
    assert int(counted["seen"].sum()) > int(counted["all"].sum())
