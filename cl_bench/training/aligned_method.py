"""Methods whose heads learn task by task, and are then aligned on draws from Gaussians of all classes."""

import copy
from abc import abstractmethod

import torch
from pydantic import Field
from torch import Tensor, optim
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.gaussians import ClassGaussians
from cl_bench.nn.heads import TaskHeads
from cl_bench.training.alignment import HeadAlignmentConfig, align_heads, around_smaller_means
from cl_bench.training.gradient_method import GradientMethod
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, with_refinement

KEEPS = "one Gaussian of features per class"


class AlignedConfig(HeadAlignmentConfig):
    """Settings of SLCA's public code for CIFAR-100."""

    learning_rate: float = Field(0.01, gt=0)  # of the newest head
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(5e-4, ge=0)  # of all that is trained, in the alignment too
    batch: int = Field(128, ge=1)
    passes: int = Field(20, ge=1)


class Aligned(GradientMethod):
    """Heads as they are trained, and a copy of them that is aligned after every task but the first.

    The copy predicts; the next task goes on from the heads as they were trained. Subclasses say what the
    features are.
    """

    current_task_loss = True
    statistics_batch = 100

    def __init__(self, config: AlignedConfig, backbone: Backbone, stream: StreamInfo, head: TaskHeads):
        super().__init__(config, backbone, stream)
        self.head, self.aligned, self.gaussians = head, copy.deepcopy(head), None
        self.alignment_losses: list[float] = []  # first and last
        if config.align_passes:
            self.gaussians = ClassGaussians(backbone.width, config.ridge, self.device)

    @property
    def keeps(self) -> str:
        """The Gaussians, where heads are aligned."""
        return KEEPS if self.gaussians else ""

    @abstractmethod
    def features(self, batch: Batch) -> Tensor:
        """Features (B, D) of the network as it is now."""

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE of the newest head's scores, over the task's own classes."""
        return F.cross_entropy(self.head.current(self.features(batch)), batch.labels - task.first_label)

    def aligned_loss(self, batch: Batch) -> Tensor:
        """CE of the aligned heads' scores, over all classes, of features (B, D) in the place of images."""
        return F.cross_entropy(self.aligned(batch.images), batch.labels)

    def sgd(self) -> dict:
        """Momentum and weight decay, of training and alignment."""
        return {"momentum": self.config.momentum, "weight_decay": self.config.weight_decay}

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """A new SGD for all that is trained, at one rate."""
        return optim.SGD(self.trained().values(), self.config.learning_rate, **self.sgd())

    def changed(self, drawn: Tensor, generator: torch.Generator) -> Tensor:
        """Draws (K, n, D) of all classes as heads get them: around smaller means the older a class is."""
        change = around_smaller_means(self.gaussians, self.head.tasks(), self.config.mean_decay)
        return change(drawn, generator)

    def grow(self, task: TaskInfo) -> None:
        """Add a head, and room for its classes' Gaussians."""
        generator = seeds.generator(self.stream.init_seed, "head", task.index)
        self.head.grow(len(task.classes), generator, "normal", self.device)
        self.aligned = copy.deepcopy(self.head).requires_grad_(False)
        if self.gaussians:
            self.gaussians.grow(len(task.classes))

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Gaussians of the task's classes; alignment."""
        if self.gaussians:
            features, labels = trainer.features(task, self.features, self.statistics_batch)
            self.describe(features, labels, task, trainer)
        self.align(task, trainer)

    def describe(self, features: Tensor, labels: Tensor, task: Task, trainer: Trainer) -> None:
        """Take features (n, D) of all the task's images, as at evaluation, for its classes' Gaussians."""
        self.gaussians.describe(features, labels)

    def align(self, task: Task, trainer: Trainer) -> None:
        """The copy becomes the heads as they were trained and, but in the first task, learns from draws."""
        self.aligned.load_state_dict(self.head.state_dict())
        if self.gaussians and task.index:
            losses = align_heads(
                self.aligned, self.aligned_loss, self.gaussians, self.config, self.sgd(), self.changed, task,
                trainer, self.stream.init_seed,
            )  # fmt: skip
            self.alignment_losses = losses[:: max(1, len(losses) - 1)]

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """One pass for the Gaussians."""
        return images if self.gaussians else 0

    def beside(self) -> float:
        """Multiply-adds of an image besides the network's own."""
        return 0.0

    def extra(self) -> Extra:
        """What stands beside the network, and the alignment on features drawn for every class."""
        config, classes = self.config, sum(head.out_features for head in self.head.heads)
        sizes = (classes, self.backbone.width, config.align_passes, config.align_samples * classes)
        return with_refinement(Extra(image=self.beside()), *sizes)

    def diagnostics(self) -> dict:
        """The first and the last loss of the alignment."""
        return {"alignment_losses": self.alignment_losses}

    def predict(self, batch: Batch) -> Tensor:
        """Scores of the aligned heads, (B, K_seen)."""
        return self.aligned(self.features(batch))
