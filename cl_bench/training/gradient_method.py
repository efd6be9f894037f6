"""Methods that minimize one loss with one optimizer in each task."""

from abc import abstractmethod

from torch import Tensor, optim

from cl_bench.data.batch import Batch
from cl_bench.data.stream import TaskInfo
from cl_bench.nn.projection import Projection
from cl_bench.training.method import Method
from cl_bench.training.phase import Phase


class GradientMethod(Method):
    """A method of one phase, with the config's batch, passes and learning rate."""

    def phases(self, task: TaskInfo) -> list[Phase]:
        """That phase, made of what follows."""
        return [
            Phase(
                loss=lambda batch: self.loss(batch, task),
                optimizer=lambda: self.make_optimizer(task),
                batch=self.config.batch,
                passes=self.config.passes,
                repeats=self.repeats(),
                rate=lambda done, group: self.rate(done),
                drop_last=self.drop_last(),
                after_backward=lambda: self.after_backward(task),
                forwards=self.forwards_each(task),
            )
        ]

    @abstractmethod
    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """The scalar to minimize; labels are positions in the class order."""

    @abstractmethod
    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """A fresh optimizer for the task; it projects finished updates where `projections` names some."""

    def projections(self, task: TaskInfo) -> list[Projection]:
        """The parameters whose finished update is projected, and how; none unless a subclass says so."""
        return []

    def repeats(self) -> int:
        """Passes that share one shuffle (and one learning rate)."""
        return 1

    def rate(self, done: int) -> float:
        """Factor on the learning rate after `done` passes of the task."""
        return 1.0

    def forwards_each(self, task: TaskInfo) -> int:
        """Forward-equivalents of an image in training, see `Phase.forwards`."""
        return 2

    def drop_last(self) -> bool:
        """Whether a pass leaves out its last partial batch, as some published code does (`drop_last`)."""
        return getattr(self.config, "drop_last", False)

    def after_backward(self, task: TaskInfo) -> None:
        """Called between backward and step: a method that projects gradients edits `.grad` here."""

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """None, unless a subclass wants some."""
        return 0
