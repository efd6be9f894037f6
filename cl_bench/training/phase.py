"""One optimization over a task: what is minimized, with what, and how often the images pass."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, optim

from cl_bench.data.batch import Batch


@dataclass(frozen=True)
class Phase:
    """What a method optimizes in one stage of a task; a paper with two stages has two phases.

    Costs are counted from the same values. A pass shows every image once. The passes of a task are numbered
    through all its phases, so that none repeats the shuffle or the augmentation of another.
    """

    loss: Callable[[Batch], Tensor]  # the scalar to minimize
    optimizer: Callable[[], optim.Optimizer]  # makes a new one; its parameters are what the phase trains
    batch: int
    passes: int
    repeats: int = 1  # passes that share one shuffle and one learning rate
    # factor on a parameter group's learning rate after `done` passes
    rate: Callable[[int, dict], float] = lambda done, group: 1.0
    drop_last: bool = False  # leave out the last partial batch of a shuffle
    after_backward: Callable[[], None] = lambda: None  # between backward and step: gradients may be edited
    after_step: Callable[[], None] = lambda: None
    name: str = "training"  # in messages
    advice: str = "lower learning_rate"  # what to do when its loss is not finite
    # forward-equivalents of an image: one forward and one backward to the inputs; 3 where all weights get a
    # gradient, 1 where nothing in the network gets one
    forwards: int = 2
    asks: bool = True  # whether its loss asks for un-prompted features, where a method does

    def image_passes(self, images: int) -> int:
        """Images that pass forward and backward on a task of so many images; in constant time."""
        whole, rest = divmod(self.passes, self.repeats)  # shuffles, and passes of the last one
        left_out = self.batch if self.drop_last else 1
        return whole * (self.repeats * images // left_out * left_out) + rest * images // left_out * left_out


def half_cosine(done: int, passes: int) -> float:
    """(1 + cos(pi e / E)) / 2, the factor on a learning rate after e = `done` of E passes."""
    return (1 + math.cos(math.pi * done / passes)) / 2


def coda_cosine(done: int, passes: int, lagged: bool) -> float:
    """cos(99 pi e / (200 (E - 1))) in pass e = 0..E-1: from 1 to about 1/64 (public code of CODA-Prompt).

    `lagged` has max(0, e - 1) for e, as that code runs: its first two passes both have the full rate.
    """
    counted = max(0, done - 1) if lagged else done
    return math.cos(99 * math.pi * counted / (200 * max(1, passes - 1)))
