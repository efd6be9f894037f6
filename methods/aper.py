r"""Aper: class means of frozen features beside those of a network that the first task adapted.

Zhou, Cai, Ye, Zhan & Liu, "Revisiting Class-Incremental Learning with Pre-Trained Models: Generalizability
and Adaptivity Are All You Need", IJCV 2024, arXiv 2303.07338, which first called it ADAM. In the first task
alone something in the network is trained, by cross-entropy of \( \sigma \cos(f_a(x), w_k) \) over the task's
classes, and frozen; w and sigma are not used again. Every task takes the class means of both networks'
features as one vector, which predict by its cosine:
\[ \phi(x) = [f(x); f_a(x)], \qquad P_k = \frac{1}{n_k} \sum_{y_i = k} \phi(x_i), \qquad \hat y = \arg\max_k
\cos(\phi(x), P_k). \]
f are features of the pre-trained network. What adapts in f_a is chosen by `adapt`: adapters beside the MLPs
(AdaptFormer), prompts that every block replaces (VPT-deep) or that enter the first one and stay
(VPT-shallow), scales and shifts behind all linear maps and norms (SSF), or a whole copy of the network.

The public code starts prompts at zero. All of a block then have the same gradient and stay one prompt,
attended to M times; the default starts them as VPT does (`prompt_init`).
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone, EditedBackbone, require_class_token
from cl_bench.nn.edits import NONE, Edits
from cl_bench.nn.heads import CosineHeads
from cl_bench.nn.prompts import DeepPrompts, ShallowPrompts
from cl_bench.nn.prototypes import Prototypes
from cl_bench.nn.scale_shift import ScalesShifts
from cl_bench.training.adapting import AdaptingConfig, adapting, new_adapters
from cl_bench.training.method import Method
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, through

SUMMARY = "nearest class mean of features, frozen and adapted in the first task"
FAMILY, VENUE, PASSES = "prototypes", "IJCV 2024", 2
KEEPS = "the mean of features per class"
BATCH = 100  # images of a statistics batch


class AperConfig(AdaptingConfig):
    """The public code's settings for CIFAR-100, but for full fine-tuning; those of adapters are its own."""

    adapt: Literal["adapter", "vpt-deep", "vpt-shallow", "ssf", "finetune"] = "adapter"
    prompts: int = Field(5, ge=1)  # M, of VPT; for each block where it is deep
    # U(-b, b) with b^2 = 6 / (inputs of the patches' projection + D), or 0 (published)
    prompt_init: Literal["xavier", "zero"] = "xavier"


class Aper(Method):
    """What adapts (`edits`, or all of `copied`), the first task's head, and sums for the means (K, 2 D)."""

    Config = AperConfig
    PRESET = "nsp2-paper"
    display = "Aper"
    SMALL = {"bottleneck": 4, "dropout": 0.0}
    queries, settled_passes = True, 2  # f(x); both networks are those of the first task
    current_task_loss = True
    keeps = KEEPS
    AS_PUBLISHED = {"prompt_init": "zero", "normalisation": "unit01"}
    LEFT_DIFFERENT = ("the published class order is that of numpy's older generator, seed 1993",)

    def __init__(self, config: AperConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        self.copied = backbone.trainable_copy() if config.adapt == "finetune" else None
        self.edits = new_edits(backbone, config, seeds.generator(stream.init_seed, "adapters"))
        self.settled = EditedBackbone(self.adapted, self.edits, on_disk=not self.copied)
        self.head = CosineHeads(backbone.width, self.device)
        self.prototypes = Prototypes(2 * backbone.width, self.device)

    @property
    def adapted(self) -> Backbone:
        """The network of f_a, without its edits."""
        return self.copied or self.backbone

    def grow(self, task: TaskInfo) -> None:
        """Make room for the task's classes; what adapts and its head are trained in the first task alone."""
        self.prototypes.grow(len(task.classes))
        if task.index == 0:
            self.head.grow(len(task.classes), seeds.generator(self.stream.init_seed, "head"))
        self.requires_grad_(task.index == 0)
        self.backbone.requires_grad_(False)

    def phases(self, task: TaskInfo) -> list[Phase]:
        """Adapting, in the first task."""
        if task.index:
            return []
        phase = adapting(self.adapted, self.edits, self.head, self.config, task)
        return [replace(phase, forwards=3 if self.copied else 2)]

    def phi(self, batch: Batch) -> Tensor:
        """[f(x); f_a(x)] (B, 2 D)."""
        return torch.cat([batch.frozen_features(network) for network in (self.backbone, self.settled)], dim=1)

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """The sums over the task's images, of its own classes alone."""
        for batch in trainer.plain(task, BATCH, shared=True, networks=2):
            self.prototypes.add(self.phi(batch), batch.labels)
        of_all = (self.prototypes.sums, self.prototypes.counts)
        trainer.group.all_reduce_sum([values[task.first_label :] for values in of_all])

    def predict(self, batch: Batch) -> Tensor:
        """cos(phi, P_k), (B, K_seen)."""
        return self.prototypes(self.phi(batch))

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """Each image once in both networks."""
        return 2 * images

    def extra(self) -> Extra:
        """What the edits add to a pass; of scales and shifts each pair is one multiply-add."""
        M, D, L = self.config.prompts, self.backbone.width, self.backbone.depth
        match self.config.adapt:
            case "vpt-deep":
                return Extra(keys=dict.fromkeys(range(L), M), step=2.0 * L * M * D * D)
            case "vpt-shallow":
                return Extra(tokens={0: M})
            case "finetune":  # gradient and momentum of float32, in the first task
                return Extra(working_bytes=8.0 * sum(value.numel() for value in self.copied.parameters()))
        added = through(self.backbone.vit, self.edits)
        return Extra(image=added / 2 if self.config.adapt == "ssf" else added)


def new_edits(backbone: Backbone, config: AperConfig, generator: torch.Generator) -> Edits:
    """What is trained inside the frozen blocks; nothing where the network's copy is."""
    match config.adapt:
        case "finetune":
            return NONE
        case "adapter":
            return new_adapters(backbone, config, generator)
        case "ssf":
            return ScalesShifts(backbone.vit, generator).to(next(backbone.parameters()).device)
        case "vpt-deep":
            edits = DeepPrompts(backbone.depth, config.prompts, backbone.width, generator)
        case "vpt-shallow":
            require_class_token(backbone, "Aper with adapt=vpt-shallow")
            edits = ShallowPrompts(config.prompts, backbone.width, generator)
    inputs = backbone.vit.patch_embed.proj.weight[0].numel()
    with torch.no_grad():
        edits.P *= (6 / (inputs + backbone.width)) ** 0.5 if config.prompt_init == "xavier" else 0.0
    return edits.to(next(backbone.parameters()).device)


METHOD = Aper
