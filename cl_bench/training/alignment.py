"""Alignment: a classifier is trained again on features drawn from one Gaussian per class.

They stand in the place of old tasks' images. Zhang et al., "SLCA: Slow Learner with Classifier Alignment for
Continual Learning on a Pre-trained Model", ICCV 2023; NSP2 paper, appendix B.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn, optim
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import Task
from cl_bench.nn.centroids import ClassCentroids
from cl_bench.nn.gaussians import ClassGaussians
from cl_bench.training.phase import Phase, half_cosine
from cl_bench.training.trainer import Trainer

BATCH = 256  # drawn features
Change = Callable[[Tensor, torch.Generator], Tensor]
"""Draws (K, n, D) of all classes -> the features that stand for them, (K, n, D)."""
# options for trials on a toy network
SMALL_ALIGNMENT = {"refine_passes": 10, "refine_samples": 32, "refine_learning_rate": 0.01}


class AlignmentConfig(Strict):
    """Settings of the NSP2 paper and its published code."""

    refine_passes: int = Field(50, ge=1)
    refine_samples: int = Field(256, ge=1)  # features drawn per class and pass (published code)
    refine_learning_rate: float = Field(0.001, gt=0)
    refine_momentum: float = Field(0.9, ge=0, lt=1)
    refine_weight_decay: float = Field(1e-4, ge=0)
    refine_optimizer: Literal["nesterov", "plain"] = "nesterov"  # its bias free of decay (code), or plain SGD
    refine_ridge: float = Field(1e-4, gt=0)  # added to the diagonal of every covariance (published code)


def align(
    head: nn.Module, loss: Callable[[Batch], Tensor], gaussians: ClassGaussians,
    config: AlignmentConfig, task: Task, trainer: Trainer, init_seed: int, batch: int | None = None,
) -> list[float]:  # fmt: skip
    """Train a head, or several, on fresh draws for every pass, so many (None: 256) a step; their mean losses.

    The loss gets features as images, and the classes' positions as labels. SGD as timm makes it: Nesterov,
    biases without decay (`refine_optimizer=nesterov`). Every process draws the same. Raises RunFailed when
    the loss is not finite.
    """
    nesterov, decay = config.refine_optimizer == "nesterov", config.refine_weight_decay
    biases = [parameter for parameter in head.parameters() if parameter.ndim == 1]
    groups = [{"params": [parameter for parameter in head.parameters() if parameter.ndim > 1]}]
    if biases:
        groups.append({"params": biases, "weight_decay": 0.0 if nesterov else decay})
    settings = {
        "momentum": config.refine_momentum,
        "weight_decay": decay,
        "nesterov": nesterov and config.refine_momentum > 0,
    }
    phase = Phase(
        loss=loss,
        optimizer=lambda: optim.SGD(groups, config.refine_learning_rate, **settings),
        batch=batch or BATCH,
        passes=config.refine_passes,
        name="refinement",
        advice="lower refine_learning_rate",
    )
    key = (init_seed, "refine", task.index)
    samples = config.refine_samples
    return train_on_draws(
        head, phase, lambda done: draws(gaussians, samples, (*key, done), batch=batch), task, trainer
    )


class HeadAlignmentConfig(Strict):
    """Settings of SLCA's public code, which others have taken over."""

    align_passes: int = Field(5, ge=0)  # 0: heads stay as they were trained
    align_samples: int = Field(256, ge=1)  # features drawn per class and pass
    align_rate: float = Field(0.01, gt=0)  # learning rate, which falls to 0 as half a cosine
    mean_decay: float = Field(0.1, ge=0, le=1)  # see `around_smaller_means`; 0: draws as they are
    ridge: float = Field(1e-4, gt=0)  # added to the diagonal of every covariance


