"""The contract of a continual-learning method."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn, optim
from torch.nn import functional as F

from cl_bench.backbone import Backbone
from cl_bench.config import Strict
from cl_bench.nn.precision import network_in
from cl_bench.stream import StreamInfo, Task, TaskInfo
from cl_bench.trainer import Trainer
from cl_bench.work import Extra


class Method(nn.Module, ABC):
    """A method plugin: a file in `methods/` that sets `METHOD` to a subclass of this."""

    Config: ClassVar[type[Strict]]
    PRESET: ClassVar[str | None] = None  # settings of the method's paper, used on the benchmarks they cover: a file in methods/presets/
    TRANSFORM: ClassVar[dict] = {}  # `Transform` values of its own where they differ from the data set's
    AS_PUBLISHED: ClassVar[dict] = {}  # options and `Transform` values of the published code where the defaults do otherwise
    LEFT_DIFFERENT: ClassVar[tuple[str, ...]] = ()  # what the published code does otherwise even then, a sentence each
    # the settings that decide how the first task is trained, by the same code in all methods that name them; never inherited
    TRUNK: ClassVar[type[Strict] | None] = None
    version: ClassVar[int] = 1  # raise it when results change: it is part of the run id
    display: ClassVar[str]  # name in tables
    joint: ClassVar[bool] = False  # learns all classes as one task (an upper bound)
    frozen: ClassVar[bool] = False  # predicts from un-prompted features alone, so that no image passes the network twice
    queries: ClassVar[bool] = False  # asks for an image's un-prompted features too
    current_task_loss: ClassVar[bool] = False  # the loss compares the current task's classes only: one class a task gives no gradient

    def __init__(self, config: Strict, backbone: Backbone, stream: StreamInfo):
        super().__init__()
        self.config, self.backbone, self.stream = config, backbone, stream

    @abstractmethod
    def learn(self, task: Task, trainer: Trainer) -> None:
        """Learn one task; called once per task, in order."""

    @abstractmethod
    def predict(self, images: Tensor) -> Tensor:
        """Scores (B, K_seen) of images (B, 3, H, W); changes nothing, and a row depends on its own image alone.

        What does otherwise by name, as published code does, says so: see `predicts_together`; scores (B, K) of all classes of the stream let
        those compete that no task has brought yet.
        """

    @abstractmethod
    def grow(self, task: TaskInfo) -> None:
        """Allocate what the task adds to the state; called before it is learned, and once per learned task before a checkpoint is loaded."""

    def loss_within(self, images: Tensor, labels: Tensor, task: TaskInfo) -> Tensor:
        """Summed cross-entropy of `predict`'s scores among the classes of the images' task, over the temperature of training where there is one."""
        scores = self.predict(images)[:, task.first_label : task.first_label + len(task.classes)]  # (B, c)
        return F.cross_entropy(scores / getattr(self.config, "temperature", 1.0), labels - task.first_label, reduction="sum")

    @torch.inference_mode()
    def mean_loss(self, task: Task, precision: str = "fp32", batch: int = 256) -> float:
        """The mean of `loss_within` over a task's training images as at evaluation; nothing is learned from them."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for images, labels in task.plain(batch):
            with network_in(precision):
                total += self.loss_within(images, labels, task)
        return float(total) / len(task)

    @property
    def statistics_name(self) -> str | None:
        """The name under which runs with the same first task share its statistics, see `Trainer.once`; None where they do not."""
        return None

    def forwards(self, images: int, last: bool, augmented: bool) -> int:
        """Passes of one image through the backbone that learning a task of so many images costs, a backward pass counted as one more."""
        return self.images_seen(images, last)

    def images_seen(self, images: int, last: bool) -> int:
        """Images that pass through the network while a task of so many images is learned, as a trainer counts them: each once."""
        return images

    def extra(self) -> Extra:
        """What the method adds to the network's work, for planning."""
        return Extra()

    @property
    def keeps(self) -> str:
        """What a table must say is kept of old tasks' images besides what was trained, such as "a Gaussian of features per class"; "" for nothing."""
        return ""

    @property
    def predicts_together(self) -> int | None:
        """Where predictions depend on the batch: how many test images, all of one task, are predicted at a time. None: any."""
        return None

    @property
    def couples_batch(self) -> bool:
        """Whether the loss of an image depends on those beside it, so that a batch cannot be learned in parts."""
        return False

    def diagnostics(self) -> dict:
        """JSON values about the task just learned, kept in the record."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Everything but the frozen backbone that predicting and going on need."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith("backbone.")}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned, after as many calls of `grow`. Raises RuntimeError when names or shapes differ."""
        expected = self.state()
        if set(state) != set(expected):
            raise RuntimeError(f"the checkpoint holds {sorted(set(state) ^ set(expected))[:3]} where the method does not, or the other way round")
        self.load_state_dict(state, strict=False)

    @classmethod
    def trunk(cls, config: Strict) -> dict | None:
        """JSON values that decide how the first task is trained; methods with equal ones train it alike, bit for bit. None: never shared."""
        kind = cls.__dict__.get("TRUNK")
        return kind and {"trunk": kind.__name__, **config.model_dump(mode="json", include=set(kind.model_fields))}

    def trained(self) -> dict[str, Tensor]:
        """What training a task leaves behind, before statistics: all that is trained."""
        return {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}

    def load_trained(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `trained` returned."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(tensors[name])

    @property
    def device(self):
        """Where the backbone lives."""
        return next(self.backbone.parameters()).device


class GradientMethod(Method):
    """A method that minimises a loss: `learn` is begin_task, `Trainer.fit`, end_task."""

    def learn(self, task: Task, trainer: Trainer) -> None:
        """Train on the task with the config's batch, passes and learning rate."""
        self.grow(task)
        self.begin_task(task)
        if trainer.first_task is None:
            self.minimise(task, trainer)
        else:
            trainer.first_task.fit(self, trainer, lambda: self.minimise(task, trainer))
        self.end_task(task, trainer)

    def minimise(self, task: Task, trainer: Trainer) -> None:
        """All passes over the task with a new optimiser."""
        trainer.fit(
            task,
            loss=lambda images, labels: self.loss(images, labels, task),
            optimizer=self.make_optimizer(task),
            after_backward=lambda: self.after_backward(task),
            batch=self.config.batch,
            passes=self.config.passes,
            repeats=self.repeats(),
            rate=self.rate,
            drop_last=self.drop_last(),
        )

    @abstractmethod
    def loss(self, images: Tensor, labels: Tensor, task: Task) -> Tensor:
        """The scalar to minimise; labels are positions in the class order."""

    @abstractmethod
    def make_optimizer(self, task: Task) -> optim.Optimizer:
        """A fresh optimiser for the task; a method that projects the finished update does it in here."""

    def repeats(self) -> int:
        """Passes that share one shuffle (and one learning rate)."""
        return 1

    def rate(self, done: int) -> float:
        """Factor on the learning rate after `done` passes of the task."""
        return 1.0

    def drop_last(self) -> bool:
        """Whether a pass leaves out its last partial batch, as some published code does."""
        return False

    def steps(self, images: int) -> int:
        """Image passes of training on a task of so many images."""
        together = self.repeats()
        whole, rest = divmod(self.config.passes, together)  # shuffles, and passes of the last one
        left_out = self.config.batch if self.drop_last() else 1
        return whole * (together * images // left_out * left_out) + rest * images // left_out * left_out

    def statistics_images(self, images: int, last: bool) -> int:
        """Image passes after training on a task of so many images, for statistics; `last` is whether no task follows."""
        return 0

    def forwards(self, images: int, last: bool, augmented: bool) -> int:
        """Forward and backward of every step, and the statistics."""
        return 2 * self.steps(images) + self.statistics_images(images, last)

    def images_seen(self, images: int, last: bool) -> int:
        """Those of every step and of the statistics."""
        return self.steps(images) + self.statistics_images(images, last)

    def begin_task(self, task: Task) -> None:
        """Called after `grow`, before training."""

    def after_backward(self, task: Task) -> None:
        """Called between backward and the optimiser's step: a method that projects gradients edits `.grad` here."""

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Called after training: statistics, alignment."""
