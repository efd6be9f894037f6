"""Alignment: a classifier is trained again on features drawn from one Gaussian per class.

They stand in the place of old tasks' images. Zhang et al., "SLCA: Slow Learner with Classifier Alignment for
Continual Learning on a Pre-trained Model", ICCV 2023; NSP2 paper, appendix B.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn, optim

from cl_bench import seeds
from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import Task
from cl_bench.nn.gaussians import ClassGaussians
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer

BATCH = 256  # drawn features
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
    head: nn.Linear, loss: Callable[[Batch], Tensor], gaussians: ClassGaussians,
    config: AlignmentConfig, task: Task, trainer: Trainer, init_seed: int,
) -> list[float]:  # fmt: skip
    """Train the head on fresh draws for every pass; the mean loss of every pass.

    The loss gets features as images, and the classes' positions as labels. SGD as timm makes it: Nesterov,
    the bias without decay (`refine_optimizer=nesterov`). Every process draws the same. Raises RunFailed when
    the loss is not finite.
    """
    nesterov, decay = config.refine_optimizer == "nesterov", config.refine_weight_decay
    groups = [{"params": [head.weight]}]
    if head.bias is not None:
        groups.append({"params": [head.bias], "weight_decay": 0.0 if nesterov else decay})
    settings = {
        "momentum": config.refine_momentum,
        "weight_decay": decay,
        "nesterov": nesterov and config.refine_momentum > 0,
    }
    phase = Phase(
        loss=loss,
        optimizer=lambda: optim.SGD(groups, config.refine_learning_rate, **settings),
        batch=BATCH,
        passes=config.refine_passes,
        name="refinement",
        advice="lower refine_learning_rate",
    )
    head.requires_grad_(True)
    key = (init_seed, "refine", task.index)
    losses = trainer.fit_samples(
        task, lambda done: _draws(gaussians, config.refine_samples, (*key, done)), phase
    )
    head.requires_grad_(False)
    for parameter in head.parameters():
        parameter.grad = None
    return losses


def _draws(gaussians: ClassGaussians, samples: int, key: tuple) -> Iterator[Batch]:
    """`samples` features of every class, shuffled, in batches."""
    classes, device = len(gaussians.means), gaussians.means.device
    answers = torch.arange(classes, device=device).repeat_interleave(samples)
    generator = torch.Generator(device).manual_seed(seeds.derived_seed(*key))
    drawn = gaussians.sample(samples, generator).flatten(0, 1)  # (K * samples, D)
    for chosen in torch.randperm(len(drawn), generator=generator, device=device).split(BATCH):
        yield Batch(drawn[chosen], answers[chosen])
