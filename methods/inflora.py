r"""InfLoRA: low-rank updates of keys and values, along directions that old tasks' inputs do not have.

Liang & Li, "InfLoRA: Interference-Free Low-Rank Adaptation for Continual Learning", CVPR 2024, arXiv
2404.00228. Task t adds to the key and value maps of every block
\[ W_t = W_{t-1} + B_t A_t, \]
B_t trained from 0, A_t (r x D) fixed before (the paper writes A_t B_t). With H the second moments of the
normalized tokens that enter a block's attention in the task, and M a basis of what old tasks span,
\[ A_t = U_r^T / \sqrt 3, \qquad U_r = r \text{ leading eigenvectors of } (I - M M^T) H (I - M M^T), \]
so that W_t h = W_{t-1} h for h in M. After the task M grows, by DualGPM, by the fewest directions with which
the part \[ \epsilon_t = \epsilon + (\epsilon_T - \epsilon) (t - 1) / T \] of the task's energy is inside.
The root of 3 is the public code's. Its moments, of images augmented as in training, are thresholded as if
they were inputs (far fewer directions reach \epsilon): this and other slips stand below the algorithm.
"""

import math
from typing import Literal

from pydantic import Field
from torch import Tensor

from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.errors import InputError, RunFailed
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.dual_gpm import DualGPM
from cl_bench.nn.heads import HeadInit
from cl_bench.nn.lora import SuccessiveLoRA
from cl_bench.nn.statistics import TokenMoments
from cl_bench.training.phase import coda_cosine
from cl_bench.training.trainer import Trainer
from cl_bench.training.tuning import EditTuning, TuningConfig
from cl_bench.training.work import Extra, of_successive_lora

SUMMARY = "low-rank updates outside the span of old tasks' inputs"
FAMILY, VENUE, GROUPS, PASSES = "LoRA", "CVPR 2024", ("paper",), 1


class FirstTaskConfig(TuningConfig):
    """What decides the first task: settings of the public code for CIFAR-100."""

    learning_rate: float = Field(5e-4, gt=0)
    schedule: Literal["cosine", "lagged_asis"] = "cosine"  # as meant, or (public code) a pass behind
    head_init: HeadInit = "uniform"
    rank: int = Field(10, ge=1)  # r
    layers: int | None = Field(None, ge=1)  # first blocks; None: all
    gpm_energy: Literal["sigma2", "sigma4_asis"] = "sigma2"  # powers of the inputs' singular values


class InfLoRAConfig(FirstTaskConfig):
    """Thresholds of the public code for CIFAR-100."""

    energy: float = Field(0.95, ge=0, le=1)  # epsilon
    last_energy: float = Field(1.0, ge=0, le=1)  # epsilon_T
    gpm_rank_rule: Literal["geq", "lt_asis"] = "geq"  # lt_asis: less than epsilon after the first task
    gpm_first: Literal["any", "half_asis"] = "any"  # half_asis: a first task that needs half of all fails
    gpm_surplus: Literal["none", "inside_asis"] = "none"  # inside_asis: always r directions, if need be of M


class InfLoRA(EditTuning):
    """W (L, 2 D, D), A (L, r, D), B (L, 2 D, r) of L blocks, M, and a head a task."""

    SMALL = {"rank": 3}
    statistics_batch = 100
    inside = below = False  # see `AsRun`

    def __init__(self, config: InfLoRAConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        D, layers = backbone.width, backbone.first_blocks(config.layers)
        if config.rank > D:
            raise InputError(f"rank={config.rank}, but tokens have {D} directions; give at most {D}")
        if config.last_energy < config.energy:
            falls = f"last_energy={config.last_energy} is below energy={config.energy}"
            raise InputError(f"{falls}, but what is protected only grows; give at least as much")
        self.edits = SuccessiveLoRA(backbone.vit.blocks[:layers], config.rank)
        self.memory = DualGPM(layers, D, self.device)

    def grow(self, task: TaskInfo) -> None:
        """W <- W + B A, B <- 0, and a head."""
        super().grow(task)
        self.edits.merge()

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """A: where the task's inputs have most energy outside M; zero where fewer than r are left."""
        H = self.moments(task, trainer, self.config.passes)
        self.edits.A.copy_(self.memory.leading(H, self.config.rank, self.inside) / math.sqrt(3))

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """M: until the part epsilon_t of the task's energy is inside; not after the last task."""
        if not self.is_last(task):
            rise = (self.config.last_energy - self.config.energy) * task.index / self.stream.num_tasks
            H = self.moments(task, trainer, self.config.passes + 1)
            self.memory.grow(H, self.config.energy + rise, self.below and task.index == 0)

    def moments(self, task: Task, trainer: Trainer, pass_index: int) -> Tensor:
        """H (L, D, D): means of h h^T over all tokens h of images augmented as in no pass of training."""
        found = TokenMoments(self.edits.A, normalized=True)
        for batch in trainer.augmented(task, self.statistics_batch, None, pass_index, shared=True):
            self.backbone.features(batch.images, found.observing(self.edits))
        return found.means(trainer.group.all_reduce_sum)

    def rate(self, done: int) -> float:
        """A quarter of a cosine over the passes."""
        return coda_cosine(done, self.config.passes, lagged=self.config.schedule == "lagged_asis")

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """A pass before training, and one after it where a task follows."""
        return images if self.is_last(task) else 2 * images

    def extra(self) -> Extra:
        """The update of keys and values, moments, and their decompositions."""
        return of_successive_lora(self.edits.A, self.backbone.vit)

    def diagnostics(self) -> dict:
        """How many directions M holds of every block."""
        return {"protected": self.memory.ranks()}


class AsRun(InfLoRA):
    """What the published program does otherwise, each under its own option."""

    display, Config, TRUNK = "InfLoRA", InfLoRAConfig, FirstTaskConfig
    AS_PUBLISHED = {
        "gpm_energy": "sigma4_asis", "gpm_rank_rule": "lt_asis", "gpm_first": "half_asis",
        "gpm_surplus": "inside_asis", "schedule": "lagged_asis", "normalisation": "unit01",
    }  # fmt: skip
    LEFT_DIFFERENT = (
        "the published class order is the natural one (--order natural)",
        "directions of old tasks that fill up to the rank are their first, the code's are arbitrary",
        "Adam trains on DomainNet too, where the code has SGD and a larger rate of heads",
    )
    inside = property(lambda self: self.config.gpm_surplus == "inside_asis")
    below = property(lambda self: self.config.gpm_rank_rule == "lt_asis")

    def moments(self, task: Task, trainer: Trainer, pass_index: int) -> Tensor:
        """H^2 with sigma4_asis, to which the singular vectors and squared singular values of H belong."""
        H = super().moments(task, trainer, pass_index)
        return H @ H if self.config.gpm_energy == "sigma4_asis" else H

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """With half_asis the first task's M is taken for its complement where it is half of all."""
        super().end_task(task, trainer)
        if task.index == 0 and self.config.gpm_first == "half_asis":
            most, half = max(self.memory.ranks()), self.backbone.width / 2
            if most > half:
                stops = f"the published program stops: task 1 needs {most} directions of a block"
                raise RunFailed(f"{stops}, more than {half:g}, the half; give gpm_first=any")
            self.memory.complement |= self.memory.rank == half


METHOD = AsRun
