"""Finds what makes a processor wait for a GPU, and tensors on the wrong device, without there being a GPU.

A training pass is to fill a GPU's queue without looking at results. On a processor operators that would look
are refused by name. On a GPU torch's own debug mode refuses all. A twin of a method on a GPU that does not
exist (torch's fake tensors: shapes and devices without content) refuses copies and mixed devices too.
"""

import copy
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from types import GeneratorType
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from cl_bench.data.batch import Batch
from cl_bench.data.stream import Task, TaskInfo
from cl_bench.training.method import Method
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer

NOWHERE = torch.device("cuda:0")  # where fake tensors are
OPTIM = Path(torch.optim.__file__).parent
# operators whose result the processor, or the size of the next tensor, depends on
LOOKING = {
    "_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive",
    "equal", "bincount", "_linalg_eigh", "_linalg_svd", "linalg_lstsq", "linalg_cholesky_ex",
}  # fmt: skip


class Waits(AssertionError):
    """A processor would wait for its GPU here."""


class NoWaiting(TorchDispatchMode):
    """Raises Waits where a GPU would be waited for."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        reason = reason_to_wait(func.overloadpacket.__name__, args, kwargs or {})
        if reason and not _on_processors_only():
            raise Waits(reason)
        return func(*args, **(kwargs or {}))


def reason_to_wait(name: str, args: tuple, named: dict) -> str | None:
    """Why a call of an operator would wait, None where it would not."""
    if name in LOOKING and not _on_processor_beside_gpu(args[0]):
        return name
    if name == "repeat_interleave" and named.get("output_size") is None and isinstance(args[-1], Tensor):
        return "repeat_interleave without the size of its result"
    if name in ("index", "index_put", "index_put_"):
        for index in (index for index in args[1] if index is not None):
            if index.dtype == torch.bool and not (name != "index" and args[2].numel() == 1):
                return f"{name} by a mask"
            if index.device != args[0].device:
                return f"{name} by places on another device"
    if name in ("_to_copy", "copy_"):
        target = torch.device(named.get("device") or args[0].device)
        source, waits = (args[0], named.get("non_blocking")) if name == "_to_copy" else (args[1], args[2:])
        if source.device.type != target.type and not any(np.atleast_1d(waits or False)):
            return f"a copy from {source.device} to {target} that is waited for"
    return None


def _on_processor_beside_gpu(value: Tensor) -> bool:
    """Whether a value is at hand although the method is on a GPU: Adam's count of steps is."""
    return isinstance(value, torch._subclasses.FakeTensor) and value.device.type == "cpu"


def _on_processors_only() -> bool:
    """Whether torch itself looks, as on a GPU it would not.

    Optimizers' count of steps is on the processor, or fused into a kernel; labels that are to be one-hot are
    not looked at where the number of classes is given.
    """
    frames = traceback.extract_stack()
    return any(Path(frame.filename).parent == OPTIM or "F.one_hot(" in frame.line for frame in frames)


@contextmanager
def no_waiting(device: str) -> Iterator[None]:
    """Refuse in the body what would wait for the device."""
    if device == "cpu":
        with NoWaiting():
            yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Watching(Trainer):
    """A trainer that refuses to wait between the first and the last step of a pass."""

    def fit(self, task: Task, phase: Phase, planned: int | None = None) -> None:
        """As ever; the mean loss at the end of a pass may be fetched."""
        given = task.augmented_batches

        def watched(parts):
            with no_waiting(self.device.type):
                yield from given(parts)

        with patch.object(task, "augmented_batches", watched):
            super().fit(task, phase, planned)

    def fit_samples(self, task: TaskInfo, draw, phase: Phase) -> list[float]:
        """The same over samples; the first batch of a pass may be waited for."""

        def watched(done: int):
            batches = iter(draw(done))
            first = next(batches)
            with no_waiting(self.device.type):
                yield first
                yield from batches

        return super().fit_samples(task, watched, phase)


def twin(method: Method) -> tuple[Method, FakeTensorMode]:
    """The method on a GPU that is not there: all its tensors are fake ones, of the same shapes."""
    fakes, made = FakeTensorMode(allow_non_fake_inputs=True), {}

    def moved(value: Tensor, memo: dict) -> Tensor:
        if id(value) not in memo:
            with fakes, torch.no_grad():
                new = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=NOWHERE)
                parameter = isinstance(value, nn.Parameter)
                new = nn.Parameter(new, value.requires_grad) if parameter else new
            memo[id(value)] = new.requires_grad_(value.requires_grad)
        return memo[id(value)]

    with patch.object(Tensor, "__deepcopy__", moved), patch.object(nn.Parameter, "__deepcopy__", moved):
        for value in vars(method).values():
            if isinstance(value, GeneratorType):  # of batches, which the twin gets one of, again and again
                made[id(value)] = repeat(copy.deepcopy(next(value), made))
        return copy.deepcopy(method, made), fakes


def steps_on_nothing(method: Method, task: Task, count: int = 2) -> None:
    """Some steps of every phase of the method's twin; gradients are not computed, but there.

    Raises Waits, and what torch raises where tensors of two devices meet.
    """
    fake_method, fakes = twin(method)
    size = method.backbone.spec.image_size
    fake_method.train()
    gradients = patch("torch.autograd.grad", lambda of, to, **how: [torch.empty_like(value) for value in to])
    with fakes, gradients, patch.object(Tensor, "pin_memory", lambda value: value):
        for phase in fake_method.phases(task):
            optimizer = phase.optimizer()
            trained = [value for group in optimizer.param_groups for value in group["params"]]
            images = torch.empty(8, 3, size, size, device=NOWHERE)
            labels = torch.empty(8, dtype=torch.long, device=NOWHERE)
            with NoWaiting():
                for _ in range(count):
                    phase.loss(Batch(images, labels, None, np.arange(8)))
                    for value in trained:
                        value.grad = torch.empty_like(value)
                    phase.after_backward()
                    optimizer.step()
                    phase.after_step()
