"""How far all runs of a command are, in work, images and time left."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cl_bench.console import duration, short
from cl_bench.records.spec import Size

Sizes = Mapping[str, Size]  # by run id
NO_SIZES: Sizes = MappingProxyType({})


class Overall:
    """The shares of runs that are done, weighed by their work; without sizes each run counts as much."""

    def __init__(self, runs: Sequence[str], sizes: Sizes = NO_SIZES):
        self._sizes = {run: sizes.get(run, Size(1, 0)) for run in runs}
        self._done = dict.fromkeys(runs, 0.0)
        self._begun: tuple[float, float] | None = None  # when the first share came, and what was done then

    @property
    def done(self) -> float:
        """The share of all work."""
        total = sum(size.forwards for size in self._sizes.values())
        return sum(self._sizes[run].forwards * share for run, share in self._done.items()) / max(1, total)

    def update(self, run: str, share: float) -> None:
        """So much of a run is done."""
        if run not in self._done:
            return
        self._done[run] = share
        if self._begun is None:
            self._begun = time.monotonic(), self.done

    def finished_before(self, run: str) -> None:
        """A run that this command did not have to carry out: no time was spent on it."""
        self._sizes.pop(run, None)
        self._done.pop(run, None)

    def text(self) -> str:
        """Such as "3/12 runs, 1.2M/3.4M images, 1:02:10 left"."""
        finished = sum(share >= 1 for share in self._done.values())
        parts = [f"{finished}/{len(self._done)} runs"]
        images = sum(size.images for size in self._sizes.values())
        if images:
            seen = sum(self._sizes[run].images * share for run, share in self._done.items())
            parts.append(f"{short(seen)}/{short(images)} images")
        if self._begun and self.done > self._begun[1]:
            start, before = self._begun
            seconds = (time.monotonic() - start) / (self.done - before) * (1 - self.done)
            parts.append(f"{duration(seconds)} left")
        return ", ".join(parts)
