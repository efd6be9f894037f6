"""What the public code of ARCL-ViT makes of attention, rates and heads, to be mixed in before the method."""

import math

import torch
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import Task, TaskInfo
from cl_bench.nn.rollout import LowAttention, Rollout, split_points
from cl_bench.nn.shown_attention import See
from cl_bench.training.refined_method import Refined
from cl_bench.training.trainer import Trainer


class LowInWindows(LowAttention):
    """Image n of a class gets the thresholds of L P numbers from the n-th number of its first image on.

    The code slides a window over the rollouts of a class, one after another, by one number and not by one
    image: the rows of its thresholds are made of two blocks' numbers, and of the first few images alone.
    """

    def begin(self, images: int) -> None:
        """Of a task whose classes have at most so many images each."""
        self._most = 2 + images // self.total.numel()  # images that windows reach into
        self._first: dict[int, list[Tensor]] = {}
        self._count: dict[int, int] = {}

    def limits(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Those of each image's window, (B, L)."""
        windows = []
        for row, label in zip(rows, labels.tolist(), strict=True):
            first, n = self._first.setdefault(label, []), self._count.get(label, 0)
            if len(first) < self._most:
                first.append(row.flatten())
            windows.append(torch.cat(first)[n : n + row.numel()].view_as(row))
            self._count[label] = n + 1
        return split_points(torch.stack(windows), self.margin)


class Published(Refined):
    """Each of it under its own option."""

    left, last = 0, -math.inf  # images of the task still to be shown, and those shuffled last

    @property
    def couples_batch(self) -> bool:
        """With training_asis images are looked at one after another, as they are learned."""
        return self.config.masks_from == "training_asis"

    def make_low(self, *sizes) -> LowAttention:
        """With window_asis thresholds of other numbers."""
        kind = LowInWindows if self.config.thresholds == "window_asis" else LowAttention
        return kind(*sizes)

    def grow(self, task: TaskInfo) -> None:
        """With refined_asis the second head starts from the refined first, if that is as wide."""
        refined, first = self.config.head_init == "refined_asis", [*self.refined.heads]
        super().grow(task)
        if refined and len(first) == 1 and first[0].out_features == len(task.classes):
            for heads in (self.head, self.refined):
                heads.heads[1].load_state_dict(first[0].state_dict())

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Nothing is shown yet."""
        super().begin_task(task, trainer)
        self.left = self.config.passes * len(task)
        self.last = (self.config.passes % self.repeats() or self.repeats()) * len(task)
        if isinstance(self.low, LowInWindows):
            self.low.begin(self.repeats() * len(task))

    def loss(self, batch: Batch, task: TaskInfo, *see: See) -> Tensor:
        """With training_asis rollouts of the last shuffle join m while they are learned from."""
        self.left -= len(batch)
        if not self.couples_batch or self.left >= self.last or self.is_last(task):
            return super().loss(batch, task, *see)
        rollout = Rollout(self.prefix)
        loss = super().loss(batch, task, *see, rollout.see)
        self.low.add(rollout.rows(), batch.labels)
        return loss

    def rate(self, done: int) -> float:
        """With last_fifth_asis a tenth in the last fifth."""
        late = done >= 0.8 * self.config.passes - 1e-9
        return 0.1 if self.config.lr_decay == "last_fifth_asis" and late else 1.0
