r"""SSIAT: adapters that all tasks tune on, heads aligned on Gaussians whose means follow the features' shift.

Tan et al., "Semantically-Shifted Incremental Adapter-Tuning is A Continual ViTransformer", CVPR 2024, arXiv
2403.19979. One set of adapters beside the MLPs learns in every task, by cross-entropy of s cos(f, w_k) over
the task's own classes. With Y_i and Y'_i the features of the task's image i before and after that, the mean
\mu_c of every class c of an old task moves by
\[ \sum_i v_{ci} (Y'_i - Y_i), \qquad v_{ci} \propto \exp(-\|Y_i - \mu_c\|^2 / (2 \sigma^2)) + 10^{-5}; \]
its covariance stays. Mean and covariance of the new classes join them, and from the second task on a copy of
all heads is trained, by cross-entropy over all classes, on draws of each: of a class of task i of t around
0.9 + 0.1 i / t times its mean. The copy predicts; the next task goes on from the heads as they were trained.

At distances far above \sigma all v are equal; diagnostics have the effective number of images, 1 / \sum_i
v_{ci}^2. The factor on means and what is added to covariances are the public code's, not the paper's. That it
pairs Y and Y' of different images stands below the algorithm.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.gaussians import closeness
from cl_bench.nn.heads import CosineTaskHeads
from cl_bench.training.adapting import AdaptingConfig, new_adapters
from cl_bench.training.aligned_method import Aligned, AlignedConfig
from cl_bench.training.phase import Phase, half_cosine
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import through

SUMMARY = "adapters that all tasks tune on, heads aligned on Gaussians that follow the features"
FAMILY, VENUE, PASSES, KEEPS = "adapters", "CVPR 2024", 1, "one Gaussian of features per class"


class SSIATConfig(AdaptingConfig, AlignedConfig):
    """The authors' settings, the same for all their data sets; `passes` are the first task's."""

    later_passes: int = Field(10, ge=1)
    scale: float = Field(20.0, gt=0)  # s
    sigma: float = Field(4.0, gt=0)
    shift: bool = True  # whether old means move
    ridge: float = Field(1e-3, gt=0)  # added to the diagonal of every covariance
    pairs: Literal["same", "unpaired_asis"] = "same"  # of images; for what is not as meant see `AsRun`
    old_heads: Literal["restored", "carried_asis"] = "restored"


class SSIAT(Aligned):
    """The adapters, heads as they are trained and as they are aligned, and Gaussians."""

    PRESET = "ssiat"
    SMALL = {"bottleneck": 4, "dropout": 0.0, "later_passes": 5}
    compared_anew = 1  # passes for Y, and for Y' where it is not of those for the Gaussians

    def __init__(self, config: SSIATConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream, CosineTaskHeads(backbone.width, config.scale))
        self.adapters = new_adapters(backbone, config, seeds.generator(stream.init_seed, "adapters"))
        self.Y, self.effective = None, None  # features before a task; effective images of old classes

    def features(self, batch: Batch) -> Tensor:
        """f (B, D) of the network with the adapters as they are now."""
        return self.backbone.features(batch.images, self.adapters)

    def phases(self, task: TaskInfo) -> list[Phase]:
        """One, shorter in later tasks, whose rate falls to 0 as half a cosine."""
        passes = self.config.later_passes if task.index else self.config.passes
        [phase] = super().phases(task)
        return [replace(phase, passes=passes, rate=lambda done, group: half_cosine(done, passes))]

    def shifts(self, task: TaskInfo) -> bool:
        """Whether there are means that move in this task."""
        return bool(task.index and self.gaussians and self.config.shift)

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Y."""
        if self.shifts(task):
            self.Y = self.compared(task, trainer, 0)

    def describe(self, features: Tensor, labels: Tensor, task: Task, trainer: Trainer) -> None:
        """The shift of old means; Gaussians of the task's classes."""
        if self.shifts(task):
            later, old = self.compared(task, trainer, 1, features), self.gaussians.means[: task.first_label]
            v = closeness(old, self.Y, self.config.sigma)  # (K_old, n)
            old += (v @ (later - self.Y).double()).float()
            self.Y, self.effective = None, (1 / v.square().sum(dim=1)).tolist()
        super().describe(features, labels, task, trainer)

    def compared(self, task: Task, trainer: Trainer, turn: int, known: Tensor | None = None) -> Tensor:
        """Y (turn 0) or Y' (n, D), where features as at evaluation are `known` after the task."""
        return trainer.features(task, self.features, self.statistics_batch)[0] if known is None else known

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """One pass for the Gaussians, and before a task one for the shift."""
        return super().statistics_images(task, images) + images * self.shifts(task) * self.compared_anew

    def beside(self) -> float:
        """Multiply-adds of the adapters, through which every token goes."""
        return through(self.backbone.vit, self.adapters)

    def diagnostics(self) -> dict:
        """Losses of the alignment, and how many images moved the mean of each old class."""
        return {**super().diagnostics(), "effective_images": self.effective}


class AsRun(SSIAT):
    """What the published program does otherwise, each under its own option."""

    display, Config = "SSIAT", SSIATConfig
    AS_PUBLISHED = {"pairs": "unpaired_asis", "old_heads": "carried_asis", "normalisation": "unit01"}
    LEFT_DIFFERENT = (
        "the published program stops: the number of its loading workers is misspelled",
        "a class is of its own task where tasks differ in size, in the code of a wrong one",
        "the published class order is that of numpy's older generator, seeds 1993, 1996 and 1997",
    )
    carries = property(lambda self: self.config.old_heads == "carried_asis")
    unpaired = property(lambda self: self.config.pairs == "unpaired_asis")
    compared_anew = property(lambda self: 1 + self.unpaired)

    def grow(self, task: TaskInfo) -> None:
        """Carried, old heads go on from where they were aligned, and are not frozen."""
        if self.carries and task.index:
            self.head.load_state_dict(self.aligned.state_dict())
        super().grow(task)
        self.head.heads[:-1].requires_grad_(self.carries)

    def after_backward(self, task: TaskInfo) -> None:
        """Carried, old heads get gradients of zero, so that weight decay shrinks them."""
        for head in self.head.heads[:-1] if self.carries else ():
            head.weight.grad = torch.zeros_like(head.weight)

    def compared(self, task: Task, trainer: Trainer, turn: int, known: Tensor | None = None) -> Tensor:
        """Unpaired, of images that are shuffled and augmented anew each time."""
        if not self.unpaired:
            return super().compared(task, trainer, turn, known)
        order = seeds.permutation(len(task), trainer.data_seed, "shift", task.index, turn)
        own = trainer.augmented(task, self.statistics_batch, order, self.config.later_passes + turn)
        return torch.cat([self.features(batch) for batch in own])


METHOD = AsRun
