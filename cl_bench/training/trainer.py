"""The only training loop: passes over a task's images, whatever the method."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from cl_bench.data.batch import Batch
from cl_bench.data.stream import Task, TaskInfo
from cl_bench.errors import RunFailed
from cl_bench.nn.precision import network_in
from cl_bench.seeds import permutation
from cl_bench.training.distributed import ALONE, ProcessGroup
from cl_bench.training.phase import Phase


class FirstTask:
    """The first task of a run by itself, trained and described here; runs that share one extend it."""

    trained_by: str | None = None  # the run that trained it, where that is another
    borrowed_seconds = 0.0  # that what was taken from other runs took to compute

    def fit(self, method: nn.Module, trainer: "Trainer", train: Callable[[], None]) -> None:
        """Bring the method and the trainer to where `train()` leaves them."""
        train()

    def once(
        self, name: str, compute: Callable[[], dict[str, Tensor]], trainer: "Trainer"
    ) -> dict[str, Tensor]:
        """The tensors that `compute()` returns for the trained task."""
        return compute()


@dataclass(frozen=True)
class Progress:
    """How far a run is: passes of a task that are done, mean loss and images per second of the last."""

    task: int
    done_passes: int
    passes: int
    loss: float
    images_per_second: float
    accuracy: float | None = None  # after the last task that was evaluated
    learned: int = 0  # tasks that are learned and evaluated
    done: float = 0.0  # share of the run's work
    rates: tuple[float, ...] = ()  # learning rate of each parameter group in the last pass


@dataclass
class Trainer:
    """Runs passes over a task's images and counts what the network saw."""

    data_seed: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: str = "fp32"
    report: Callable[[Progress], None] = lambda progress: None
    micro_batch: int | None = None  # images at a time in the network; gradients of a batch are summed
    accuracy: float | None = None  # after the task before, to be reported
    first_task: FirstTask = field(default_factory=FirstTask)  # another while the first is learned, if shared
    group: ProcessGroup = ALONE  # the processes that share each batch
    images_seen: int = 0
    passes: int = 0  # of the task so far, through all its phases
    pass_losses: list[float] = field(default_factory=list)
    training_seconds: float = 0.0  # in `fit`, of all phases

    def fit(self, task: Task, phase: Phase, planned: int | None = None) -> None:
        """Minimise the phase's loss over the task's images; `planned` are the passes of all its phases.

        The last partial batch of a shuffle is included unless the phase drops it. Passes that are shuffled
        together may bring an image twice into a batch. Raises RunFailed when the loss is not finite or no
        batch is left.
        """
        if phase.drop_last and phase.repeats * len(task) < phase.batch:
            few = f"{len(task)} images, batch {phase.batch}"
            left = f"drop_last leaves nothing of task {task.index + 1}: {few}"
            raise RunFailed(f"{left}; give drop_last=off or a smaller batch")
        optimizer = phase.optimizer()
        rates = [group["lr"] for group in optimizer.param_groups]
        for done in range(0, phase.passes, phase.repeats):
            count = min(phase.repeats, phase.passes - done)
            _set_rates(optimizer, rates, phase, done)
            start = time.perf_counter()
            mean = self._shuffle(task, phase, optimizer, count)
            seconds = time.perf_counter() - start
            self.training_seconds += seconds
            self.pass_losses += [mean] * count
            speed = count * len(task) / seconds
            now = Progress(task.index, self.passes, planned or phase.passes, mean, speed, self.accuracy)
            self.report(replace(now, rates=tuple(group["lr"] for group in optimizer.param_groups)))
        if not all(bool(torch.isfinite(parameter).all()) for parameter in _trained(optimizer)):
            raise RunFailed(
                f"training task {task.index + 1} ended with parameters that are not finite; {phase.advice}"
            )

    def fit_samples(
        self, task: TaskInfo, draw: Callable[[int], Iterable[Sized]], phase: Phase
    ) -> list[float]:
        """The same over samples that `draw(pass)` makes, batch by batch; the mean loss of each pass.

        They do not pass through the network: every process does all of it alike, whole batches at a time.
        Raises RunFailed.
        """
        optimizer, means = phase.optimizer(), []
        rates = [group["lr"] for group in optimizer.param_groups]
        for done in range(phase.passes):
            _set_rates(optimizer, rates, phase, done)
            total, count = torch.zeros((), dtype=torch.float64, device=self.device), 0
            for batch in draw(done):
                total += self._step(phase, optimizer, [batch], len(batch), shared=False) * len(batch)
                count += len(batch)
            means.append(_finite(float(total) / count, phase, task, done))
        return means

    def _shuffle(self, task: Task, phase: Phase, optimizer: torch.optim.Optimizer, count: int) -> float:
        """`count` passes shuffled together; the mean loss, fetched from the device once."""
        order = permutation(count * len(task), self.data_seed, "shuffle", task.index, self.passes)
        order = order[: len(order) // phase.batch * phase.batch] if phase.drop_last else order
        sizes = [min(phase.batch, len(order) - start) for start in range(0, len(order), phase.batch)]
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for size, batch in zip(sizes, self._batches(task, order, phase.batch, count), strict=True):
            parts = batch.split(self.micro_batch or max(1, len(batch)))
            total += self._step(phase, optimizer, parts, size, shared=self.group.size > 1) * size
        self.images_seen += len(order)
        self.group.all_reduce_sum([total])
        mean = _finite(float(total) / len(order), phase, task, self.passes)
        self.passes += count
        return mean

    def _step(
        self,
        phase: Phase,
        optimizer: torch.optim.Optimizer,
        parts: Sequence[Sized],
        size: int,
        shared: bool,
    ) -> Tensor:
        """One step on the parts of a batch, or of this process's share of its `size` images; the loss."""
        optimizer.zero_grad(set_to_none=True)
        value = self._backward(phase.loss, parts, size)
        if shared:
            trained = list(_trained(optimizer))
            for parameter in trained:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            self.group.all_reduce_sum(parameter.grad for parameter in trained)
        phase.after_backward()
        optimizer.step()
        phase.after_step()
        return value

    def _batches(self, task: Task, order: np.ndarray, size: int, count: int) -> Iterator[Batch]:
        """This process's share of every batch, augmented; of a small batch it may be empty."""
        parts = [
            self._part(self.group.share(order[start : start + size]), len(task), count)
            for start in range(0, len(order), size)
        ]
        augmented = task.augmented_batches([part for part in parts if len(part[0])])
        for chosen, _ in parts:
            yield next(augmented) if len(chosen) else Batch(torch.empty(0), torch.empty(0))

    def _part(self, chosen: np.ndarray, images: int, count: int) -> tuple[np.ndarray, int | np.ndarray]:
        """Images and their passes; where several passes are mixed, each image has its own."""
        if count == 1:
            return chosen, self.passes
        pass_of, image_of = np.divmod(chosen, images)
        by_pass = np.argsort(pass_of, kind="stable")
        return image_of[by_pass], self.passes + pass_of[by_pass]

    def _backward(self, loss: Callable[[Sized], Tensor], parts: Sequence[Sized], size: int) -> Tensor:
        """The loss of the parts of a batch, or of this process's share of its `size` images.

        Its gradient is added to the parameters'.
        """
        total = torch.zeros((), device=self.device)
        for part in parts:
            with network_in(self.precision):
                value = loss(part)
            if len(part) < size:
                value = value * (len(part) / size)
            value.backward()
            total = total + value.detach()
        return total

    def once(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """`compute()`, or what it returned for another run with the same first task.

        The name says all that it depends on besides.
        """
        return self.first_task.once(name, compute, self)

    def plain(
        self,
        task: Task,
        batch: int,
        chosen: np.ndarray | None = None,
        shared: bool = False,
        networks: int = 1,
    ) -> Iterator[Batch]:
        """The task's images as at evaluation, counted: for statistics, in fp32 and without gradients.

        With `shared` each process of a run sees its share of every batch; whoever sums over them calls
        `group.all_reduce_sum`. An image counts for each of the `networks` that it passes.
        """
        chosen = np.arange(len(task)) if chosen is None else chosen
        with torch.no_grad():
            if shared and self.group.size > 1:
                self.images_seen += networks * len(chosen)
                yield from task.plain(batch, self.group.share(chosen))
                return
            for part in task.plain(batch, chosen):
                self.images_seen += networks * len(part)
                yield part

    def features(self, task: Task, extract: Callable[[Batch], Tensor], batch: int) -> tuple[Tensor, Tensor]:
        """What `extract` makes of all images of a `plain` pass (N, D), and their labels (N,)."""
        found = [(extract(part), part.labels) for part in self.plain(task, batch)]
        features, labels = zip(*found, strict=True)
        return torch.cat(features), torch.cat(labels)

    def augmented(
        self, task: Task, batch: int, chosen: np.ndarray | None, pass_index: int, shared: bool = False
    ) -> Iterator[Batch]:
        """As `plain`, with the augmentation of a pass."""
        chosen = np.arange(len(task)) if chosen is None else chosen
        mine = self.group.share(chosen) if shared else chosen
        self.images_seen += len(chosen)
        with torch.no_grad():
            yield from task.augmented_batches(
                [(mine[start : start + batch], pass_index) for start in range(0, len(mine), batch)]
            )


def _trained(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _set_rates(optimizer: torch.optim.Optimizer, rates: list[float], phase: Phase, done: int) -> None:
    for group, base in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = base * phase.rate(done, group)


def _finite(mean: float, phase: Phase, task: TaskInfo, done: int) -> float:
    if not math.isfinite(mean):
        raise RunFailed(
            f"the {phase.name} loss of task {task.index + 1} became {mean} in pass {done + 1}; {phase.advice}"
        )
    return mean
