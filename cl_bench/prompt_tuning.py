"""VPT-deep with one linear head per task, the common body of the VPT methods.

Cross-entropy of the current head's scores over a temperature, Adam with coupled weight decay, prompts carried from task to task; at
prediction the scores of all heads stand side by side. NSP2 paper, appendix "Implementation details".
"""

from abc import abstractmethod
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, optim
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.backbone import Backbone
from cl_bench.batch import Batch
from cl_bench.config import Strict
from cl_bench.errors import InputError
from cl_bench.method import GradientMethod
from cl_bench.nn.heads import TaskHeads
from cl_bench.nn.prompts import DeepPrompts
from cl_bench.nn.statistics import AttentionMoments
from cl_bench.stream import StreamInfo, Task, TaskInfo
from cl_bench.trainer import Trainer
from cl_bench.work import Extra


class PromptTuningConfig(Strict):
    """Settings of every VPT method; the defaults are those of 10-split CIFAR-100 in the NSP2 paper (appendix B) and its published code."""

    prompts: int = Field(4, ge=1)  # M, prompts per block
    layers: int | None = Field(None, ge=1)  # first blocks that get prompts; None: all
    temperature: float = Field(28.0, gt=0)  # tau
    learning_rate: float = Field(0.01, gt=0)
    weight_decay: float = Field(5e-5, ge=0)  # coupled: added to the gradient
    batch: int = Field(256, ge=1)
    passes: int = Field(100, ge=1)
    lr_milestones: Literal["code", "paper"] = "code"  # x0.1 after 40 and 70 % of the passes (published code) or 50 and 80 % (paper)
    epoch_mode: Literal["repeat10", "plain"] = "repeat10"  # ten passes shuffled together (published code) or each by itself
    head_init: Literal["published", "fresh"] = "published"  # see TaskHeads.grow


class Prompted(GradientMethod):
    """Prompts in the first blocks of a frozen ViT, a new Adam for every task; subclasses say what the scores are and what is trained besides."""

    PRESET = "nsp2-paper"
    current_task_loss = True
    statistics_batch = 100

    def __init__(self, config: Strict, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        layers = backbone.depth if config.layers is None else config.layers
        if layers > backbone.depth:
            raise InputError(f"layers={layers}, but backbone {backbone.spec.name!r} has {backbone.depth} blocks")
        self.prompts = DeepPrompts(layers, config.prompts, backbone.width, seeds.generator(stream.init_seed, "prompts")).to(self.device)

    @property
    def P(self) -> torch.nn.Parameter:
        """The prompts of all prompted blocks, (L, M, D)."""
        return self.prompts.P

    def extra(self) -> Extra:
        """M keys for every block with prompts, projected once a step."""
        layers, M, D = self.P.shape
        return Extra(keys=dict.fromkeys(range(layers), M), step=2.0 * layers * M * D * D)

    @abstractmethod
    def trained_parameters(self) -> list:
        """The prompts and what else is trained, as parameters or parameter groups."""

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """A new Adam for all that is trained."""
        return optim.Adam(self.trained_parameters(), **self.adam_settings())

    def adam_settings(self) -> dict:
        """Learning rate and coupled weight decay; betas 0.9 and 0.999, eps 1e-8 are torch's own."""
        return {"lr": self.config.learning_rate, "weight_decay": self.config.weight_decay, "fused": self.device.type == "cuda"}

    def rate(self, done: int) -> float:
        """A tenth after 0.4 and again after 0.7 (or 0.5 and 0.8) of the passes."""
        milestones = (0.4, 0.7) if self.config.lr_milestones == "code" else (0.5, 0.8)
        return 0.1 ** sum(done >= milestone * self.config.passes - 1e-9 for milestone in milestones)


class PromptTuning(Prompted):
    """Sequential prompt tuning; subclasses change what happens to the prompts' gradient or update."""

    Config = PromptTuningConfig

    def __init__(self, config: PromptTuningConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        self.head = TaskHeads(backbone.width)

    def grow(self, task: TaskInfo) -> None:
        """Add the task's head."""
        generator = seeds.generator(self.stream.init_seed, "head", task.index)
        init = "warm" if self.config.head_init == "published" else "uniform"
        self.head.grow(len(task.classes), generator, init, self.device)

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE(z / tau, y) over the classes of the current task."""
        z = self.head.current(self.backbone.features(batch.images, self.prompts))  # (B, c_t)
        return F.cross_entropy(z / self.config.temperature, batch.labels - task.first_label)

    def trained_parameters(self) -> list[torch.nn.Parameter]:
        """The prompts, then weight and bias of the current head."""
        return [self.P, *self.head.heads[-1].parameters()]

    def repeats(self) -> int:
        """10 or 1."""
        return 10 if self.config.epoch_mode == "repeat10" else 1

    @property
    def statistics_name(self) -> str | None:
        """The moments of attention."""
        return "attention-moments"

    def visit(self, task: Task, trainer: Trainer, moments: AttentionMoments | None) -> None:
        """One plain pass over the task's images after training, for the moments of its attention; nothing without them."""
        if moments is None:
            return

        def observe() -> dict[str, Tensor]:
            shared = not moments.batch_means  # processes cut their shares into batches of their own
            for batch in trainer.plain(task, self.statistics_batch, shared=shared):
                self.backbone.features(batch.images, moments.observing(self.prompts))
            sums = moments.sums()
            if shared:
                trainer.world.add(sums.values())
            return sums

        moments.take(trainer.once(self.statistics_name, observe))

    def predict(self, batch: Batch) -> Tensor:
        """Scores of all heads, (B, K_seen)."""
        return self.head(self.backbone.features(batch.images, self.prompts))
