"""Options of LoRA-DRS, and what its published program does otherwise."""

from typing import Literal

from pydantic import Field
from torch import optim

from cl_bench.config import Strict
from cl_bench.training.method import Method
from cl_bench.training.phase import coda_cosine


class DRSFirstTask(Strict):
    """What decides the first task: settings of the public code for CIFAR-100."""

    learning_rate: float = Field(5e-4, gt=0)
    head_rate: float = Field(0.002, gt=0)  # learning rate of heads
    batch: int = Field(128, ge=1)
    passes: int = Field(20, ge=1)
    first_passes: int | None = Field(None, ge=1)  # of the first task; None: as of others
    rank: int = Field(10, ge=1)
    triplet: float = Field(0.05, ge=0)  # lambda
    margin: float = Field(1.0, ge=0)
    schedule: Literal["cosine", "lagged_asis"] = "cosine"  # for what is not as meant see `Published`
    start: Literal["zero", "sparse_asis"] = "zero"  # of B
    adam_epsilon: Literal["usual", "early_asis"] = "usual"


class LoRADRSConfig(DRSFirstTask):
    """What later tasks need besides."""

    energy: float = Field(0.99, gt=0, le=1)  # epsilon
    norm: Literal["fro", "none"] = "fro"  # U U^T over its Frobenius norm (code), or as it is (paper)
    projected: Literal["both", "A"] = "both"  # updates of A and of B, or of A


class Published(Method):
    """The schedule, how B starts, and what Adam divides by."""

    @property
    def sparse(self) -> bool:
        """Whether one entry of every column of B starts from N(0, 0.01^2), at a random place."""
        return self.config.start == "sparse_asis"

    def rate(self, passes: int, done: int, group: dict) -> float:
        """Lagged, a pass behind, and in the first task too over the passes of others."""
        lagged = self.config.schedule == "lagged_asis"
        return coda_cosine(done, self.config.passes, True) if lagged else super().rate(passes, done, group)

    def make_optimizer(self) -> optim.Optimizer:
        """Early, epsilon stands beside the root of the second moment before that is corrected."""
        optimizer = super().make_optimizer()
        if self.config.adam_epsilon == "early_asis":
            optimizer.register_step_pre_hook(early_epsilon)
        return optimizer


def early_epsilon(adam: optim.Adam, *arguments) -> None:
    """epsilon / sqrt(1 - beta_2^k) before step k, in which sqrt(v) / sqrt(1 - beta_2^k) is what it adds to.

    As much as 32 epsilon at first: gradients of about 3e-7 move their parameters by half as much.
    """
    first = adam.param_groups[0]["params"][0]
    k = 1 + float(adam.state[first].get("step", 0))  # hooks may be called more than once before a step
    for group in adam.param_groups:
        group["eps"] = adam.defaults["eps"] / (1 - group["betas"][1] ** k) ** 0.5
