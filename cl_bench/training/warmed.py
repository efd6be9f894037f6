"""AdamW with a learning rate that rises before it falls, as timm's recipes for transformers have it."""

from collections.abc import Callable, Iterable
from typing import Literal

from pydantic import Field
from torch import Tensor, nn, optim

from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.training.phase import Phase, half_cosine


class WarmedConfig(Strict):
    """APG's public code for CIFAR-100: its rates times 192 / 1024, the images of a batch on two GPUs."""

    learning_rate: float = Field(1.875e-4, gt=0)
    start_rate: float = Field(1.875e-5, gt=0)
    end_rate: float = Field(9.375e-5, gt=0)
    warm_up: int = Field(5, ge=0)  # passes in which the rate rises from `start_rate`
    lr_schedule: Literal["unlagged", "lagged"] = "unlagged"  # lagged: a pass behind (published)
    weight_decay: float = Field(0.05, ge=0)  # decoupled, of all that is trained
    batch: int = Field(192, ge=1)
    passes: int = Field(100, ge=1)
    drop_last: bool = False  # leave out the last partial batch of a pass (published)


def warmed_cosine(done: int, passes: int, start: float, end: float, warm_up: int) -> float:
    """The factor on a learning rate in pass e = `done` of E, with a first factor `start` and a last `end`.

    In the first `warm_up` passes it rises from `start` towards 1 in equal steps; from there on it is
    end + (1 - end) (1 + cos(pi e / E)) / 2, which does not know of the warm-up.
    """
    if done < warm_up:
        return start + (1 - start) * done / warm_up
    return end + (1 - end) * half_cosine(done, passes)


def warmed_phase(
    config: WarmedConfig, trained: Iterable[nn.Parameter], loss: Callable[[Batch], Tensor], passes: int,
    rates: tuple[float, float, float], name: str,
) -> Phase:  # fmt: skip
    """So many passes with these highest, first and last learning rates; frozen parameters are left out."""
    top, start, end = rates
    lag = config.lr_schedule == "lagged"
    trained = [parameter for parameter in trained if parameter.requires_grad]
    return Phase(
        loss=loss,
        optimizer=lambda: optim.AdamW(trained, top, weight_decay=config.weight_decay),
        batch=config.batch,
        passes=passes,
        rate=lambda done, group: warmed_cosine(
            max(0, done - lag), passes, start / top, end / top, config.warm_up
        ),
        drop_last=config.drop_last,
        name=name,
    )
