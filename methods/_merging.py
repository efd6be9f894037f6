"""Adapters that move toward the mean of others, in place or only as the network sees them: those of MOS."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.adapter import Adapters
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.edits import Edits
from cl_bench.training.kept_adapters import KeptAdapters, KeptAdaptersConfig
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer


def mean_of(adapters: Iterable[Adapters]) -> list[Tensor]:
    """The mean of each of their tensors."""
    tensors = zip(*(one.parameters() for one in adapters), strict=True)
    return [torch.stack([part.detach() for part in parts]).mean(dim=0) for parts in tensors]


@torch.no_grad()
def move(own: Adapters, mean: list[Tensor], left: float | Tensor) -> None:
    """w <- left w + (1 - left) mean, for every tensor."""
    for part, other in zip(own.parameters(), mean, strict=True):
        part.lerp_(other, 1 - left)


class Moved(Edits):
    """Adapters as they are when those of block l have kept `left[l]`, the rest being the mean of others.

    What is learned through them is learned by the adapters themselves, as if they stood there.
    """

    def __init__(self, own: Adapters, others: Iterable[Adapters], left: list[float]):
        self.own, self.others, self.left = own, list(others), left

    def beside_mlp(self, l: int, x: Tensor) -> Tensor:
        """What the moved adapter of the block adds, (B, N, D)."""
        moved = []
        for part, *others in zip(*(one.parameters() for one in (self.own, *self.others)), strict=True):
            mean = torch.stack([other[l].detach() for other in others]).mean(dim=0)
            moved.append(part[l] + (1 - self.left[l]) * (mean - part[l].detach()))
        return self.own.scale * self.own.through(x, *moved)


class MergingInForward(KeptAdapters):
    """With `merging=forward_asis` every block of every forward merges all blocks' adapters once.

    So does the public code, but with U_1 alone. In a network of L blocks the adapters of block l have merged
    l more times, from 1, when they are used, and a step merges L + 1 times. A pass for statistics is over
    small batches class by class, and what it leaves is that with which the next task starts. Evaluation
    merges kept adapters, L times with each batch of images: soon they are the mean of those before them, and
    are here from the start, so that a prediction depends on its image alone.
    """

    def __init__(self, config: KeptAdaptersConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        self.everywhere = config.merging == "forward_asis"
        if self.everywhere:  # how much of U_t the statistics have left
            self.register_buffer("left", torch.ones((), device=self.device))

    def start(self) -> Adapters:
        """As the statistics left it."""
        own = super().start()
        if self.everywhere and len(self.adapters) > 1:
            move(own, mean_of(self.adapters[:-1]), self.left)
        return own

    def merged(self, index: int, left: list[float]) -> Edits:
        """The adapters of a task, of which so much is left in each block."""
        if not (self.everywhere and index):
            return self.adapters[index]
        return Moved(self.adapters[index], self.adapters[:index], left)

    def newest(self, done: int = 0) -> Edits:
        """After the merges of so many batches, and those of a forward that come before each block."""
        depth, kept = self.backbone.depth, 1 - self.config.merge
        return self.merged(len(self.adapters) - 1, [kept ** (done * depth + l + 1) for l in range(depth)])

    def network(self, index: int) -> Edits:
        """The mean of the adapters before."""
        return self.merged(index, [0.0] * self.backbone.depth)

    def phases(self, task: TaskInfo) -> list[Phase]:
        """What the forward merges is there when the step is made."""
        [phase] = super().phases(task)
        depth = self.backbone.depth if self.everywhere else 0
        return [replace(phase, after_backward=lambda: self.after_step(depth))]

    def plain(self, task: Task, trainer: Trainer) -> Iterable[Batch]:
        """Class by class."""
        if not (self.everywhere and task.index):
            return super().plain(task, trainer)
        labels, size, networks = (
            task.labels.cpu().numpy(),
            3 * self.config.batch,
            self.described_networks(task),
        )
        chosen = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        parts = [own[start : start + size] for own in chosen for start in range(0, len(own), size)]
        self.left.fill_((1 - self.config.merge) ** (self.backbone.depth * len(parts)))
        return chain.from_iterable(trainer.plain(task, size, part, networks=networks) for part in parts)
