"""VPT-Seq: prompts of VPT-deep and one linear head per task, with nothing against forgetting.

The baseline of NSP2 (Lu et al., "Visual Prompt Tuning in Null Space for Continual Learning", NeurIPS 2024,
arXiv 2406.05658), Tables 1 and 3 to 5, appendix "Implementation details", and the body of the methods that
act on its prompts. Cross-entropy of the current head's scores over a temperature, Adam with coupled weight
decay, prompts carried from task to task; at prediction the scores of all heads stand side by side. As
published: decay after 40 and 70 % of the passes where the paper says 50 and 80 % (`lr_milestones`), ten
passes shuffled together (`epoch_mode`), the second head started from the first (`head_init`).
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.edits import Edits
from cl_bench.nn.heads import TaskHeads
from cl_bench.nn.statistics import AttentionMoments
from cl_bench.training.prompt_method import Prompted
from cl_bench.training.schedules import Mixing, Schedule
from cl_bench.training.trainer import Trainer

ALIASES = ("seq",)
SUMMARY = "sequential prompt tuning, the baseline"
FAMILY, VENUE, PASSES = "prompts", "", 1


class PromptTuningConfig(Strict):
    """Settings of every VPT method: 10-split CIFAR-100, NSP2 paper (appendix B) and its published code."""

    prompts: int = Field(4, ge=1)  # M, prompts per block
    layers: int | None = Field(None, ge=1)  # first blocks that get prompts; None: all
    temperature: float = Field(28.0, gt=0)  # tau
    learning_rate: float = Field(0.01, gt=0)
    weight_decay: float = Field(5e-5, ge=0)  # coupled: added to the gradient
    batch: int = Field(256, ge=1)
    passes: int = Field(100, ge=1)
    # x0.1 after 40 and 70 % of the passes (code), 50 and 80 % (paper), or where numbers say; constant; cosine
    lr_milestones: Schedule = "code"
    epoch_mode: Mixing = "repeat10"  # ten passes shuffled together (code), or one alone (plain)
    head_init: Literal["published", "fresh"] = "published"  # see TaskHeads.grow


class VPTSeq(Prompted):
    """Sequential prompt tuning; subclasses change what happens to the prompts' gradient or update."""

    Config = PromptTuningConfig
    display = "VPT-Seq"
    TRUNK = PromptTuningConfig

    def __init__(self, config: PromptTuningConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        self.head = TaskHeads(backbone.width)

    def grow(self, task: TaskInfo) -> None:
        """Add the task's head."""
        generator = seeds.generator(self.stream.init_seed, "head", task.index)
        init = "warm" if self.config.head_init == "published" else "uniform"
        self.head.grow(len(task.classes), generator, init, self.device)

    def loss(self, batch: Batch, task: TaskInfo, edits: Edits | None = None) -> Tensor:
        """CE(z / tau, y) over the classes of the current task, under the prompts or other edits."""
        z = self.head.current(self.backbone.features(batch.images, edits or self.prompts))  # (B, c_t)
        return F.cross_entropy(z / self.config.temperature, batch.labels - task.first_label)

    def trained_parameters(self) -> list[torch.nn.Parameter]:
        """The prompts, then weight and bias of the current head."""
        return [self.P, *self.head.heads[-1].parameters()]

    @property
    def statistics_name(self) -> str | None:
        """The moments of attention."""
        return "attention-moments"

    def visit(self, task: Task, trainer: Trainer, moments: AttentionMoments | None) -> None:
        """One plain pass over the task's images after training, for moments of attention; nothing without."""
        if moments is None:
            return

        def observe() -> dict[str, Tensor]:
            shared = not moments.batch_means  # processes cut their shares into batches of their own
            for batch in trainer.plain(task, self.statistics_batch, shared=shared):
                self.backbone.features(batch.images, moments.observing(self.prompts))
            sums = moments.sums()
            if shared:
                trainer.group.all_reduce_sum(sums.values())
            return sums

        moments.take(trainer.once(self.statistics_name, observe))

    def predict(self, batch: Batch) -> Tensor:
        """Scores of all heads, (B, K_seen)."""
        return self.head(self.backbone.features(batch.images, self.prompts))


class LaterRateConfig(Strict):
    """Control of methods that make later updates smaller: smaller steps, whatever their direction."""

    ADDED: ClassVar = frozenset({"later_lr", "later_lr_of"})
    later_lr: float = Field(1.0, gt=0)  # factor on the learning rate from the second task on
    later_lr_of: Literal["prompts", "all"] = "prompts"  # whose: the prompts', or the current head's too


class LaterRate:
    """Mixed in before a VPT method: a learning rate of its own from the second task on."""

    def trained_parameters(self) -> list:
        """The prompts, then the current head, each with its learning rate."""
        prompts, *head = super().trained_parameters()
        usual, later = self.config.learning_rate, self.config.learning_rate * self.config.later_lr
        if len(self.head.heads) == 1 or later == usual:
            return [prompts, *head]
        rates = (later, later if self.config.later_lr_of == "all" else usual)
        return [{"params": each, "lr": rate} for each, rate in zip(([prompts], head), rates, strict=True)]


class SequentialConfig(LaterRateConfig, PromptTuningConfig):
    """Settings of VPT-Seq."""


class SequentialVPT(LaterRate, VPTSeq):
    """VPT-Seq as a method: the body above, with a learning rate of its own from the second task on."""

    Config = SequentialConfig
    TRUNK = PromptTuningConfig


METHOD = SequentialVPT
