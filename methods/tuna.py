r"""TUNA: adapters of every task, of which the surest answers for an image, and one that unites them all.

Wang, Zhou & Ye, "Integrating Task-Specific and Universal Adapters for Pre-Trained Model-based
Class-Incremental Learning", ICCV 2025, arXiv 2508.08165. Task t trains adapters U_t beside the MLPs, which
start as U_{t-1}, and the task's rows w_k of a cosine head, over the task's own classes, by
\[ -\log \frac{e^{s (\cos(f, w_y) - \mu)}}{e^{s (\cos(f, w_y) - \mu)} + \sum_{j \ne y} e^{s \cos(f, w_j)}}
   + \lambda e^{-t} \sum_{i<t} \frac1L \sum_l \Big| mean\big( N(W_{t,l}) N(W_{i,l})^T \big) \Big|, \]
W the up-projections of L blocks, N their rows at unit length. The universal adapters take, entry by entry,
the sign g of the mean over all U_i, and the largest size of an entry that has it:
\[ U_{univ} = g \max_{i: g U_i > 0} |U_i|, \qquad g = sign(mean_i U_i). \]
Mean and covariance of the features of each class through the adapters of its task are kept, and from the
second task on all of the head is trained, by cross-entropy over all classes, on draws from them; it goes on
from there. With z_i the s cos(f_i, w) under U_i, i^* that of least entropy, the answer is the best class of
\[ softmax(z_{i^*}) + softmax(z_{univ}). \]

How U_t starts, and what the alignment is like, `mean_decay` included, are in the public code alone. It never
uses the universal adapters, goes on training old ones and has other faults, which stand below the algorithm.
"""

import math
from collections.abc import Iterable

import torch
from cl_bench.methods._tuna_as_run import Published, TUNAConfig
from torch import Tensor
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.adapter import Adapters
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.gaussians import ClassGaussians
from cl_bench.nn.heads import CosineTaskHeads
from cl_bench.training.adapting import new_adapters
from cl_bench.training.kept_adapters import KeptAdapters
from cl_bench.training.trainer import Trainer

SUMMARY = "adapters of every task, of which the surest answers beside universal ones merged from all"
FAMILY, VENUE, PASSES, KEEPS = "adapters", "ICCV 2025", "t + 1", "one Gaussian of features per class"


def united(values: Tensor) -> Tensor:
    """Of entries (t, ...) the sign of their mean, and the largest size that has it: 0 where none has."""
    g = torch.where(values.mean(dim=0) > 0, 1.0, -1.0)
    return g * (values * g).amax(dim=0).clamp(min=0)


def entropies(z: Tensor) -> Tensor:
    """Of softmax(z), over the last dimension."""
    return torch.special.entr(z.softmax(dim=-1)).sum(dim=-1)


def directions(adapters: Iterable[Adapters]) -> Tensor:
    """The mean row of N(W_{i,l}), (t, L, r): products of two are means over the products of all rows."""
    return torch.stack([F.normalize(own.up, dim=2).mean(dim=1) for own in adapters])


class TUNA(KeptAdapters):
    """U_1 ... U_t, universal adapters, a cosine head, and Gaussians."""

    PRESET = "tuna"
    SMALL = {"bottleneck": 4, "dropout": 0.0, "align_samples": 32}

    def __init__(self, config: TUNAConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream, CosineTaskHeads(backbone.width, config.scale))
        self.old: Tensor | None = None  # directions of earlier tasks
        self.universal = None
        if config.universal == "merged":
            made = new_adapters(backbone, config, seeds.generator(stream.init_seed, "universal"))
            self.universal = made.requires_grad_(False)

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """What the new adapters are to differ from."""
        self.old = directions(self.adapters)[:-1].detach()

    def likeness(self, old: Tensor) -> Tensor:
        """Of W_t and earlier ones, by their directions: the sum over tasks of the mean over blocks."""
        return (old * directions(self.adapters[-1:])).sum(dim=2).abs().mean(dim=1).sum()

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """Over the task's own classes."""
        config, y = self.config, batch.labels - task.first_label
        z = self.head.current(self.backbone.features(batch.images, self.newest()))  # (B, c_t)
        found = F.cross_entropy(z - config.scale * config.margin * F.one_hot(y, z.shape[1]), y)
        if task.index and config.orthogonality:
            found = found + config.orthogonality * math.exp(-1 - task.index) * self.likeness(self.old)
        return found

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """The universal adapters; Gaussians of the task's classes; alignment."""
        if self.universal is not None:
            every = (self.universal, *self.adapters)
            for own, *parts in zip(*(adapters.parameters() for adapters in every), strict=True):
                own.data.copy_(united(torch.stack(parts).detach()))
        super().end_task(task, trainer)

    def drawn(self) -> ClassGaussians:
        """With `mean_decay` around smaller means."""
        known = ClassGaussians(self.backbone.width, self.config.ridge, self.device)
        known.means, known.factors = self.decay()[:, None] * self.gaussians.means, self.gaussians.factors
        return known

    def decay(self) -> Tensor:
        """1 - d (1 - i / t) for classes of task i of t, (K,)."""
        i = self.head.tasks() + 1
        return 1 - self.config.mean_decay * (1 - i / i.max())

    def predict(self, batch: Batch) -> Tensor:
        """softmax(z_{i^*}) + softmax(z_univ), (B, K_seen); after the first task z_1."""
        z = self.scores(self.features(batch))  # (B, t, K)
        if z.shape[1] == 1:
            return z[:, 0]
        p = z.softmax(dim=2)
        surest = entropies(z).argmin(dim=1)  # (B,)
        return p[torch.arange(len(p), device=p.device), surest] + self.united_scores(batch, z).softmax(dim=1)

    def united_scores(self, batch: Batch, z: Tensor) -> Tensor:
        """z_univ (B, K_seen), beside z (B, t, K_seen) under all adapters."""
        return self.head(self.backbone.features(batch.images, self.universal))

    @property
    def prediction_passes(self) -> int:
        """One for the adapters of every task, and from two on one for the universal ones."""
        return len(self.adapters) + (len(self.adapters) > 1 and self.universal is not None)


class AsRun(Published, TUNA):
    """What the published program does otherwise, each under its own option."""

    display, Config = "TUNA", TUNAConfig
    AS_PUBLISHED = {
        "universal": "latest_asis", "kept": "trained_asis", "mean_tasks": "negative_asis",
        "align_schedule": "waves_asis", "head_decay": "all_asis", "normalisation": "unit01",
    }  # fmt: skip
    LEFT_DIFFERENT = (
        "any number of blocks and any bottleneck, where the code has 12 and 16",
        "the published class order is that of PILOT's family, seed 1993 (--order pilot:1993)",
    )

    def likeness(self, old: Tensor) -> Tensor:
        """Trained, earlier adapters are as they are now."""
        return super().likeness(directions(self.adapters[:-1]) if self.trains_old else old)


METHOD = AsRun
