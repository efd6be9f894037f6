r"""EASE: adapters of its own for every task, and class prototypes in the subspaces of all of them.

Zhou, Sun, Ye & Zhan, "Expandable Subspace Ensemble for Pre-Trained Model-Based Class-Incremental Learning",
CVPR 2024, arXiv 2403.12030. f_i(x) are the features of the network with task i's adapters alone. Task t
trains new adapters and a cosine head by cross-entropy over its own classes. Then, for every i <= t, P_{k,i}
is the mean of f_i over the images of a class k of task t. For an old class k, of task a, it is a mixture in
later subspaces i: of the prototypes of classes j of tasks >= i, by likeness in a, where both were measured:
\[ P_{k,i} = \sum_j s_{kj} P_{j,i}, \qquad s_{kj} = softmax_j \cos(P_{k,a}, P_{j,a}). \]
The score of class k weighs the subspace of its own task most:
\[ \cos(f_a(x), P_{k,a}) + \frac{\alpha}{t - 1} \sum_{i \ne a} \cos(f_i(x), P_{k,i}). \]
With `beta` the cosine in f_0, of un-adapted features, is added at that weight. The code differs from the
paper twice, made its numbers, and is the default: the paper mixes once, in a new subspace, over new classes
too (`completion=once`), the code after every task; the paper's alpha multiplies the sum (`others=sum`).
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone, EditedBackbone
from cl_bench.nn.heads import CosineHeads
from cl_bench.nn.prototypes import Prototypes
from cl_bench.training.adapting import AdaptingConfig, adapting, new_adapters
from cl_bench.training.method import Method
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, through

SUMMARY = "adapters and prototypes in a subspace of its own for every task"
FAMILY, VENUE, GROUPS, PASSES = "adapters", "CVPR 2024", ("paper",), "t"
KEEPS = "the mean of features per class and subspace"
BATCH = 100  # images of a statistics batch


class EaseTraining(AdaptingConfig):
    """How every task is learned."""

    learning_rate: float = Field(0.025, gt=0)


class EaseConfig(EaseTraining):
    """The public code's settings for CIFAR-100 in 20 tasks."""

    alpha: float = Field(0.1, ge=0)  # weight of the other tasks' subspaces
    others: Literal["mean", "sum"] = "mean"  # alpha times their cosines' mean (code), or their sum (paper)
    beta: float = Field(0.0, ge=0)  # weight of un-adapted features; 0: there is no such subspace
    completion: Literal["recomputed", "once"] = "recomputed"  # after every task (code), or once (paper)


class Ease(Method):
    """A list of adapters, the head that is trained now, and P (K, S, D): S = t subspaces, t + 1 with f_0."""

    Config = EaseConfig
    TRUNK = EaseTraining
    PRESET = "nsp2-paper"
    display, keeps = "EASE", KEEPS
    SMALL = {"bottleneck": 4, "dropout": 0.0}
    current_task_loss = True
    AS_PUBLISHED = {"others": "mean", "completion": "recomputed", "normalisation": "unit01"}
    LEFT_DIFFERENT = (
        "tasks and feature widths are free, where the code has equal tasks and 768 features",
        "the published class order is that of numpy's older generator, seed 1993",
    )

    def __init__(self, config: EaseConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        self.adapters, self.classes = nn.ModuleList(), []  # by task; classes as slices of all
        self.settled: list[EditedBackbone] = []  # of each task, asked for when it is learned
        self.raw = self.queries = config.beta > 0  # whether the first subspace is that of f_0
        self.register_buffer("P", torch.zeros(0, int(self.raw), backbone.width, device=self.device))

    def grow(self, task: TaskInfo) -> None:
        """Freeze the adapters so far; new adapters, a new head, and room for prototypes."""
        new, seed = len(task.classes), self.stream.init_seed
        self.adapters.requires_grad_(False)
        drawn = seeds.generator(seed, "adapters", task.index)
        self.adapters.append(new_adapters(self.backbone, self.config, drawn))
        self.settled.append(EditedBackbone(self.backbone, self.adapters[-1]))
        self.head = CosineHeads(self.backbone.width, self.device)
        self.head.grow(new, seeds.generator(seed, "head", task.index))
        self.classes.append(slice(task.first_label, task.first_label + new))
        self.P = F.pad(self.P, (0, 0, 0, 1, 0, new))  # (K, S, D)

    def phases(self, task: TaskInfo) -> list[Phase]:
        """The newest adapters and their head."""
        return [adapting(self.backbone, self.adapters[-1], self.head, self.config, task)]

    def subspaces(self, batch: Batch) -> Tensor:
        """Features (B, S, D) of all subspaces."""
        networks = [self.backbone] * self.raw + self.settled
        return torch.stack([batch.frozen_features(network) for network in networks], dim=1)

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Prototypes of the task's classes in all subspaces, and of old classes in later ones."""
        found = Prototypes(self.P[0].numel(), self.device)
        found.grow(len(task.classes))
        for batch in trainer.plain(task, BATCH, shared=True, networks=self.prediction_passes):
            features = self.subspaces(Batch(batch.images))  # which nobody asks for again
            found.add(features.flatten(1), batch.labels - task.first_label)
        trainer.group.all_reduce_sum([found.sums, found.counts])
        self.P[task.first_label :] = found.means.unflatten(1, self.P.shape[1:])
        self.complete()

    def complete(self) -> None:
        """P_{k,i} of every class k of a task a in the subspaces of tasks i > a, or of the newest alone."""
        last = len(self.classes) - 1
        for a, old in enumerate(self.classes[:-1]):
            own = F.normalize(self.P[:, self.raw + a], dim=1)  # (K, D)
            for i in range(a + 1, last + 1) if self.config.completion == "recomputed" else [last]:
                later = slice(self.classes[i].start, None)  # classes that were measured in i, and in a
                s = (own[old] @ own[later].T).softmax(dim=1)
                self.P[old, self.raw + i] = s @ self.P[later, self.raw + i]

    def weights(self) -> Tensor:
        """What each subspace weighs in the score of each class, (K, S)."""
        others = self.config.alpha / (max(1, len(self.classes) - 1) if self.config.others == "mean" else 1)
        found = self.P.new_full(self.P.shape[:2], others)
        for a, own in enumerate(self.classes):
            found[own, self.raw + a] = 1.0
        found[:, : self.raw] = self.config.beta
        return found

    def predict(self, batch: Batch) -> Tensor:
        """Weighted cosines in all subspaces, (B, K_seen)."""
        classifier = self.weights()[..., None] * F.normalize(self.P, dim=2)  # (K, S, D)
        return F.normalize(self.subspaces(batch), dim=2).flatten(1) @ classifier.flatten(1).T

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """Each image once in every subspace."""
        return (self.raw + task.index + 1) * images

    @property
    def prediction_passes(self) -> int:
        """One for every subspace, which stays as it is learned."""
        return self.P.shape[1]

    settled_passes = prediction_passes

    def extra(self) -> Extra:
        """One task's adapters: an image passes each task's in a pass of its own."""
        return Extra(image=through(self.backbone.vit, self.adapters) / max(1, len(self.adapters)))


METHOD = Ease
