r"""OVOR: one prompt for all tasks, and a head regularized by virtual outliers of the current task.

Huang et al., "OVOR: OnePrompt with Virtual Outlier Regularization for Rehearsal-Free Class-Incremental
Learning", ICLR 2024, arXiv 2402.04129; NSP2 paper, Tables 2 and 4. OnePrompt: prefixes of the first blocks,
the same for all tasks, are tuned with the current task's head, on cross-entropy of its scores z. Then the
prompts rest, and for E_2 passes more the head alone learns from the features f of the task's images, computed
once a pass, and from outliers o made of them (R in `training/outliers.py`):
\[ L = CE(z(f), y) + \lambda R(z(f), z(o)). \]
One cosine of the learning rate and one Adam go through all passes of a task; with E_2 = 0 this is OnePrompt.

The public code's outliers are noise around zero, most of them equal, where the paper has noise around the
features farthest from their neighbors (options `outlier_*`), and its schedule is a pass late. With its pinned
torch the prompts rest as in the paper; before torch 2.0 Adam's momentum would move them on.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, optim
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.heads import HeadInit
from cl_bench.nn.prompts import SharedPrefixes
from cl_bench.training import outliers
from cl_bench.training.phase import Phase, coda_cosine
from cl_bench.training.trainer import Trainer
from cl_bench.training.tuning import EditTuning, TuningConfig
from cl_bench.training.work import Extra

ALIASES = ("ovor-deep",)
SUMMARY = "one prefix prompt for all tasks, a head regularized by virtual outliers"
FAMILY, VENUE, GROUPS, PASSES = "prompts", "ICLR 2024", ("paper",), 1


class OVORConfig(outliers.OutlierConfig, TuningConfig):
    """Settings of the public code for CIFAR-100."""

    warmup_passes: int = Field(0, ge=0)  # E_0, of the head alone, first; not in the first task
    passes: int = Field(16, ge=1)  # E_1, of prompts and head
    outlier_passes: int = Field(4, ge=0)  # E_2, of the head alone
    schedule: Literal["unlagged", "lagged"] = "unlagged"  # the cosine as meant, or (code) a pass late
    head_init: HeadInit = "uniform"
    g_layers: int = Field(2, ge=0)  # first blocks
    e_layers: int = Field(3, ge=1)  # blocks behind them
    g_length: int = Field(10, ge=2, multiple_of=2)  # of the first blocks' prompts, half keys and half values
    e_length: int = Field(40, ge=2, multiple_of=2)  # of the others'


class OVOR(EditTuning):
    """Prompts P_l (L_l, D), half keys and half values, which every task tunes on."""

    Config = OVORConfig
    display = "OVOR"
    SMALL = {
        "g_layers": 1, "e_layers": 1, "g_length": 4, "e_length": 4, "outlier_passes": 1,
        "neighbors": 3, "boundary": 4, "candidates": 6, "outliers": 3,
    }  # fmt: skip
    AS_PUBLISHED = {**outliers.AS_PUBLISHED, "schedule": "lagged", "normalisation": "unit01"}
    LEFT_DIFFERENT = (
        "class orders: the published ones come from Python's own generator, seed 0 the natural order",
        "where a task has fewer images than `neighbors` the farthest counts, which the code does not find",
    )

    def __init__(self, config: OVORConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        asked = f"g_layers={config.g_layers} and e_layers={config.e_layers}"
        backbone.require_blocks(config.g_layers + config.e_layers, asked)
        lengths = [config.g_length] * config.g_layers + [config.e_length] * config.e_layers
        generator = seeds.generator(stream.init_seed, "prompts")
        self.edits = SharedPrefixes(lengths, backbone.width, generator).to(self.device)
        self.moments, self.outlier_losses = {}, []

    def extra(self) -> Extra:
        """The prompts' keys, and distances of candidates from every image's features."""
        made = float(self.config.boundary) * self.config.candidates * self.backbone.width
        return Extra(keys=self.edits.keys(), statistics=made, working_bytes=12 * made)

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Adam begins anew."""
        self.moments = {}

    def adam(self, groups: list[dict]) -> optim.Adam:
        """Adam with the moments that the task's passes so far have left."""
        adam = super().adam(groups)
        adam.state.update(self.moments)
        self.moments = adam.state
        return adam

    def rate(self, done: int) -> float:
        """cos(99 pi e / (200 (E - 1))) after e of E = E_0 + E_1 + E_2 passes."""
        config = self.config
        passes = config.warmup_passes + config.passes + config.outlier_passes
        return coda_cosine(done, passes, config.schedule == "lagged")

    def phases(self, task: TaskInfo) -> list[Phase]:
        """E_0 passes of the head alone, from the second task on, and E_1 of prompts and head."""
        [tuned], E_0 = super().phases(task), self.config.warmup_passes if task.index else 0
        tuned = replace(tuned, rate=lambda done, group: self.rate(E_0 + done))
        return [self.of_head("warm-up", task, self.head_loss, E_0), tuned] if E_0 else [tuned]

    def of_head(self, name: str, task: TaskInfo, loss: Callable, passes: int, before: int = 0) -> Phase:
        """So many passes of the head alone, behind others of the task."""
        return Phase(
            loss=lambda batch: loss(batch, task), optimizer=lambda: self.adam([]),
            batch=self.config.batch, passes=passes, rate=lambda done, group: self.rate(before + done),
            name=name, forwards=1,
        )  # fmt: skip

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """The E_2 passes, forward alone."""
        return self.config.outlier_passes * images

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """E_2 passes of the head over features and outliers."""
        before = sum(phase.passes for phase in self.phases(task))
        phase = self.of_head("outlier", task, self.outlier_loss, self.config.outlier_passes, before)
        self.outlier_losses = trainer.fit_samples(
            task, lambda done: self.samples(task, trainer, before + done), phase
        )

    def outlier_loss(self, samples: outliers.Samples, task: TaskInfo) -> Tensor:
        """CE + lambda R."""
        z_id, z_out = self.head.current(samples.features), self.head.current(samples.outliers)
        ce = F.cross_entropy(z_id / self.config.temperature, samples.labels - task.first_label)
        return ce + self.config.outlier_weight * outliers.regularization(z_id, z_out, self.config)

    def samples(self, task: Task, trainer: Trainer, done: int) -> Iterator[outliers.Samples]:
        """Features of all images, augmented for this pass, and outliers of them, in batches."""
        config, key = self.config, (trainer.data_seed, "outliers", task.index, done)
        seen = trainer.augmented(task, config.batch, seeds.permutation(len(task), *key), done)
        f, labels = map(torch.cat, zip(*((self.features(part), part.labels) for part in seen), strict=True))
        o = outliers.virtual_outliers(f, len(task.classes), config, key)
        return outliers.in_batches(f, labels, o, config.batch)

    def diagnostics(self) -> dict:
        """Mean losses of the E_2 passes."""
        return {"outlier_losses": self.outlier_losses}


METHOD = OVOR
