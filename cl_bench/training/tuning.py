"""Sequential fine-tuning: something inside the network and a linear head per task, on its own classes.

Cross-entropy of the current head's scores over a temperature, Adam with coupled weight decay, new for every
task; at prediction the scores of all heads stand side by side. Nothing acts against forgetting: these are the
baselines that every method has to beat, and, with all classes as one task, the bounds that none should reach.
"""

from abc import abstractmethod
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn, optim
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.heads import HeadInit, TaskHeads
from cl_bench.training.gradient_method import GradientMethod
from cl_bench.training.phase import half_cosine
from cl_bench.training.work import Extra, through


class TuningConfig(Strict):
    """Settings of sequential fine-tuning; no paper states them."""

    temperature: float = Field(1.0, gt=0)  # tau
    learning_rate: float = Field(0.001, gt=0)
    weight_decay: float = Field(0.0, ge=0)  # coupled: added to the gradient
    batch: int = Field(128, ge=1)
    passes: int = Field(20, ge=1)
    schedule: Literal["cosine", "constant"] = "cosine"  # the rate falls to 0 as half a cosine, or stays
    head_init: HeadInit = "normal"


class Tuning(GradientMethod):
    """Subclasses say what is trained besides the heads, and what features an image then has."""

    PRESET = "nsp2-paper"
    current_task_loss = True

    def __init__(self, config: TuningConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        self.head = TaskHeads(backbone.width)

    @abstractmethod
    def features(self, batch: Batch) -> Tensor:
        """Features (B, D) of the network as it is now."""

    @abstractmethod
    def trained_groups(self) -> list[dict]:
        """Parameter groups of what is trained besides the head."""

    def grow(self, task: TaskInfo) -> None:
        """Add the task's head."""
        generator = seeds.generator(self.stream.init_seed, "head", task.index)
        self.head.grow(len(task.classes), generator, self.config.head_init, self.device)

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE of the scores of images as the network is now."""
        return self.cross_entropy(self.features(batch), batch, task)

    def head_loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """The same loss, of which the head alone gets a gradient."""
        with torch.no_grad():
            features = self.features(batch)
        return self.cross_entropy(features, batch, task)

    def cross_entropy(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """CE(z / tau, y) over the classes of the current task, z of features (B, D)."""
        z = self.head.current(features)  # (B, c_t)
        return F.cross_entropy(z / self.config.temperature, batch.labels - task.first_label)

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """A new Adam for all that is trained."""
        return self.adam(self.trained_groups())

    def adam(self, groups: list[dict]) -> optim.Optimizer:
        """A new Adam for parameter groups and the newest head."""
        groups = [*groups, {"params": [*self.head.heads[-1].parameters()]}]
        settings = {
            "lr": self.config.learning_rate,
            "weight_decay": self.config.weight_decay,
            "fused": self.device.type == "cuda",
        }
        return optim.Adam(groups, **settings)

    def rate(self, done: int) -> float:
        """Half a cosine, or 1 throughout."""
        return 1.0 if self.config.schedule == "constant" else half_cosine(done, self.config.passes)

    def predict(self, batch: Batch) -> Tensor:
        """Scores of all heads, (B, K_seen)."""
        return self.head(self.features(batch))


class EditTuning(Tuning):
    """What is trained are edits of the frozen network."""

    edits: nn.Module

    def features(self, batch: Batch) -> Tensor:
        """Features of the frozen network under the edits."""
        return self.backbone.features(batch.images, self.edits)

    def extra(self) -> Extra:
        """The edits, through which every token goes."""
        return Extra(image=through(self.backbone.vit, self.edits))

    def trained_groups(self) -> list[dict]:
        """The edits' parameters, at the rate of the head."""
        return [{"params": [*self.edits.parameters()]}]
