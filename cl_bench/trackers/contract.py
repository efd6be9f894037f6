"""What a tracker has to be able to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    import numpy as np

Axis = Literal["pass", "task"]
Status = Literal["finished", "stopped", "failed"]
PROJECT = "cl-bench"  # what a tracker calls all these runs together, unless its own variables name another


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers see it."""

    run_id: str  # the same whenever the run goes on: a tracker's own id follows from it
    family_id: str  # the same for all its seeds and class orders
    name: str  # such as "vpt-nsp2[eta=0.9] glyphs/10 seed 2024"
    configuration: dict[str, Any]  # JSON values, nested
    folder: Path  # for what a tracker keeps in files; shared by all runs of a results folder
    fresh: bool  # whether nothing of the run has been sent before
    moved: bool = False  # whether files are brought to another machine when this process ends


@dataclass(frozen=True)
class At:
    """Where in a run numbers belong: a place on their own axis, and one in the order of all that is sent."""

    axis: Axis
    count: int  # passes that are done, or tasks that are learned, from the run's beginning
    step: int  # counts both together; of two calls, the later one has the larger


class Tracker(ABC):
    """Sends one run to one place; an entry point of the group `cl_bench.trackers` names a subclass.

    It is made without arguments; `begin` is called first and once, `end` last. Whatever a method raises
    becomes a warning, and no more is sent: it cannot fail a run. Import what takes long in `begin`, not with
    the module: names are looked up in the command that starts runs.
    """

    NEEDS: ClassVar[tuple[str, ...]] = ()  # packages, as they are imported
    INSTALL: ClassVar[str] = ""  # what pip is told to install them, such as "cl-bench[wandb]"

    @abstractmethod
    def begin(self, run: TrackedRun) -> None:
        """Open the tracker's run: a new one where `run.fresh`, else the one that was there."""

    @abstractmethod
    def log(self, values: Mapping[str, float], at: At) -> None:
        """Add a point to the curve of each name."""

    @abstractmethod
    def image(self, name: str, pixels: np.ndarray, at: At) -> None:
        """Add a picture, (H, W, 3) of uint8."""

    @abstractmethod
    def end(self, status: Status) -> None:
        """Close it; a run that stopped or failed may go on later."""
