"""A batch of images on their way into the network."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cl_bench.data.frozen import Known, Network


@dataclass(frozen=True, eq=False)
class Batch:
    """Network input and what belongs to it, not which images these are: test images come in task order."""

    images: Tensor  # (B, 3, S, S)
    labels: Tensor | None = None  # (B,), positions in the class order; None where they are to be predicted
    known: Known | None = None  # the features in frozen networks of images that always enter in the same way
    # (B,), which showing of which training image each is: pass * images of the task + place among them
    turns: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.images)

    @torch.no_grad()
    def frozen_features(self, network: Network, normed: bool = True) -> Tensor:
        """Features (B, D) of a network that does not change any more, without gradient.

        Those of the un-prompted backbone are the queries of prompt pools. Looked up where they are known,
        else one more forward pass. Without `normed` they are class tokens before the last norm.
        """
        if self.known is None:
            return network.frozen_features(self.images, normed)
        return self.known.of(network, normed)

    def split(self, size: int) -> list["Batch"]:
        """Parts of at most `size` images."""
        return [self._part(slice(start, start + size)) for start in range(0, len(self), size)]

    def _part(self, rows: slice) -> "Batch":
        labels = None if self.labels is None else self.labels[rows]
        known = None if self.known is None else self.known[rows]
        turns = None if self.turns is None else self.turns[rows]
        return Batch(self.images[rows], labels, known, turns)
