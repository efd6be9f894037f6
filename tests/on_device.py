"""Toy lessons on any device, and by how much a GPU's may differ from a processor's."""

from dataclasses import dataclass

import pytest
import torch
import toys
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cl_bench.data.batch import Batch
from cl_bench.nn.precision import network_in

GPU = "cuda:0"
ON_GPU = pytest.param(GPU, marks=pytest.mark.gpu)
devices = pytest.mark.parametrize("device", [ON_GPU, "cpu"])  # the processor proves that the test runs
slow_devices = pytest.mark.parametrize("device", [ON_GPU, pytest.param("cpu", marks=pytest.mark.slow)])

TASKS = [[2, 0], [1, 3, 4]]
# of losses of the first task relatively, and of scores after it in their largest: fp32 sums in another order
# over a few steps (without TF32); bf16 has 8 bits, and each device rounds in other places
CLOSE = {"fp32": (1e-3, 1e-2), "bf16": (5e-2, 0.2)}
LOOSE = 0.5  # of losses where the method draws on the device, which has other random numbers


class Draws(TorchDispatchMode):
    """Notes whether random numbers are drawn on a GPU."""

    on_gpu = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            values = [value for value in tree_leaves(found) if isinstance(value, Tensor)]
            self.on_gpu = self.on_gpu or any(value.is_cuda for value in values)
        return found


@dataclass(frozen=True)
class Lesson:
    """What came of the first task, and whether it depends on the device's random numbers."""

    losses: list[float]
    scores: Tensor  # of some images, on the processor
    drew: bool


def lesson(name: str, device: str, precision: str, **options) -> Lesson:
    """Learn two tasks of toy images; of the first what came of it, of the second that nothing broke."""
    joint = toys.method_class(name).joint
    stream = toys.stream_of(toys.sides(TASKS), TASKS, joint, "crop-flip", device)
    method = toys.method(name, stream.num_tasks, toys.backbone_for(name).to(device), passes=2, **options)
    settings = {"device": torch.device(device), "precision": precision}
    with Draws() as draws:
        [first] = toys.learn(method, stream, upto=1, **settings)
    images = torch.randn(20, 3, 16, 16, generator=torch.Generator().manual_seed(5)).to(device)
    with torch.inference_mode(), network_in(precision):
        scores = method.predict(Batch(images))
    if not joint:
        toys.learn(method, stream, start=1, **settings)
    last = stream.evaluate(method.predict, stream.num_tasks)
    assert all(0 <= right <= size for right, size in zip(last.correct, stream.test_sizes, strict=True))
    assert {value.device for value in method.state().values()} <= {torch.device(device)}
    return Lesson(first.pass_losses, scores.cpu(), draws.on_gpu)


def assert_close(found: Lesson, expected: Lesson, precision: str) -> None:
    """The same as on a processor, within what is said above."""
    losses, scores = CLOSE[precision]
    assert len(found.losses) == len(expected.losses) and found.scores.shape == expected.scores.shape
    assert found.losses == pytest.approx(expected.losses, rel=LOOSE if found.drew else losses)
    assert torch.isfinite(found.scores).all()
    if not found.drew:
        apart = (found.scores - expected.scores).abs().max()
        assert float(apart) <= scores * float(expected.scores.abs().max())
