r"""MOS: adapters that learn in every task and merge with those of earlier ones; an image finds its task's.

Sun et al., "MOS: Model Surgery for Pre-Trained Model-Based Class-Incremental Learning", AAAI 2025, arXiv
2412.09441. One set of adapters U beside the MLPs goes on from task to task. Task t trains U, and at a tenth
of the rate the task's rows of a head h, by CE(h(f), y) + \lambda L_{con} over its own classes; every step is
followed by
\[ U \leftarrow (1 - m) U + \frac{m}{t - 1} \sum_{s<t} U_s, \]
and a copy is kept as U_t. So are mean and covariance of the features of each of its classes through U_t, and
P_k, the mean of those through U_1. From the second task on all of h is then trained, by cross-entropy over
all classes, on draws from the Gaussians of all classes.

At prediction s_k = \cos(f_1, P_k) guesses a task, that of the best class. Through its U the scores z = h(f)
guess again, until a guess is the one before, or (public code) `rounds` times. The answer is the best class of
\[ softmax(z) + softmax(t s). \]

L_{con} (HiDe-Prompt's, with the means of old classes), the rates, and that h goes on from where it was
aligned are in the public code alone. What that code does besides, above all that it merges in every forward
too, so that it predicts with little but U_1 and an aligned head, stands below the algorithm.
"""

from dataclasses import replace
from typing import Literal

import torch
from cl_bench.methods._merging import MergingInForward, mean_of, move
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.contrast import contrast
from cl_bench.nn.heads import DecayingHeads, TaskHeads
from cl_bench.nn.prototypes import Prototypes
from cl_bench.training.kept_adapters import KeptAdapters, KeptAdaptersConfig
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra

SUMMARY = "adapters that merge with those of earlier tasks, of which an image finds its own by guessing again"
FAMILY, VENUE, PASSES = "adapters", "AAAI 2025", "t"
KEEPS = "one Gaussian of features and one mean of other features per class"
TEMPERATURE = 0.8  # of L_con


class MOSConfig(KeptAdaptersConfig):
    """The public code's settings for CIFAR-100 in 20 tasks."""

    learning_rate: float = Field(0.03, gt=0)
    head_share: float = Field(0.1, gt=0)  # rate of h in that of U
    contrast: float = Field(0.1, ge=0)  # lambda
    merge: float = Field(0.1, ge=0, le=1)  # m
    rounds: int = Field(4, ge=1)
    ensemble: bool = True  # off: the answer is the best class of z
    merging: Literal["step", "forward_asis"] = "step"  # for what is not as meant see `AsRun`
    head_decay: Literal["newest", "all_asis"] = "newest"
    prototypes: Literal["plain", "dropout_asis"] = "plain"


class MOS(KeptAdapters):
    """U_1 ... U_t, h, Gaussians, and P (K, D)."""

    PRESET, keeps = "mos", KEEPS
    SMALL = {"bottleneck": 4, "dropout": 0.0, "head_share": 1.0, "align_rate": 0.05, "align_samples": 32}
    couples_batch = True
    head_share = property(lambda self: self.config.head_share)

    def __init__(self, config: MOSConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream, TaskHeads(backbone.width))
        self.P, self.mean = Prototypes(backbone.width, self.device), []  # the mean of U_s, s < t

    def grow(self, task: TaskInfo) -> None:
        """Room for the task's classes."""
        super().grow(task)
        self.P.grow(len(task.classes))

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """What U merges with."""
        self.mean = mean_of(self.adapters[:-1])

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE over the task's own classes, and lambda L_con."""
        f = self.backbone.features(batch.images, self.newest())
        ce = F.cross_entropy(self.head.current(f), batch.labels - task.first_label)
        return ce + self.config.contrast * contrast(self.gaussians.centers(task.first_label), f, TEMPERATURE)

    def after_step(self, times: int = 1) -> None:
        """U <- (1 - m) U + m mean, so many times."""
        if self.mean:
            move(self.adapters[-1], self.mean, (1 - self.config.merge) ** times)

    def described(self, batch: Batch, done: int) -> Tensor:
        """f (B, D) through U_t; those through U_1 join P."""
        first = self.backbone.features(batch.images, self.adapters[0])
        self.P.add(first, batch.labels)
        return super().described(batch, done) if self.mean else first

    def described_networks(self, task: TaskInfo) -> int:
        """U_1 and, later, U_t."""
        return 1 + bool(task.index)

    def predict(self, batch: Batch) -> Tensor:
        """What all adapters answer together, (B, K_seen)."""
        return self.answer(self.features(batch))

    def answer(self, f: Tensor) -> Tensor:
        """softmax(z) + softmax(t s) of features (B, t, D)."""
        s, Z = self.P(f[:, 0]), self.scores(f)
        z = Z[torch.arange(len(Z), device=Z.device), self.guessed(s, Z)]
        return z.softmax(dim=1) + (f.shape[1] * s).softmax(dim=1) if self.config.ensemble else z

    def guessed(self, s: Tensor, Z: Tensor) -> Tensor:
        """The tasks (B,) whose scores answer, of s (B, K) and scores Z (B, t, K) under all tasks."""
        tasks = self.head.tasks()
        guess, following = tasks[s.argmax(dim=1)], tasks[Z.argmax(dim=2)]  # (B,), (B, t)
        for _ in range(self.config.rounds - 1):  # a guess that is the one before stays
            guess = following.gather(1, guess[:, None])[:, 0]
        return guess

    def extra(self) -> Extra:
        """L_con besides."""
        pairs = (len(self.gaussians.means) + self.config.batch) ** 2
        return replace(super().extra(), step=2.0 * self.backbone.width * pairs)


class AsRun(MergingInForward, MOS):
    """What the published program does otherwise, each under its own option."""

    display, Config = "MOS", MOSConfig
    AS_PUBLISHED = {"merging": "forward_asis", "head_decay": "all_asis", "prototypes": "dropout_asis"}
    AS_PUBLISHED |= {"normalisation": "unit01"}
    LEFT_DIFFERENT = (
        "kept adapters predict as a long evaluation leaves them, in the code as the batches before have",
        "the published class order is that of PILOT's family, seed 1993 (--order pilot:1993)",
    )

    def __init__(self, config: MOSConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        if config.head_decay == "all_asis":
            self.head = DecayingHeads(backbone.width, self.device)

    def describe(self, task: Task, trainer: Trainer) -> None:
        """From the second task on P_k are of U_1 with dropout, since the code is still training then."""
        self.adapters[0].train(bool(task.index) and self.config.prototypes == "dropout_asis")
        super().describe(task, trainer)
        self.adapters[0].train(False)


METHOD = AsRun
