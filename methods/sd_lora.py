r"""SD-LoRA: a low-rank update of each task, whose direction is kept and whose magnitude learns on.

Wu et al., "SD-LoRA: Scalable Decoupled Low-Rank Adaptation for Class Incremental Learning", ICLR 2025, arXiv
2501.13198. Task t adds a pair A_t (r x D) and B_t (D x r), B_t = 0 at first, to the query and value maps of
every block:
\[ W x + \sum_{i<t} \alpha_i \frac{B_i A_i}{\|B_i\|_F \|A_i\|_F} x + \alpha_t B_t A_t x. \]
It trains its own pair, the magnitudes alpha of all, which blocks and maps share, and its head, by
cross-entropy over its own classes. Of old tasks nothing is kept but this; for predictions all pairs are added
to W. SD-LoRA-RR (`middle_rank`, `last_rank`) has smaller pairs from the fifth and from the ninth task on.

The paper normalizes the newest pair too, but at B_t = 0 it has no direction. As in the public code it is
normalized once the next task begins: there its size changes from the one learned to alpha_t. That the code
forgets what magnitudes have learned is below the algorithm. SD-LoRA-KD, which leaves out pairs that old ones
can stand for, is in no public code of the authors, and not here.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, optim

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.heads import HeadInit
from cl_bench.nn.lora import DecoupledLoRA, InWeights
from cl_bench.training.tuning import EditTuning, TuningConfig
from cl_bench.training.work import Extra, tokens

SUMMARY = "a low-rank update of each task, whose direction is kept and whose magnitude learns on"
FAMILY, VENUE, PASSES = "LoRA", "ICLR 2025", 1


class FirstTaskConfig(TuningConfig):
    """What decides the first task: settings of the public code for CIFAR-100."""

    learning_rate: float = Field(0.008, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    schedule: Literal["constant", "milestone"] = "constant"
    milestone: float = Field(0.4, gt=0, le=1)  # share of the passes after which the rate falls
    milestone_decay: float = Field(0.1, gt=0, le=1)  # to this part
    head_init: HeadInit = "kaiming"
    rank: int = Field(10, ge=1)  # r
    magnitude: float = Field(0.8, gt=0)  # with which every alpha starts


class SDLoRAConfig(FirstTaskConfig):
    """What later tasks need besides."""

    middle_rank: int | None = Field(None, ge=1)  # r of the fifth to eighth task (RR: 8); None: the same
    last_rank: int | None = Field(None, ge=1)  # r of later ones (RR: 6); None: the same as before
    old_magnitudes: Literal["learned", "restart_asis"] = "learned"  # as they are, or (code) as they started


class SDLoRA(EditTuning):
    """Directions (L, 2, R, D) and (L, 2, D, R) of old pairs, A_t, B_t, alpha (t,), and a head a task."""

    PRESET = "sd_lora"
    SMALL = {"rank": 3}

    def __init__(self, config: SDLoRAConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        largest, D = max(map(self.rank, range(stream.num_tasks))), backbone.width
        if largest > D:
            raise InputError(f"a rank of {largest}, but tokens have {D} directions; give at most {D}")
        self.edits = DecoupledLoRA(backbone.depth, D, "qv").to(self.device)

    def rank(self, index: int) -> int:
        """r of a task."""
        middle = self.config.middle_rank or self.config.rank
        return (self.config.rank, middle, self.config.last_rank or middle)[min(2, index // 4)]

    def grow(self, task: TaskInfo) -> None:
        """Normalize the pair before; add a pair with its magnitude, and a head."""
        super().grow(task)
        generator = seeds.generator(self.stream.init_seed, "lora", task.index)
        self.edits.grow(self.rank(task.index), self.magnitudes(task), generator)

    def magnitudes(self, task: TaskInfo) -> Tensor:
        """alpha (t,) with which a task starts."""
        learned = self.edits.alpha.detach()
        return torch.cat([learned, learned.new_full((1,), self.config.magnitude)])

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """A new SGD at one rate for A_t, B_t, alpha and the newest head."""
        config = self.config
        settings = {"momentum": config.momentum, "weight_decay": config.weight_decay}
        return optim.SGD(self.trained().values(), config.learning_rate, **settings)

    def predict(self, batch: Batch) -> Tensor:
        """Scores of all heads (B, K_seen), with all pairs added to W."""
        return self.head(self.backbone.features(batch.images, InWeights(self.edits)))

    def rate(self, done: int) -> float:
        """1, or a part of it from the milestone on."""
        falls = (
            self.config.schedule == "milestone" and done >= self.config.milestone * self.config.passes - 1e-9
        )
        return self.config.milestone_decay if falls else 1.0

    def extra(self) -> Extra:
        """All pairs beside each token while training; when predicting they are in W."""
        beside = tokens(self.backbone.vit) * self.edits.products()
        return Extra(step=2 * self.config.batch * beside)


class AsRun(SDLoRA):
    """What the published program does otherwise, each under its own option."""

    display, Config, TRUNK = "SD-LoRA", SDLoRAConfig, FirstTaskConfig
    AS_PUBLISHED = {"old_magnitudes": "restart_asis", "normalisation": "unit01"}
    LEFT_DIFFERENT = (
        "more than 21 tasks can be learned, at which the code stops, and no pairs of an earlier run are read",
        "the published class orders are those of PILOT's family, seeds 1993 and 1995 (--order pilot:1993)",
    )

    def magnitudes(self, task: TaskInfo) -> Tensor:
        """With restart_asis those of old pairs too start anew."""
        found = super().magnitudes(task)
        restart = self.config.old_magnitudes == "restart_asis"
        return torch.full_like(found, self.config.magnitude) if restart else found


METHOD = AsRun
