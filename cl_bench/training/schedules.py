"""How learning rates fall over the passes of a task, and how passes are shuffled, as settings say it."""

import re
from typing import Annotated

from pydantic import AfterValidator

from cl_bench.training.phase import half_cosine

NAMED = {"code": (0.4, 0.7), "paper": (0.5, 0.8)}  # of the NSP2 code, and of its paper
NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:-[0-9]+(?:\.[0-9]+)?)*")


def _milestones(schedule: str | float) -> tuple[float, ...] | None:
    """Where the rate falls to a tenth; None for what is none.

    Shares of the passes, or numbers of passes from 1 on.
    """
    if schedule in NAMED:
        return NAMED[schedule]
    if not NUMBERS.fullmatch(str(schedule)):
        return None
    found = tuple(map(float, str(schedule).split("-")))
    return found if list(found) == sorted(set(found)) and found[0] > 0 else None


def _schedule(value: str | float) -> str | float:
    if value not in ("constant", "cosine") and _milestones(value) is None:
        where = "where it falls to a tenth: 0.4-0.7 of the passes, or 4-7 passes"
        raise ValueError(f"expected code, paper, constant or cosine, or {where}")
    return value


def _mixing(value: str) -> str:
    if not re.fullmatch(r"plain|repeat[1-9][0-9]{0,3}", value):
        raise ValueError("expected plain, or how many passes are shuffled together: repeat10")
    return value


Schedule = Annotated[str | float, AfterValidator(_schedule)]
Mixing = Annotated[str, AfterValidator(_mixing)]


def factor(schedule: str | float, done: int, passes: int) -> float:
    """On the learning rate after `done` of the `passes`: a tenth at every milestone, or half a cosine."""
    if schedule == "constant":
        return 1.0
    if schedule == "cosine":
        return half_cosine(done, passes)
    ends = [end * passes if end < 1 else end for end in _milestones(schedule)]
    return 0.1 ** sum(done >= end - 1e-9 for end in ends)


def together(mixing: str) -> int:
    """Passes that are shuffled together: 10 for "repeat10", 1 for "plain"."""
    return int(mixing.removeprefix("repeat").replace("plain", "1"))
