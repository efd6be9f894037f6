"""Methods that choose prompts by a query: the common body of L2P, DualPrompt and CODA-Prompt.

The query of an image is its class token after the final norm of the frozen, un-prompted network: computed
once per image where the image always enters in the same way, else one more forward pass on the same weights.
Cross-entropy over the current task's classes, which equals masking all other scores with minus infinity; Adam
without weight decay, new for every task; global gradient norm clipped.
"""

from abc import abstractmethod
from functools import cached_property
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, optim
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone, require_class_token
from cl_bench.nn.heads import HeadInit, TaskHeads, new_head
from cl_bench.nn.pool import tally
from cl_bench.nn.projection import adam
from cl_bench.training.gradient_method import GradientMethod
from cl_bench.training.trainer import Trainer


class QueryTuningConfig(Strict):
    """Settings of every method with a query."""

    learning_rate: float = Field(0.001875, gt=0)
    batch: int = Field(16, ge=1)
    passes: int = Field(5, ge=1)
    grad_clip: float = Field(1.0, ge=0)  # largest global norm of the gradient, head included; 0: no clipping
    head_init: HeadInit = "normal"  # std 0.02 and zero bias (ports), or U(-1/sqrt(D), 1/sqrt(D)) for both
    # classes that compete at prediction: those learned, or (public ports) also those to come, with untrained
    # rows of the head
    eval_classes: Literal["seen", "all"] = "seen"


class QueryTuning(GradientMethod):
    """A frozen ViT with prompts that depend on the image's query; subclasses say which and how they act."""

    PRESET = "nsp2-paper"
    current_task_loss = True
    queries = True
    statistics_batch = 100
    statistics_query = True  # whether statistics ask for queries
    query_normed = True  # whether queries are taken behind the last norm

    def __init__(self, config: QueryTuningConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        require_class_token(backbone, self.display)
        self.head = TaskHeads(backbone.width)
        self.counts: dict[str, Tensor] = {}

    @abstractmethod
    def trained_prompts(self) -> list[torch.nn.Parameter]:
        """Prompts, keys and what else is trained besides the head."""

    @abstractmethod
    def represent(self, images: Tensor, q: Tensor) -> Tensor:
        """Features (B, D) of images with queries q (B, D), as at prediction."""

    @property
    def tasks_seen(self) -> int:
        """Tasks begun so far, the current one included."""
        return len(self.head.heads)

    def grow(self, task: TaskInfo) -> None:
        """Add the task's rows of the head."""
        generator = self._head_generator(task.index)
        self.head.grow(len(task.classes), generator, self.config.head_init, self.device)

    def _head_generator(self, index: int) -> torch.Generator:
        return seeds.generator(self.stream.init_seed, "head", index)

    @cached_property
    def unlearned(self) -> list[tuple[Tensor, Tensor]]:
        """The heads with which tasks will start, where a method may know their classes beforehand."""
        return [self._new_head(*size) for size in enumerate(self.stream.task_sizes)]

    def _new_head(self, index: int, classes: int) -> tuple[Tensor, Tensor]:
        """Weight and bias with which a task will start."""
        head = new_head(self.backbone.width, classes, self.config.head_init, self._head_generator(index))
        head = head.to(self.device)
        return head.weight.detach(), head.bias.detach()

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Start counting choices anew."""
        self.counts = {}

    def count(self, name: str, chosen: Tensor, size: int, times: int = 1) -> None:
        """Add choices among `size` entries to a histogram of the diagnostics."""
        self.counts[name] = self.counts.get(name, 0) + times * tally(chosen, size)

    def cross_entropy(self, features: Tensor, labels: Tensor, task: TaskInfo) -> Tensor:
        """CE over the current task's classes."""
        return F.cross_entropy(self.head.current(features), labels - task.first_label)

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE over the current task's classes, unless a subclass adds to it."""
        return self.cross_entropy(self.represent(batch.images, self.query(batch)), batch.labels, task)

    def trained_parameters(self) -> list[torch.nn.Parameter]:
        """What is trained, then weight and bias of the current head."""
        return [*self.trained_prompts(), *self.head.heads[-1].parameters()]

    def forwards(self, task: TaskInfo, images: int, augmented: bool) -> int:
        """As for every method, and the queries.

        These are one an image where images enter unchanged, else one a step and one for statistics.
        """
        asked = sum(phase.image_passes(images) for phase in self.phases(task) if phase.asks)
        asked += self.statistics_query * self.statistics_images(task, images)
        return super().forwards(task, images, augmented) + self.queries * (asked if augmented else images)

    def adam_settings(self) -> dict:
        """The learning rate; no weight decay, betas 0.9 and 0.999."""
        return {"lr": self.config.learning_rate, "fused": self.device.type == "cuda"}

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """A new Adam for all that is trained."""
        return adam(self.trained_parameters(), self.projections(task), **self.adam_settings())

    def after_backward(self, task: TaskInfo) -> None:
        """Clip the global gradient norm."""
        if self.config.grad_clip:
            torch.nn.utils.clip_grad_norm_(self.trained_parameters(), self.config.grad_clip)

    def minimize(self, task: Task, trainer: Trainer) -> None:
        """All passes; the histograms are those of all images, whichever process saw them."""
        super().minimize(task, trainer)
        trainer.group.all_reduce_sum(self.counts.values())

    def trained(self) -> dict[str, Tensor]:
        """The trained parameters, and the histograms of choices."""
        return {**super().trained(), **{f"counts.{name}": counts for name, counts in self.counts.items()}}

    def load_trained(self, tensors: dict[str, Tensor]) -> None:
        """Take over parameters and histograms."""
        super().load_trained(tensors)
        counts = {name: tensor for name, tensor in tensors.items() if name.startswith("counts.")}
        self.counts = {name.removeprefix("counts."): tensor for name, tensor in counts.items()}

    def diagnostics(self) -> dict:
        """How often each entry was chosen for a training image."""
        return {name: counts.tolist() for name, counts in self.counts.items()}

    def predict(self, batch: Batch) -> Tensor:
        """Scores of all classes seen, (B, K_seen), or of all of the stream with `eval_classes=all`."""
        return self.classify(self.represent(batch.images, self.query(batch)))

    def query(self, batch: Batch) -> Tensor | None:
        """q (B, D), None where the method asks for none."""
        return batch.frozen_features(self.backbone, self.query_normed) if self.queries else None

    def classify(self, features: Tensor) -> Tensor:
        """Scores of features (B, D)."""
        return self.all_scores(features) if self.config.eval_classes == "all" else self.head(features)

    def all_scores(self, features: Tensor) -> Tensor:
        """Scores (B, K) of features among all classes of the stream, those to come by untrained heads."""
        to_come = [F.linear(features, weight, bias) for weight, bias in self.unlearned[self.tasks_seen :]]
        return torch.cat([self.head(features), *to_come], dim=1)
