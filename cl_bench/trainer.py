"""The only training loop."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

import numpy as np
import torch
from torch import Tensor

from cl_bench.errors import RunFailed
from cl_bench.frozen import split
from cl_bench.nn.precision import network_in
from cl_bench.seeds import permutation
from cl_bench.stream import Task
from cl_bench.world import ALONE, World

if TYPE_CHECKING:
    from cl_bench.first_task import FirstTask


@dataclass(frozen=True)
class Progress:
    """One finished pass: its number (from 1), the passes of the task, mean loss, images per second."""

    task: int
    done_passes: int
    passes: int
    loss: float
    images_per_second: float
    accuracy: float | None = None  # after the task before


@dataclass
class Trainer:
    """Runs passes over a task's images and counts what the network saw."""

    data_seed: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: str = "fp32"
    report: Callable[[Progress], None] = lambda progress: None
    micro_batch: int | None = None  # images that go through the network at a time; gradients of a batch are summed
    accuracy: float | None = None  # after the task before, to be reported
    first_task: Optional["FirstTask"] = None  # while learning the first task, where runs share it
    world: World = ALONE  # the processes that share each batch
    images_seen: int = 0
    pass_losses: list[float] = field(default_factory=list)

    def fit(
        self,
        task: Task,
        *,
        loss: Callable[[Tensor, Tensor], Tensor],
        optimizer: torch.optim.Optimizer,
        batch: int,
        passes: int,
        repeats: int = 1,
        rate: Callable[[int], float] = lambda done: 1.0,
        drop_last: bool = False,
        after_backward: Callable[[], None] | None = None,
    ) -> None:
        """Minimise `loss` for `passes` passes over the task, every image once a pass, last partial batch included unless `drop_last`.

        `repeats` passes are shuffled together (an image may then stand twice in a batch). The learning rate is multiplied by
        `rate(passes done)` at the start of each shuffle. Raises RunFailed when the loss is not finite or no batch is left.
        """
        if drop_last and repeats * len(task) < batch:
            few = f"{len(task)} images, batch {batch}"
            raise RunFailed(f"drop_last leaves nothing of task {task.index + 1}: {few}; give drop_last=off or a smaller batch")
        rates = [group["lr"] for group in optimizer.param_groups]
        for first in range(0, passes, repeats):
            count = min(repeats, passes - first)
            factor = rate(first)
            for group, base in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = base * factor
            start = time.perf_counter()
            mean = self._epoch(task, loss, optimizer, after_backward, batch, first, count, drop_last)
            if not math.isfinite(mean):
                raise RunFailed(f"the training loss of task {task.index + 1} became {mean} in pass {first + 1}; lower learning_rate")
            self.pass_losses += [mean] * count
            speed = count * len(task) / (time.perf_counter() - start)
            self.report(Progress(task.index, first + count, passes, mean, speed, self.accuracy))
        trained = (parameter for group in optimizer.param_groups for parameter in group["params"])
        if not all(bool(torch.isfinite(parameter).all()) for parameter in trained):
            raise RunFailed(f"training task {task.index + 1} ended with parameters that are not finite; lower learning_rate")

    def _epoch(self, task, loss, optimizer, after_backward, batch, first, count, drop_last) -> float:
        """`count` passes shuffled together; the mean loss, fetched from the device once."""
        order = permutation(count * len(task), self.data_seed, "shuffle", task.index, first)
        order = order[: len(order) // batch * batch] if drop_last else order
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        batches = [order[start : start + batch] for start in range(0, len(order), batch)]
        trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        following = self._input(task, self.world.share(batches[0]), first, count)
        for chosen, after in zip(batches, [*batches[1:], None], strict=True):
            current = following
            # with Pillow, other processes augment the next batch during this step
            following = None if after is None else self._input(task, self.world.share(after), first, count)
            images, labels = current()
            optimizer.zero_grad(set_to_none=True)
            value = self._backward(loss, images, labels, len(chosen))
            if self.world.size > 1:
                for parameter in trained:
                    parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                self.world.add(parameter.grad for parameter in trained)
            if after_backward is not None:
                after_backward()
            optimizer.step()
            total += value * len(chosen)
        self.images_seen += len(order)
        self.world.add([total])
        return float(total) / len(order)

    def _backward(self, loss: Callable[[Tensor, Tensor], Tensor], images: Tensor, labels: Tensor, batch: int) -> Tensor:
        """The loss of a batch, or of this process's share of its `batch` images; its gradient is added to the parameters'."""
        size = self.micro_batch or max(1, len(images))
        parts = zip(split(images, size), labels.split(size), strict=True) if len(images) else ()
        total = torch.zeros((), device=self.device)
        for some_images, some_labels in parts:
            with network_in(self.precision):
                value = loss(some_images, some_labels)
            if len(some_labels) < batch:
                value = value * (len(some_labels) / batch)
            value.backward()
            total = total + value.detach()
        return total

    def once(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """`compute()`, or what it returned for another run with the same first task; the name says all that it depends on besides."""
        return compute() if self.first_task is None else self.first_task.once(name, compute, self)

    def _input(self, task: Task, chosen: np.ndarray, first: int, count: int) -> Callable[[], tuple[Tensor, Tensor]]:
        """Augmented images, begun; where several passes are mixed, each image with its own pass's augmentation."""
        if not len(chosen):  # this process's share of a small batch
            return lambda: (torch.empty(0), torch.empty(0))
        if count == 1:
            return task.augmenting(chosen, first)
        pass_of, image_of = np.divmod(chosen, len(task))
        by_pass = np.argsort(pass_of, kind="stable")
        return task.augmenting(image_of[by_pass], first + pass_of[by_pass])

    def plain(self, task: Task, batch: int, chosen: np.ndarray | None = None, shared: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
        """The task's images as at evaluation, counted; for statistics, in full precision and without gradients.

        With `shared` each process of a run sees its share of every batch; whoever sums over them calls `world.add`.
        """
        chosen = np.arange(len(task)) if chosen is None else chosen
        with torch.no_grad():
            if shared and self.world.size > 1:
                self.images_seen += len(chosen)
                yield from task.plain(batch, self.world.share(chosen))
                return
            for images, labels in task.plain(batch, chosen):
                self.images_seen += len(images)
                yield images, labels

    def augmented(self, task: Task, batch: int, chosen: np.ndarray, pass_index: int) -> Iterator[tuple[Tensor, Tensor]]:
        """As `plain`, with the augmentation of a pass."""
        with torch.no_grad():
            for start in range(0, len(chosen), batch):
                images, labels = task.augmented(chosen[start : start + batch], pass_index)
                self.images_seen += len(images)
                yield images, labels
