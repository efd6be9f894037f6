"""How often test images pass through the network as a method learns its tasks."""

from collections.abc import Sequence
from dataclasses import dataclass

from cl_bench.training.method import Method


@dataclass(frozen=True)
class Grown:
    """A method to which all its tasks were announced, and what an image's prediction took after each."""

    method: Method
    prediction_passes: tuple[int, ...]
    settled_passes: tuple[int, ...]  # of these, through networks that an image passes once in a run

    @property
    def repeated(self) -> tuple[int, ...]:
        """Passes that every prediction of an image takes."""
        both = zip(self.prediction_passes, self.settled_passes, strict=True)
        return tuple(passes - settled for passes, settled in both)

    def predicting(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Passes in which so many images are predicted after each task, at least one an image."""
        return tuple(count * max(1, own) for count, own in zip(counts, self.repeated, strict=False))

    def settled(self, tests: Sequence[int]) -> list[int]:
        """Passes through settled networks after each task: new images through all, old ones through new."""
        found, seen, before = [], 0, 0
        for new, networks in zip(tests, self.settled_passes, strict=True):
            found.append(new * networks + seen * (networks - before))
            seen, before = seen + new, networks
        return found
