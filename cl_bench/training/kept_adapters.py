"""Methods with adapters that every task goes on learning, a copy of which is kept after each task.

One head for all classes goes on too, and is aligned after every task but the first on draws from Gaussians
of all classes.
"""

import copy
from abc import abstractmethod
from collections.abc import Iterable

import torch
from pydantic import Field
from torch import Tensor, nn, optim

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.adapter import Adapters
from cl_bench.nn.backbone import Backbone, EditedBackbone
from cl_bench.nn.edits import Edits
from cl_bench.nn.gaussians import ClassGaussians
from cl_bench.nn.heads import TaskHeads
from cl_bench.training.adapting import AdaptingConfig, new_adapters
from cl_bench.training.alignment import StepAlignmentConfig, align_in_steps
from cl_bench.training.method import Method
from cl_bench.training.phase import Phase, half_cosine
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, through, with_refinement

BATCH = 100  # images of a statistics batch


class KeptAdaptersConfig(AdaptingConfig, StepAlignmentConfig):
    """Settings of MOS's and TUNA's public code; weight decay acts in the alignment too."""

    bottleneck: int = Field(16, ge=1)
    align_rate: float = Field(0.005, gt=0)  # learning rate
    # features drawn per class and pass, and of a step; in public code of both five times the batch
    align_samples: int = Field(240, ge=1)


class KeptAdapters(Method):
    """U_1 ... U_t, the last of which learns, a head, and Gaussians of each class's features in its task.

    Subclasses say what the loss is and how the copies predict. Networks with old copies change no more.
    """

    current_task_loss = True
    keeps = "one Gaussian of features per class"

    def __init__(self, config: KeptAdaptersConfig, backbone: Backbone, stream: StreamInfo, head: TaskHeads):
        super().__init__(config, backbone, stream)
        self.adapters, self.head = nn.ModuleList(), head
        self.settled: list[EditedBackbone] = []  # of each task, asked for when it is learned
        self.gaussians = ClassGaussians(backbone.width, config.ridge, self.device)
        self.alignment_losses: list[float] = []  # first and last

    def grow(self, task: TaskInfo) -> None:
        """Freeze the adapters so far; a copy of the last that learns on, a head, and room for Gaussians."""
        self.adapters.requires_grad_(False)
        self.adapters.append(self.start())
        self.settled.append(EditedBackbone(self.backbone, self.network(task.index)))
        generator = seeds.generator(self.stream.init_seed, "head", task.index)
        self.head.grow(len(task.classes), generator, "normal", self.device)
        self.gaussians.grow(len(task.classes))

    def start(self) -> Adapters:
        """U as the task before has left it; at first the network is as it was."""
        if self.adapters:
            return copy.deepcopy(self.adapters[-1]).requires_grad_(True)
        return new_adapters(self.backbone, self.config, seeds.generator(self.stream.init_seed, "adapters"))

    def network(self, index: int) -> Edits:
        """What an image sees of a learned task's adapters at prediction."""
        return self.adapters[index]

    def newest(self, done: int = 0) -> Edits:
        """What an image sees of those that learn, in a step or in the statistics after so many batches."""
        return self.adapters[-1]

    @abstractmethod
    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """The scalar to minimize."""

    def make_optimizer(self) -> optim.Optimizer:
        """A new SGD for the adapters and for what learns of the head, at a rate of its own."""
        config, parts = self.config, (self.adapters, self.head)
        trained = [[own for own in part.parameters() if own.requires_grad] for part in parts]
        rates = (config.learning_rate, config.learning_rate * self.head_share)
        groups = [{"params": own, "lr": rate} for own, rate in zip(trained, rates, strict=True)]
        return optim.SGD(groups, momentum=config.momentum, weight_decay=config.weight_decay)

    head_share = 1.0  # rate of the head in that of the adapters

    def after_step(self) -> None:
        """What happens to the adapters behind every step."""

    def phases(self, task: TaskInfo) -> list[Phase]:
        """One, whose rates fall to 0 as half a cosine."""
        return [
            Phase(
                loss=lambda batch: self.loss(batch, task),
                optimizer=self.make_optimizer,
                batch=self.config.batch,
                passes=self.config.passes,
                rate=lambda done, group: half_cosine(done, self.config.passes),
                after_step=self.after_step,
            )
        ]

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Gaussians of the task's classes; alignment."""
        self.describe(task, trainer)
        self.align(task, trainer)

    def describe(self, task: Task, trainer: Trainer) -> None:
        """Gaussians of the features of the task's classes, as at evaluation."""
        found = [
            (self.described(batch, done), batch.labels)
            for done, batch in enumerate(self.plain(task, trainer))
        ]
        features, labels = zip(*found, strict=True)
        self.gaussians.describe(torch.cat(features), torch.cat(labels))

    def plain(self, task: Task, trainer: Trainer) -> Iterable[Batch]:
        """The task's images for statistics."""
        return trainer.plain(task, BATCH, networks=self.described_networks(task))

    def described(self, batch: Batch, done: int) -> Tensor:
        """Features (B, D) of a batch, after so many others of the pass."""
        return self.backbone.features(batch.images, self.newest(done))

    def described_networks(self, task: TaskInfo) -> int:
        """How many networks an image passes for statistics."""
        return 1

    def align(self, task: Task, trainer: Trainer) -> None:
        """The head learns from draws of all classes, but in the first task."""
        config, self.alignment_losses = self.config, []
        if task.index and config.align_passes:
            losses = align_in_steps(
                self.head, self.drawn(), config.align_rate, config.align_samples, len(self.gaussians.means),
                config, task, trainer, (self.stream.init_seed, "align", task.index), config.weight_decay,
                self.align_rate,
            )  # fmt: skip
            self.alignment_losses = losses[:: max(1, len(losses) - 1)]

    def align_rate(self, done: int) -> float:
        """Factor on the rate of the alignment after so many of its passes."""
        return half_cosine(done, self.config.align_passes)

    def drawn(self) -> ClassGaussians:
        """What the alignment draws from."""
        return self.gaussians

    def features(self, batch: Batch) -> Tensor:
        """Features (B, t, D) under the adapters of every task."""
        return torch.stack([batch.frozen_features(network) for network in self.settled], dim=1)

    def scores(self, features: Tensor) -> Tensor:
        """The head's scores (B, t, K) of features (B, t, D)."""
        return self.head(features.flatten(0, 1)).unflatten(0, features.shape[:2])

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """Each image once in every network that describes it."""
        return self.described_networks(task) * images

    @property
    def prediction_passes(self) -> int:
        """One for the adapters of every task, which stay as they are learned."""
        return len(self.adapters)

    settled_passes = property(lambda self: len(self.adapters))

    def extra(self) -> Extra:
        """One task's adapters, in a pass of its own, and the alignment on features drawn for every class."""
        config, classes = self.config, len(self.gaussians.means)
        image = through(self.backbone.vit, self.adapters) / max(1, len(self.adapters))
        sizes = (classes, self.backbone.width, config.align_passes, config.align_samples * classes)
        return with_refinement(Extra(image=image), *sizes)

    def diagnostics(self) -> dict:
        """The first and the last loss of the alignment."""
        return {"alignment_losses": self.alignment_losses}
