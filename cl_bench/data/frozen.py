"""Features of frozen networks, computed once for images that always enter them in the same way."""

from collections.abc import Callable
from functools import cached_property
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from cl_bench.data.device_images import uploaded
from cl_bench.data.feature_store import FeatureStore
from cl_bench.nn.precision import network_in

BATCH = 256


class Network(Protocol):
    """A network that does not change any more: a backbone, or one with edits that are learned."""

    weights_sha256: str | None  # of all that decides its features; None: they are not kept on disk

    def frozen_features(self, images: Tensor, normed: bool = True) -> Tensor:
        """Features (B, D) of images (B, 3, H, W), or class tokens before the last norm."""


class FrozenFeatures:
    """Features (N, D) of images known by row; those of a class are computed together, at their first use.

    What an image's feature is, to the last bit, therefore depends neither on the batch that asked for it nor
    on the run; with a store it is taken from an earlier one.
    """

    def __init__(
        self, labels: np.ndarray, inputs: Callable[[np.ndarray], Tensor], store: FeatureStore | None = None
    ):
        """`labels` (N,) are the images' classes; `inputs` returns the network input of rows."""
        self._labels, self._inputs, self._store = labels, inputs, store
        self.borrowed_seconds = 0.0  # that what was taken from the store took to compute
        self._kept: WeakKeyDictionary[Network, dict[bool, _Kept]] = WeakKeyDictionary()

    @cached_property
    def _rows(self) -> dict[int, np.ndarray]:
        """The rows of each class."""
        order = np.argsort(self._labels, kind="stable")
        classes, starts = np.unique(self._labels[order], return_index=True)
        return dict(zip(classes.tolist(), np.split(order, starts[1:]), strict=True))

    def of(self, network: Network, rows: np.ndarray, normed: bool) -> Tensor:
        """Features (B, D) of rows."""
        kept = self._kept.setdefault(network, {}).setdefault(normed, _Kept(len(self._labels)))
        lacking = self._labels[rows[kept.places[rows] < 0]]
        for c in np.unique(lacking).tolist():
            kept.add(self._rows[c], self._found(network, c, normed))
        return kept.of(rows)

    def _found(self, network: Network, c: int, normed: bool) -> Tensor:
        """Features of a class's images, from the store or made now."""

        def compute() -> Tensor:
            rows, made = self._rows[c], []
            with network_in("fp32"):  # whoever asks first
                for start in range(0, len(rows), BATCH):
                    made.append(network.frozen_features(self._inputs(rows[start : start + BATCH]), normed))
            return torch.cat(made)

        if self._store is None or network.weights_sha256 is None:
            return compute()
        named = {"weights": network.weights_sha256, "normed": normed}
        features, seconds = self._store.once(named, str(c), compute)
        self.borrowed_seconds += seconds
        return features

    def at(self, rows: np.ndarray) -> "Known":
        """The features of rows, to be asked for with a network."""
        return Known(self, rows)


class _Kept:
    """Features of the classes that were asked for, and where each image's stand among them."""

    def __init__(self, images: int):
        self.places = np.full(images, -1)
        self._parts: list[Tensor] = []  # of the classes, in the order in which they came
        self._count = 0

    def add(self, rows: np.ndarray, features: Tensor) -> None:
        """Take in the features (n, D) of a class's rows (n,)."""
        self.places[rows] = np.arange(self._count, self._count + len(rows))
        self._count += len(rows)
        self._parts.append(features)

    def of(self, rows: np.ndarray) -> Tensor:
        """The features (B, D) of rows."""
        if len(self._parts) > 1:
            self._parts = [torch.cat(self._parts)]
        [features] = self._parts
        return features[uploaded(self.places[rows], features.device)]


class Known:
    """Features of some images of a set, computed at the first question."""

    def __init__(self, features: FrozenFeatures, rows: np.ndarray):
        self._features, self._rows = features, rows

    def of(self, network: Network, normed: bool = True) -> Tensor:
        """Features (B, D) that the network gives the images, or class tokens before its last norm."""
        return self._features.of(network, self._rows, normed)

    def __getitem__(self, part: slice) -> "Known":
        return Known(self._features, self._rows[part])
