"""The contract of a continual-learning method."""

from abc import ABC, abstractmethod
from itertools import chain
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.precision import network_in
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra


class Method(nn.Module, ABC):
    """A method plugin: a file in `methods/` that sets `METHOD` to a subclass of this."""

    Config: ClassVar[type[Strict]]
    PRESET: ClassVar[str | None] = None  # a paper's settings for benchmarks: a file in methods/presets/
    TRANSFORM: ClassVar[dict] = {}  # `Transform` values of its own where they differ from the data set's
    # options and `Transform` values of the published code where the defaults do otherwise
    AS_PUBLISHED: ClassVar[dict] = {}
    LEFT_DIFFERENT: ClassVar[tuple[str, ...]] = ()  # what it does otherwise even then, a sentence each
    # the settings that decide how the first task is trained, by the same code in all methods that name them;
    # never inherited
    TRUNK: ClassVar[type[Strict] | None] = None
    # parts whose tensors are stored without the part's name, as they were before there was the part, so that
    # runs begun then go on
    STORED_FLAT: ClassVar[tuple[str, ...]] = ()
    # options for trials on a toy network of two blocks, 32 wide, with seven classes in three tasks
    SMALL: ClassVar[dict] = {}
    version: ClassVar[int] = 1  # raise it when results change: it is part of the run id
    display: ClassVar[str]  # name in tables
    joint: ClassVar[bool] = False  # learns all classes as one task (an upper bound)
    frozen: ClassVar[bool] = False  # predicts from un-prompted features alone: no image passes twice
    queries: ClassVar[bool] = False  # asks for an image's un-prompted features too
    needs_names: ClassVar[bool] = False  # learns from what classes are called: codes are refused
    # the loss compares the current task's classes only: one class a task gives no gradient
    current_task_loss: ClassVar[bool] = False

    def __init__(self, config: Strict, backbone: Backbone, stream: StreamInfo):
        super().__init__()
        self.config, self.backbone, self.stream = config, backbone, stream

    def learn(self, task: Task, trainer: Trainer) -> None:
        """Learn one task; called once per task, in order."""
        self.grow(task)
        self.begin_task(task, trainer)
        trainer.first_task.fit(self, trainer, lambda: self.minimize(task, trainer))
        self.end_task(task, trainer)

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """What comes before the phases, but for `grow`."""

    def phases(self, task: TaskInfo) -> list[Phase]:
        """The optimizations of a task, in order; none for what has no gradient.

        Costs are counted from them: they look at no image.
        """
        return []

    def minimize(self, task: Task, trainer: Trainer) -> None:
        """All phases, in training mode: dropout, where a method has any, is on in them and nowhere else."""
        phases = self.phases(task)
        self.train()
        for phase in phases:
            trainer.fit(task, phase, sum(each.passes for each in phases))
        self.eval()

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """What comes behind the phases: statistics, closed forms, alignment."""

    @abstractmethod
    def predict(self, batch: Batch) -> Tensor:
        """Scores (B, K_seen) of a batch's images (B, 3, H, W); a row depends on its own image alone.

        Predicting changes nothing. What does otherwise by name, as published code does, says so: see
        `predicts_together`; scores (B, K) of all classes of the stream let those compete that no task has
        brought yet.
        """

    @abstractmethod
    def grow(self, task: TaskInfo) -> None:
        """Allocate what the task adds to the state.

        Called before it is learned, and once per learned task before a checkpoint is loaded.
        """

    def loss_within(self, batch: Batch, task: TaskInfo) -> Tensor:
        """Summed cross-entropy of `predict`'s scores among the classes of the images' task.

        They are taken over the temperature of training where there is one.
        """
        scores = self.predict(batch)[:, task.first_label : task.first_label + len(task.classes)]  # (B, c)
        return F.cross_entropy(
            scores / getattr(self.config, "temperature", 1.0),
            batch.labels - task.first_label,
            reduction="sum",
        )

    @torch.inference_mode()
    def mean_loss(self, task: Task, precision: str = "fp32", batch: int = 256) -> float:
        """The mean of `loss_within` over a task's training images, as at evaluation."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for part in task.plain(batch):
            with network_in(precision):
                total += self.loss_within(part, task)
        return float(total) / len(task)

    @property
    def statistics_name(self) -> str | None:
        """The name under which runs with the same first task share its statistics, see `Trainer.once`.

        None where they do not.
        """
        return None

    def is_last(self, task: TaskInfo) -> bool:
        """Whether no task follows, so that what later tasks need is not computed."""
        return task.index == self.stream.num_tasks - 1

    def trained_images(self, task: TaskInfo, images: int) -> int:
        """Images that pass forward and backward through the network while a task of so many is learned."""
        return sum(phase.image_passes(images) for phase in self.phases(task))

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """Images that pass forward besides, for statistics: of what has no phases, each once."""
        return images

    def images_seen(self, task: TaskInfo, images: int) -> int:
        """Images that pass through the network while a task of so many is learned, as trainers count them."""
        return self.trained_images(task, images) + self.statistics_images(task, images)

    def forwards(self, task: TaskInfo, images: int, augmented: bool) -> int:
        """Forward-equivalents of learning a task of so many images, see `Phase.forwards`."""
        trained = sum(phase.forwards * phase.image_passes(images) for phase in self.phases(task))
        return trained + self.statistics_images(task, images)

    def extra(self) -> Extra:
        """What the method adds to the network's work, for planning."""
        return Extra()

    @property
    def keeps(self) -> str:
        """What is kept of old tasks' images besides what was trained, for tables; "" for nothing.

        An example is "a Gaussian of features per class".
        """
        return ""

    @property
    def prediction_passes(self) -> int:
        """Forward passes of one image at prediction.

        1, 2 with a query, as many as tasks where each has a network of its own.
        """
        return 1 + self.queries

    @property
    def settled_passes(self) -> int:
        """How many of these passes go through networks that change no more, see `Batch.frozen_features`.

        A test image passes each of those once in a run, however often it is predicted.
        """
        return int(self.queries or self.frozen)

    @property
    def predicts_together(self) -> int | None:
        """How many test images, all of one task, are predicted at a time where they depend on each other.

        None: any number, a prediction depends on its image alone.
        """
        return None

    @property
    def couples_batch(self) -> bool:
        """Whether an image's loss depends on those beside it, so that a batch cannot be learned in parts."""
        return False

    def diagnostics(self) -> dict:
        """JSON values about the task just learned, kept in the record."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Everything but the frozen backbone that predicting and going on need, by stored names."""
        values = self.state_dict()
        return {stored: values[name] for stored, name in self._own_names(values).items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned, after as many calls of `grow`.

        Raises RuntimeError when names or shapes differ.
        """
        own_names = self._own_names(self.state_dict())
        if set(state) != set(own_names):
            odd = sorted(set(state) ^ set(own_names))[:3]
            raise RuntimeError(
                f"the checkpoint holds {odd} where the method does not, or the other way round"
            )
        self.load_state_dict({own_names[name]: value for name, value in state.items()}, strict=False)

    def _own_names(self, values: dict[str, Tensor]) -> dict[str, str]:
        """Stored name -> its own name, of each tensor of the state."""
        found, own = {}, {name for name, _ in chain(self.named_parameters(), self.named_buffers())}
        for name in values:
            part, _, inner = name.partition(".")
            if part != "backbone" and name in own:  # not of a copy that shares the backbone's tensors
                found[inner if part in self.STORED_FLAT else name] = name
        return found

    @classmethod
    def trunk(cls, config: Strict) -> dict | None:
        """JSON values that decide how the first task is trained; None: never shared.

        Methods with equal ones train it alike, bit for bit.
        """
        kind = cls.__dict__.get("TRUNK")
        return kind and {
            "trunk": kind.__name__,
            **config.model_dump(mode="json", include=set(kind.model_fields)),
        }

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
