"""Options of CL-LoRA, and what its published program does otherwise."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Literal

import torch
from cl_bench.methods._dual_networks import DualNetworks
from pydantic import Field
from torch import Tensor, optim
from torch.nn import functional as F

from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import TaskInfo
from cl_bench.nn.heads import CosineHeads


class CLLoRAFirstTask(Strict):
    """What decides the first task: settings of the public code for CIFAR-100 in 20 tasks."""

    rank: int = Field(8, ge=1)  # r
    general: int | None = Field(None, ge=1)  # first blocks that all tasks share; None: half of them
    learning_rate: float = Field(0.03, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)  # of all that is trained
    batch: int = Field(64, ge=1)
    passes: int = Field(30, ge=1)
    block_weights: Literal["used", "qkv_asis"] = "used"  # for what is not as meant see `Published`


class CLLoRAConfig(CLLoRAFirstTask):
    """What later tasks need besides."""

    distillation: float = Field(5.0, ge=0)  # lambda
    distillation_temperature: float = Field(2.0, gt=0)  # tau
    orthogonality: float = Field(1e-4, ge=0)  # mu
    steps: Literal["one", "two_asis", "stale_asis"] = "one"
    teacher: Literal["fixed", "trained_asis"] = "fixed"


class ScaledLast(CosineHeads):
    """The same scores; where weights change before their gradient is computed, that is as in the code."""

    def forward(self, features: Tensor) -> Tensor:
        """Scores (B, K) of features (B, D)."""
        return self.sigma * (F.normalize(features, dim=1) @ F.normalize(self.weight, dim=1).T)


class Published(DualNetworks):
    """Two steps of every batch, a teacher whose scores move the head, and weights of keys."""

    Head = ScaledLast

    @property
    def rows(self) -> str:
        """Rows of block weights; that of keys only gets weight decay, and takes part in |cos(w_t, w_i)|."""
        return "qkv" if self.config.block_weights == "qkv_asis" else "qv"

    @property
    def couples_batch(self) -> bool:
        """A step before the step of a batch is of all its images."""
        return self.config.steps != "one"

    def make_optimizer(self) -> optim.Optimizer:
        """Kept, for the steps of distillation."""
        self.sgd = super().make_optimizer()
        return self.sgd

    def taught(self, features: Tensor) -> Tensor:
        """Trained, the head gets a gradient from the teacher's scores too."""
        return self.head(features) if self.config.teacher == "trained_asis" else super().taught(features)

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """In two steps, first distillation moves B and the head; what is not of it stays.

        Stale, the loss is that of the network before, and so is what its gradient is computed from, but for
        weights, which are those after the step: torch of the time let that pass, today's does not.
        """
        if not task.index or self.config.steps == "one":
            return super().loss(batch, task)
        tokens, stale = self.backbone.hidden(batch.images, 0), self.config.steps == "stale_asis"
        before = self.own_loss(self.lower(tokens), batch, task) if stale else None
        _, gradients = self.distillation(self.lower(tokens), tokens)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with unnoticed(parameter for parameter, _ in gradients) if stale else nullcontext():
            self.sgd.step()
        self.sgd.zero_grad()
        return before if stale else self.own_loss(self.lower(tokens), batch, task)


@contextmanager
def unnoticed(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Changes of these tensors meanwhile are hidden from graphs that hold them."""
    with ExitStack() as stack:
        for tensor in tensors:
            stack.enter_context(torch.autograd._unsafe_preserve_version_counter(tensor))
        yield
