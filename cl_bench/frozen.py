"""Features of the un-prompted backbone, computed once for every image that always enters the network in the same way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from cl_bench.nn.precision import network_in
from cl_bench.resident import uploaded

BATCH = 256


class FrozenFeatures:
    """Features (N, D) of images known by position; a part (a task's images) is computed whole, at its first use.

    What a position's feature is, to the last bit, therefore depends neither on the batch that asked for it nor on where a run was resumed.
    """

    def __init__(self, sizes: Sequence[int], inputs: Callable[[np.ndarray], Tensor]):
        """`sizes` are the lengths of the parts; `inputs` returns the network input of positions."""
        self._bounds, self._inputs = np.concatenate([[0], np.cumsum(sizes)]), inputs
        self._kept: WeakKeyDictionary[nn.Module, tuple[Tensor, set[int]]] = WeakKeyDictionary()  # features, and the parts that are computed

    def announce(self, images: Tensor, positions: np.ndarray) -> Tensor:
        """`images`, marked as the input of these positions. Whatever is derived from the tensor is a new tensor without the mark, but for `split`."""
        images.frozen_features = Announced(self, positions)
        return images

    def of(self, backbone: nn.Module, positions: np.ndarray) -> Tensor:
        """Features (B, D) of positions."""
        if backbone not in self._kept:
            device = next(backbone.parameters()).device
            self._kept[backbone] = (torch.zeros(self._bounds[-1], backbone.width, device=device), set())
        features, computed = self._kept[backbone]
        for part in set((np.searchsorted(self._bounds, positions, side="right") - 1).tolist()) - computed:
            with network_in("fp32"):  # whoever asks first
                for start in range(self._bounds[part], self._bounds[part + 1], BATCH):
                    batch = np.arange(start, min(start + BATCH, self._bounds[part + 1]))
                    features[batch[0] : batch[-1] + 1] = backbone.features(self._inputs(batch))
            computed.add(part)
        return features[uploaded(positions, features.device)]


@dataclass(frozen=True)
class Announced:
    """The mark of a batch: which images of which set it is. Called with a backbone it returns their features (B, D)."""

    features: FrozenFeatures
    positions: np.ndarray

    def __call__(self, backbone: nn.Module) -> Tensor:
        return self.features.of(backbone, self.positions)


def split(images: Tensor, size: int) -> list[Tensor]:
    """A batch in parts of at most `size`, marked as the batch is."""
    parts = list(images.split(size))
    mark = getattr(images, "frozen_features", None)
    for number, part in enumerate(parts if mark else ()):
        mark.features.announce(part, mark.positions[number * size :][:size])
    return parts
