r"""What the methods of PGP share: settings, projected gradients or updates, and the images of their bases.

Qiao et al., "Prompt Gradient Projection for Continual Learning", ICLR 2024: the gradient of prompts loses its
component inside the subspace of old tasks' inputs, \[ g \leftarrow g - (g M) M^T. \] The paper works in the
space of features. The public code builds a matrix over 768 sample images, and multiplies the gradient over
768 features with its projector, which runs because the two numbers are equal; it thresholds fourth powers of
singular values, and for the first basis stops before the energy is reached. All of that can be switched on by
name (`sample_asis`, `sigma4_asis`, `lt_asis`).

Adam scales coordinates after the projection, so that its update is not orthogonal to M: the share left inside
is recorded, and `pgp_stage=update` projects the finished update instead.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from cl_bench import seeds
from cl_bench.config import Strict
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.errors import InputError, RunFailed
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.projection import Projection
from cl_bench.nn.subspaces import Subspaces
from cl_bench.training.trainer import Trainer

IMAGES = 768  # training images a task whose tokens are collected, in the public code
AS_PUBLISHED = {
    "pgp_space": "sample_asis",
    "pgp_energy": "sigma4_asis",
    "pgp_rank_rule": "lt_asis",
    "pgp_stage": "grad",
}
LEFT_DIFFERENT = (
    "principal components are exact, each with its largest score positive (as in scikit-learn 1.3, which the "
    "code pins), where the code takes a randomized solver whose result depends on the seed",
    "where every image chooses its own prompts, the gradients of all of them are projected, where the code "
    "projects those of a batch's first image",
)


class ProjectionConfig(Strict):
    """Settings of every PGP method."""

    energy: float = Field(0.50, ge=0, le=1)  # epsilon, the fraction of squared norm that the basis holds
    images: int | None = Field(None, ge=1)  # whose tokens are collected; None: 768, or D in sample space
    pgp_stage: Literal["grad", "update"] = "grad"  # what is projected: gradients (published), or updates
    pgp_energy: Literal["sigma2", "sigma4_asis"] = "sigma2"  # powers of singular values: 2nd, or (code) 4th
    # fewest directions that reach the energy, or (public code) in the first task the most below it
    pgp_rank_rule: Literal["geq", "lt_asis"] = "geq"


class PoolProjectionConfig(ProjectionConfig):
    """The same for prompt pools, whose published code works in sample space."""

    # controls: as many random directions (random), or updates inside the subspace alone (range)
    pgp_space: Literal["feature", "sample_asis", "random", "range"] = "feature"


def require_sample_space(config: PoolProjectionConfig, width: int) -> None:
    """Raise InputError where the published statistics do not even have a meaningless value."""
    if config.pgp_space == "sample_asis" and config.images not in (None, width):
        raise InputError(
            f"pgp_space=sample_asis takes as many images as the backbone has features ({width}), "
            f"got images={config.images}; leave out images or give pgp_space=feature"
        )


class GradientProjection:
    """Mixed in before a method: gradients, or updates, lose their part inside protected directions."""

    measured: tuple[str, ...]  # parameters whose update is measured
    measured_state = False  # whether their values at the start of a task are part of the state

    def __init__(self, config: ProjectionConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        for name in self.measured:
            start = torch.zeros_like(getattr(self, name))
            self.register_buffer(f"{name}_start", start, persistent=self.measured_state)

    def outsides(self) -> list[Projection]:
        """X -> X - (X M) M^T for each projected parameter; none while nothing is protected."""
        raise NotImplementedError

    def projections(self, task: TaskInfo) -> list[Projection]:
        """Of finished updates, with pgp_stage=update."""
        return self.outsides() if self.config.pgp_stage == "update" else []

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Remember what is measured, and protect the directions of all earlier tasks."""
        super().begin_task(task, trainer)
        for name in self.measured:
            getattr(self, f"{name}_start").copy_(getattr(self, name).detach())
        for module in self.children():
            if isinstance(module, Subspaces):
                module.refresh()

    def moved(self, name: str) -> Tensor:
        """The task's whole update of a measured parameter."""
        return getattr(self, name).detach() - getattr(self, f"{name}_start")

    def after_backward(self, task: TaskInfo) -> None:
        """g <- g - (g M) M^T after clipping; what no image used has no gradient."""
        super().after_backward(task)
        if self.config.pgp_stage == "grad":
            for parameter, outside in self.outsides():
                parameter.grad = outside(parameter.grad)

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """The images whose tokens are collected in feature space; none where no task follows."""
        nothing = self.is_last(task) or self.config.energy == 0
        return 0 if nothing else min(images, self.config.images or IMAGES)

    def chosen_images(self, task: Task, trainer: Trainer, exactly: int | None = None) -> np.ndarray:
        """A seeded choice. Raises RunFailed when `exactly` so many are needed and the task has fewer."""
        if exactly is not None and len(task) < exactly:
            raise RunFailed(
                f"pgp_space=sample_asis needs {exactly} images of every task, "
                f"task {task.index + 1} has {len(task)}; give pgp_space=feature"
            )
        order = seeds.permutation(len(task), trainer.data_seed, "pgp images", task.index)
        return order[: exactly or self.config.images or IMAGES]

    def published_images(self, task: Task, trainer: Trainer) -> Iterator[Tensor]:
        """As many images as the backbone has features, augmented as in a pass that no training uses."""
        chosen = self.chosen_images(task, trainer, self.backbone.width)
        for batch in trainer.augmented(task, self.statistics_batch, chosen, self.config.passes):
            yield batch.images

    def protect(self, space: Subspaces, A: Tensor, energy: float, task: TaskInfo) -> None:
        """Grow bases by the second moments A (..., D, D) of the task's inputs."""
        space.grow(A, energy, self.config.pgp_energy, self.config.pgp_rank_rule, task.index == 0)

    def spaces(self, shape: tuple[int, ...], *name: str) -> Subspaces:
        """Bases (..., D, D) that protect nothing yet; by pgp_space random ones, or their opposite."""
        space, seed = self.config.pgp_space, self.stream.init_seed
        drawn = seeds.generator(seed, "random subspace", *name) if space == "random" else None
        return Subspaces(shape, self.device, drawn, space == "range")