def align_heads(
    heads: nn.Module, loss: Callable[[Batch], Tensor], gaussians: ClassGaussians,
    config: HeadAlignmentConfig, sgd: dict, change: Change, task: Task, trainer: Trainer, init_seed: int,
) -> list[float]:  # fmt: skip
    """Train all heads alike on fresh draws for every pass, after `change`; the mean loss of every pass.

    `sgd` are momentum and weight decay. The loss gets features as images, and the classes' positions as
    labels. Every process draws the same. Raises RunFailed when the loss is not finite.
    """
    phase = Phase(
        loss=loss,
        optimizer=lambda: optim.SGD(heads.parameters(), config.align_rate, **sgd),
        batch=BATCH,
        passes=config.align_passes,
        rate=lambda done, group: half_cosine(done, config.align_passes),
        name="alignment",
        advice="lower align_rate",
    )
    key = (init_seed, "align", task.index)
    return train_on_draws(
        heads, phase, lambda done: draws(gaussians, config.align_samples, (*key, done), change), task, trainer
    )


class StepAlignmentConfig(Strict):
    """Settings of HiDe-Prompt's public code, which MOS has taken over in part."""

    align_passes: int = Field(30, ge=0)  # 0: heads stay as they were trained
    align_momentum: float = Field(0.9, ge=0, lt=1)
    ridge: float = Field(1e-4, gt=0)  # added to variances


def align_in_steps(
    part: nn.Module, known: ClassGaussians | ClassCentroids, rate: float, samples: int, steps: int,
    config: StepAlignmentConfig, task: Task, trainer: Trainer, key: tuple, weight_decay: float = 0.0,
    falls: Callable[[int], float] | None = None,
) -> list[float]:  # fmt: skip
    """Train all of a part, by CE of its scores (B, K) of drawn features; the mean loss of every pass.

    A pass has so many steps with as many features as are drawn of each class, or of each of its groups. The
    rate is `falls(passes done)` times as high, by default falling to 0 as half a cosine. Every process draws
    the same. Raises RunFailed when the loss is not finite.
    """
    falls = falls or (lambda done: half_cosine(done, config.align_passes))
    sgd = {"momentum": config.align_momentum, "weight_decay": weight_decay}
    phase = Phase(
        loss=lambda batch: F.cross_entropy(part(batch.images), batch.labels),
        optimizer=lambda: optim.SGD(part.parameters(), rate, **sgd),
        batch=samples,
        passes=config.align_passes,
        rate=lambda done, group: falls(done),
        name="alignment",
        advice="lower the rate of alignment",
    )

    def draw(done: int) -> Iterator[Batch]:
        generator = torch.Generator(trainer.device).manual_seed(seeds.derived_seed(*key, done))
        return (Batch(*drawn) for drawn in known.draws(samples, steps, generator))

    return train_on_draws(part, phase, draw, task, trainer)


def around_smaller_means(gaussians: ClassGaussians, tasks: Tensor, decay: float) -> Change:
    """Draws of a class of task i of t are moved as if its mean were 1 - decay (1 - i / t) times as long.

    That is 0.9 + 0.1 i / t for 0.1, and nothing for the newest classes; tasks (K,) count from 0.
    """
    missing = decay * (1 - (tasks + 1) / (tasks.max() + 1))  # (K,)
    return lambda drawn, generator: drawn - (missing[:, None] * gaussians.means)[:, None]


def train_on_draws(
    heads: nn.Module, phase: Phase, draw: Callable[[int], Iterator[Batch]], task: Task, trainer: Trainer
) -> list[float]:
    """A phase over what is drawn for each pass, which trains all of `heads`; the mean loss of every pass.

    They are frozen behind it. Raises RunFailed when the loss is not finite.
    """
    heads.requires_grad_(True)
    losses = trainer.fit_samples(task, draw, phase)
    heads.requires_grad_(False)
    for parameter in heads.parameters():
        parameter.grad = None
    return losses


def draws(
    gaussians: ClassGaussians,
    samples: int,
    key: tuple,
    change: Change | None = None,
    batch: int | None = None,
) -> Iterator[Batch]:
    """`samples` features of every class, changed, shuffled, in batches of 256 or as given."""
    classes, device = len(gaussians.means), gaussians.means.device
    answers = torch.arange(classes, device=device).repeat_interleave(samples)
    generator = torch.Generator(device).manual_seed(seeds.derived_seed(*key))
    drawn = gaussians.sample(samples, generator)  # (K, samples, D)
    drawn = (drawn if change is None else change(drawn, generator)).flatten(0, 1)
    for chosen in torch.randperm(len(drawn), generator=generator, device=device).split(batch or BATCH):
        yield Batch(drawn[chosen], answers[chosen])
