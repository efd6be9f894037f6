"""InfLoRA has the public code's numbers in a loop of four tasks (folder `shared/oracle`)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.inflora import METHOD, InfLoRA
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.training.distributed import ALONE, ProcessGroup

pytestmark = oracle.HERE
TASKS, CLASSES, IMAGES, PASSES = 4, 4, 24, 3
SETTINGS = {
    "rank": 5, "energy": 0.76, "last_energy": 1.0, "learning_rate": 0.01, "batch": 10, "passes": PASSES,
}  # fmt: skip


def numbers() -> dict:
    return oracle.numbers("methods/inflora.npz")


def same(found: Tensor, expected: np.ndarray, tolerance: float = 1e-4) -> bool:
    return oracle.close(found, expected, tolerance)


def task(index: int) -> TaskInfo:
    first = CLASSES * index
    return TaskInfo(index, tuple(range(first, first + CLASSES)), first)


@dataclass
class Images:
    """In the place of a trainer: a task's images, as they are."""

    group: ProcessGroup = ALONE

    def augmented(
        self, task: TaskInfo, batch: int, chosen: None, pass_index: int, shared: bool
    ) -> Iterator[Batch]:
        with torch.no_grad():
            yield from Batch(oracle.images(task.index, IMAGES)).split(batch)


def built(**changes) -> InfLoRA:
    """The method as published, before its first task."""
    published = {
        key: value for key, value in METHOD.AS_PUBLISHED.items() if key in METHOD.Config.model_fields
    }
    config = METHOD.Config(**{**published, **SETTINGS, **changes})
    return METHOD(config, oracle.backbone(), StreamInfo(init_seed=0, num_tasks=TASKS))


def begun(method: InfLoRA, index: int) -> TaskInfo:
    """Announce a task, with the page's head and its signs of the rows of A, which are arbitrary."""
    info = task(index)
    method.grow(info)
    head = method.head.heads[-1]
    with torch.no_grad():
        head.weight.copy_(oracle.drawn(f"head.{index}.weight", tuple(head.weight.shape), 0.04))
        head.bias.copy_(oracle.drawn(f"head.{index}.bias", tuple(head.bias.shape), 0.02))
    method.begin_task(info, Images())
    A = method.edits.A
    A *= A.gather(2, A.abs().argmax(dim=2, keepdim=True)).sign()
    return info


def moments(method: InfLoRA, info: TaskInfo) -> Tensor:
    """H of every block, and not its square."""
    return InfLoRA.moments(method, info, Images(), 0)


def batches(index: int) -> list[Batch]:
    """10, 10 and 4 images."""
    labels = torch.arange(IMAGES) % CLASSES + CLASSES * index
    return Batch(oracle.images(index, IMAGES), labels).split(10)


def keys_and_values(B: Tensor) -> dict[str, Tensor]:
    return {"k": B[: oracle.WIDTH], "v": B[oracle.WIDTH :]}


def compare_parameters(method: InfLoRA, expected: dict, t: str, when: str) -> None:
    """B of every block and the head after one step, noisy where a gradient is nearly zero, or at the end."""
    head = method.head.heads[-1]
    tolerance = {"step1": 1e-2, "end": 1e-3}[when]
    for part, value in (("weight", head.weight), ("bias", head.bias)):
        assert same(value, expected[f"{t}_head_{part}_{when}"], tolerance), (t, part)
    for l, (A, B) in enumerate(zip(method.edits.A, method.edits.B, strict=True)):
        for part, own in keys_and_values(B.detach()).items():
            if when == "step1":
                assert same(own, expected[f"{t}_l{l}_B{part}_step1"], tolerance), (t, l, part)
            else:
                change = (own @ A).double() @ oracle.probe(2)
                assert same(change, expected[f"{t}_l{l}_dW{part}_end"], tolerance), (t, l, part)


def compare_gradients(method: InfLoRA, expected: dict, t: str) -> None:
    for l, gradient in enumerate(method.edits.B.grad):
        for part, own in keys_and_values(gradient).items():
            assert same(own, expected[f"{t}_l{l}_grad_B{part}"]), (t, l, part)
    head = method.head.heads[-1]
    assert same(head.weight.grad, expected[f"{t}_head_weight_grad"])
    assert same(head.bias.grad, expected[f"{t}_head_bias_grad"])


def learn(method: InfLoRA, info: TaskInfo, expected: dict) -> None:
    """Nine steps, the first in detail."""
    t, [phase], losses = f"t{info.index}", method.phases(info), []
    optimizer = phase.optimizer()
    for done in range(phase.passes):
        factor = phase.rate(done, optimizer.param_groups[0])
        assert factor == pytest.approx(expected[f"{t}_lr_factor"][done], rel=1e-6)
        for group in optimizer.param_groups:
            group["lr"] = SETTINGS["learning_rate"] * factor
        for batch in batches(info.index):
            optimizer.zero_grad()
            loss = phase.loss(batch)
            loss.backward()
            if not losses:
                compare_gradients(method, expected, t)
            optimizer.step()
            if not losses:
                compare_parameters(method, expected, t, "step1")
            losses.append(loss.item())
    assert losses == pytest.approx(expected[f"{t}_losses"].tolist(), rel=1e-4)
    compare_parameters(method, expected, t, "end")


def compare_memory(method: InfLoRA, expected: dict, t: str) -> None:
    """Number and kind of the columns that are kept, and the projection onto them."""
    for l in range(TASKS):
        inside, outside = method.memory.bases(l)
        complement = bool(method.memory.complement[l])
        assert ("retain" if complement else "remove") == str(expected[f"{t}_l{l}_F_type"])
        assert int(method.memory.rank[l]) == int(expected[f"{t}_l{l}_F_rank"])
        F = outside if complement else inside
        assert same(F @ F.T @ oracle.probe(4), expected[f"{t}_l{l}_FFt_probe"]), (t, l)


def test_four_tasks_are_learned_as_the_public_code_learns_them():
    method, expected = built(), numbers()
    for index in range(TASKS):
        t, info = f"t{index}", begun(method, index)
        projected = method.memory.outside(moments(method, info)).mT
        for l, own in enumerate(projected):
            assert same(own @ oracle.probe(1), expected[f"{t}_l{l}_Hproj_probe"]), (t, l)
            assert same(torch.linalg.svdvals(own)[:7], expected[f"{t}_l{l}_svals"]), (t, l)
            assert same(method.edits.A[l], expected[f"{t}_l{l}_A"]), (t, l)
        learn(method, info, expected)
        for l, own in enumerate(moments(method, info)):
            assert same(own @ oracle.probe(1), expected[f"{t}_l{l}_Hpost_probe"]), (t, l)
        method.end_task(info, Images())
        if index == TASKS - 1:  # nothing uses it there
            H = method.moments(info, Images(), 0)
            method.memory.grow(H, 0.76 + 0.24 * index / TASKS)
        compare_memory(method, expected, t)
        test = Batch(oracle.images(9))
        with torch.no_grad():
            assert same(method.features(test), expected[f"{t}_features"])
            assert same(method.predict(test), expected[f"{t}_logits"])


def test_what_is_trained_is_what_the_public_code_trains():
    method = built()
    begun(method, 0)
    names = numbers()["t0_trained"].tolist()
    assert len([name for name in names if "lora_B" in name]) == 2 * len(method.edits.B)
    assert {*method.trained()} == {"edits.B", "head.heads.0.weight", "head.heads.0.bias"}
