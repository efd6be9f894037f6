"""The contract of a continual-learning method."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn, optim

from cl_bench.backbone import Backbone
from cl_bench.config import Strict
from cl_bench.stream import StreamInfo, Task, TaskInfo
from cl_bench.trainer import Trainer


class Method(nn.Module, ABC):
    """A method plugin: a file in `methods/` that sets `METHOD` to a subclass of this."""

    Config: ClassVar[type[Strict]]
    PRESET: ClassVar[str | None] = None  # settings of the method's paper, used on the benchmarks they cover: a file in methods/presets/
    TRANSFORM: ClassVar[dict] = {}  # `Transform` values of its own where they differ from the data set's
    AS_PUBLISHED: ClassVar[dict] = {}  # options and `Transform` values of the published code where the defaults do otherwise
    version: ClassVar[int] = 1  # raise it when results change: it is part of the run id
    display: ClassVar[str]  # name in tables
    joint: ClassVar[bool] = False  # learns all classes as one task (an upper bound)
    current_task_loss: ClassVar[bool] = False  # the loss compares the current task's classes only: one class a task gives no gradient

    def __init__(self, config: Strict, backbone: Backbone, stream: StreamInfo):
        super().__init__()
        self.config, self.backbone, self.stream = config, backbone, stream

    @abstractmethod
    def learn(self, task: Task, trainer: Trainer) -> None:
        """Learn one task; called once per task, in order."""

    @abstractmethod
    def predict(self, images: Tensor) -> Tensor:
        """Scores (B, K_seen) of images (B, 3, H, W); changes nothing, and a row depends on its own image alone."""

    @abstractmethod
    def grow(self, task: TaskInfo) -> None:
        """Allocate what the task adds to the state; called before it is learned, and once per learned task before a checkpoint is loaded."""

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
        self.end_task(task, trainer)

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

    def begin_task(self, task: Task) -> None:
        """Called after `grow`, before training."""

    def after_backward(self, task: Task) -> None:
        """Called between backward and the optimiser's step: a method that projects gradients edits `.grad` here."""

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Called after training: statistics, alignment."""
