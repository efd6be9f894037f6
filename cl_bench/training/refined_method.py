"""Methods whose heads learn task by task over a temperature, and are then refined on draws of all classes."""

import copy
from abc import abstractmethod
from collections.abc import Callable

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.gaussians import ClassGaussians
from cl_bench.nn.heads import TaskHeads
from cl_bench.training.alignment import AlignmentConfig, align
from cl_bench.training.gradient_method import GradientMethod
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, with_refinement

KEEPS = "one Gaussian of features per class"


class RefinedConfig(AlignmentConfig):
    """Settings of ARCL-ViT's public code."""

    temperature: float = Field(30.0, gt=0)  # tau, of training and refinement
    refine_passes: int = Field(20, ge=1)
    refine_samples: int = Field(128, ge=1)
    refine_batch: int = Field(128, ge=1)


class Refined(GradientMethod):
    """Heads as they are trained, and a copy of them that is refined after every task and predicts.

    The next task goes on from the heads as they were trained. Subclasses say what the features are.
    """

    current_task_loss = True
    statistics_batch = 100

    def __init__(self, config: RefinedConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        self.head, self.refined = TaskHeads(backbone.width), TaskHeads(backbone.width)
        self.gaussians = ClassGaussians(backbone.width, config.refine_ridge, self.device)
        self.refine_losses: list[float] = []  # first and last

    @property
    def keeps(self) -> str:
        """The Gaussians."""
        return KEEPS

    @abstractmethod
    def features(self, batch: Batch) -> Tensor:
        """Features (B, D) of the network as it is now."""

    def grow(self, task: TaskInfo) -> None:
        """Add a head, the first from N(0, 0.02^2), and room for its classes' Gaussians."""
        generator = seeds.generator(self.stream.init_seed, "head", task.index)
        self.head.grow(len(task.classes), generator, "normal" if task.index == 0 else "uniform", self.device)
        self.refined = copy.deepcopy(self.head).requires_grad_(False)
        self.gaussians.grow(len(task.classes))

    def head_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """CE(z / tau, y) over the task's own classes."""
        z = self.head.current(features)
        return F.cross_entropy(z / self.config.temperature, batch.labels - task.first_label)

    def refine(self, task: Task, trainer: Trainer, described: Callable[[Batch], Tensor]) -> None:
        """Gaussians of what a plain pass over the task describes (B, D); the copy learns from all."""
        self.gaussians.describe(*trainer.features(task, described, self.statistics_batch))
        self.refined.load_state_dict(self.head.state_dict())

        def loss(batch: Batch) -> Tensor:
            return F.cross_entropy(self.refined(batch.images) / self.config.temperature, batch.labels)

        config, seed = self.config, self.stream.init_seed
        losses = align(self.refined, loss, self.gaussians, config, task, trainer, seed, config.refine_batch)
        self.refine_losses = losses[:: max(1, len(losses) - 1)]

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """One pass for the Gaussians."""
        return images

    def extra(self) -> Extra:
        """The refinement, on features drawn for every class."""
        config, classes = self.config, sum(head.out_features for head in self.head.heads)
        sizes = (classes, self.backbone.width, config.refine_passes, config.refine_samples * classes)
        return with_refinement(Extra(), *sizes)

    def diagnostics(self) -> dict:
        """The first and the last loss of the refinement."""
        return {"refine_losses": self.refine_losses}

    def predict(self, batch: Batch) -> Tensor:
        """Scores of the refined heads, (B, K_seen)."""
        return self.refined(self.features(batch))
