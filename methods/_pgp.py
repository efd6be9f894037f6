r"""What the methods of PGP share: settings, the choice of images, and the published statistics in sample space.

Qiao et al., "Prompt Gradient Projection for Continual Learning", ICLR 2024: the gradient of prompts loses its component inside the subspace of old
tasks' inputs, \[ g \leftarrow g - (g M) M^T. \] The paper works in the space of features. The public code builds a matrix over 768 sample images, and
multiplies the gradient over 768 features with its projector, which runs because the two numbers are equal; it thresholds fourth powers of
singular values, and for the first basis stops before the energy is reached. All of that can be switched on by name (`sample_asis`,
`sigma4_asis`, `lt_asis`).
Adam scales coordinates after the projection, so that its update is not orthogonal to M: the share left inside is recorded, and
`pgp_stage=update` projects the finished update instead.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from cl_bench import seeds
from cl_bench.config import Strict
from cl_bench.data.stream import Task
from cl_bench.errors import InputError, RunFailed
from cl_bench.training.trainer import Trainer

IMAGES = 768  # training images a task whose tokens are collected, in the public code
AS_PUBLISHED = {
    "pgp_space": "sample_asis",
    "pgp_energy": "sigma4_asis",
    "pgp_rank_rule": "lt_asis",
    "pgp_stage": "grad",
}


LEFT_DIFFERENT = (
    "principal components are exact, each with its largest score positive (as in scikit-learn 1.3, which the code pins), where the code "
    "takes a randomized solver whose result depends on the seed",
    "where every image chooses its own prompts, the gradients of all of them are projected, where the code projects those of a batch's first image",
)


class ProjectionConfig(Strict):
    """Settings of every PGP method."""

    energy: float = Field(0.50, ge=0, le=1)  # epsilon, the fraction of squared norm that the basis holds
    images: int | None = Field(
        None, ge=1
    )  # training images a task whose tokens are collected; None: 768, or D in sample space
    pgp_stage: Literal["grad", "update"] = (
        "grad"  # project the gradient (published), or Adam's finished update
    )
    pgp_energy: Literal["sigma2", "sigma4_asis"] = (
        "sigma2"  # energies are second or (public code) fourth powers of singular values
    )
    pgp_rank_rule: Literal["geq", "lt_asis"] = (
        "geq"  # fewest directions that reach the energy, or (public code) in the first task the most below it
    )


def statistics_images(config: ProjectionConfig, images: int, last: bool) -> int:
    """Images of a task whose tokens are collected, for statistics in feature space; `last` is whether no task follows."""
    return 0 if last or config.energy == 0 else min(images, config.images or IMAGES)


class PoolProjectionConfig(ProjectionConfig):
    """The same for prompt pools, whose published code works in sample space."""

    pgp_space: Literal["feature", "sample_asis", "random"] = (
        "feature"  # random: as many random directions, the control
    )


def require_sample_space(config: PoolProjectionConfig, width: int) -> None:
    """Raise InputError for a number of images with which the published statistics do not even have a meaningless value."""
    if config.pgp_space == "sample_asis" and config.images not in (None, width):
        raise InputError(
            f"pgp_space=sample_asis takes as many images as the backbone has features ({width}), got images={config.images}; "
            "leave out images or give pgp_space=feature"
        )


def chosen_images(
    config: ProjectionConfig, task: Task, trainer: Trainer, exactly: int | None = None
) -> np.ndarray:
    """The images whose tokens are collected: a seeded choice. Raises RunFailed when `exactly` so many are needed and the task has fewer."""
    if exactly is not None and len(task) < exactly:
        raise RunFailed(
            f"pgp_space=sample_asis needs {exactly} images of every task, task {task.index + 1} has {len(task)}; give pgp_space=feature"
        )
    return seeds.permutation(len(task), trainer.data_seed, "pgp images", task.index)[
        : exactly or config.images or IMAGES
    ]


def published_images(
    config: ProjectionConfig, task: Task, trainer: Trainer, width: int, batch: int, passes: int
) -> Iterator[Tensor]:
    """As many training images as the backbone has features, augmented as in a pass that no training uses."""
    for part in trainer.augmented(task, batch, chosen_images(config, task, trainer, width), passes):
        yield part.images


def principal_scores(X: Tensor, components: int) -> Tensor:
    """Scores (n, c) of the rows of X (n, F) on its first c = min(components, n, F) principal components, centred; float64.

    The largest entry of each column in absolute value is positive.
    """
    gram = X.double() @ X.double().T if X.shape[1] < 4 * X.shape[0] else (X @ X.T).double()
    gram = gram - gram.mean(0, keepdim=True) - gram.mean(1, keepdim=True) + gram.mean()
    values, vectors = torch.linalg.eigh(gram)
    count = min(components, *X.shape)
    values, vectors = values.flip(0)[:count].clamp(min=0), vectors.flip(1)[:, :count]
    signs = vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    return vectors * signs * values.sqrt()
