"""Features of the un-prompted backbone, computed once for images that always enter it in the same way."""

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from cl_bench.data.device_images import uploaded
from cl_bench.nn.precision import network_in

BATCH = 256


class FrozenFeatures:
    """Features (N, D) of images known by position; a part (a task) is computed whole, at its first use.

    What a position's feature is, to the last bit, therefore depends neither on the batch that asked for it
    nor on where a run was resumed.
    """

    def __init__(self, sizes: Sequence[int], inputs: Callable[[np.ndarray], Tensor]):
        """`sizes` are the lengths of the parts; `inputs` returns the network input of positions."""
        self._bounds, self._inputs = np.concatenate([[0], np.cumsum(sizes)]), inputs
        # by whether they are normed: features, and the parts that are computed
        self._kept: WeakKeyDictionary[nn.Module, dict[bool, tuple[Tensor, set[int]]]] = WeakKeyDictionary()

    def of(self, backbone: nn.Module, positions: np.ndarray, normed: bool) -> Tensor:
        """Features (B, D) of positions."""
        kept = self._kept.setdefault(backbone, {})
        if normed not in kept:
            device = next(backbone.parameters()).device
            kept[normed] = (torch.zeros(self._bounds[-1], backbone.width, device=device), set())
        features, computed = kept[normed]
        for part in set((np.searchsorted(self._bounds, positions, side="right") - 1).tolist()) - computed:
            with network_in("fp32"):  # whoever asks first
                for start in range(self._bounds[part], self._bounds[part + 1], BATCH):
                    batch = np.arange(start, min(start + BATCH, self._bounds[part + 1]))
                    found = backbone.frozen_features(self._inputs(batch), normed)
                    features[batch[0] : batch[-1] + 1] = found
            computed.add(part)
        return features[uploaded(positions, features.device)]

    def at(self, positions: np.ndarray) -> "Known":
        """The features of positions, to be asked for with a network."""
        return Known(self, positions)


class Known:
    """Features of some images of a set, computed at the first question."""

    def __init__(self, features: FrozenFeatures, positions: np.ndarray):
        self._features, self._positions = features, positions

    def of(self, backbone: nn.Module, normed: bool = True) -> Tensor:
        """Features (B, D) that the network gives the images, or class tokens before its last norm."""
        return self._features.of(backbone, self._positions, normed)

    def __getitem__(self, part: slice) -> "Known":
        return Known(self._features, self._positions[part])
