r"""Virtual outliers of features, and what they ask of a head's scores (OVOR: Huang et al., ICLR 2024).

Features far from their neighbors are copied with noise, and the copies farthest from theirs are kept (NPOS:
Tao et al., "Non-Parametric Outlier Synthesis", ICLR 2023). With scores z and s = -logsumexp(z),
\[ R = H(relu(s(f) - \tau_{id})) + H(relu(\tau_{out} - s(o))), \]
means over features f and over outliers o, H the Huber loss of threshold 1.

OVOR's public code leaves out the features that it copies, so that outliers are noise around zero, and draws
one noise for all of them: of the 400 outliers of ten classes, 50 each are the same vector.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.config import Strict
from cl_bench.nn.neighbors import kth_distances


class OutlierConfig(Strict):
    """Settings of OVOR's public code, but for what it does otherwise than its paper: the last four."""

    neighbors: int = Field(50, ge=1)  # k; the farthest neighbor where there are fewer features
    boundary: int = Field(50, ge=1)  # features that are copied: all where there are fewer
    candidates: int = Field(600, ge=1)  # noisy copies of each
    noise: float = Field(0.1, gt=0)  # sigma
    outliers: int = Field(40, ge=1)  # copies that are kept, per class
    outlier_weight: float = Field(0.1, ge=0)  # lambda
    tau_id: float = -15.0
    tau_out: float = -3.0
    outlier_center: Literal["boundary", "origin"] = "boundary"  # noise around features, or (published) zero
    outlier_noise: Literal["each", "shared"] = "each"  # for each feature, or (published) the same for all
    outlier_length: Literal["unit", "own"] = "unit"  # of copies whose distances to unit features are taken
    outlier_order: Literal["shuffled", "farthest"] = "shuffled"  # of outliers in a pass


AS_PUBLISHED = {
    "outlier_center": "origin", "outlier_noise": "shared", "outlier_length": "own",
    "outlier_order": "farthest",
}  # fmt: skip


def boundary_of(f: Tensor, config: OutlierConfig) -> Tensor:
    """Positions in f (N, D) of the features farthest from their k-th neighbor, the farthest first.

    Neighbors are those on the unit sphere, a feature itself the first of its own.
    """
    unit, k = F.normalize(f, dim=1), min(config.neighbors, len(f))
    return kth_distances(unit, unit, k).topk(min(config.boundary, len(f))).indices


def normal(shape: tuple[int, ...], key: tuple) -> Tensor:
    """Standard normal numbers of a key, on the CPU: the same wherever the features are."""
    return torch.randn(shape, generator=seeds.generator(*key))


def virtual_outliers(f: Tensor, classes: int, config: OutlierConfig, key: tuple) -> Tensor:
    """Outliers (n, D) of the features f (N, D) of so many classes; the key seeds noise and order."""
    centers = f[boundary_of(f, config)]  # (S, D)
    possible = len(centers) * config.candidates
    kept = min(possible, config.outliers * classes)
    shared = config.outlier_noise == "shared"
    if config.outlier_center == "origin":
        centers = torch.zeros_like(centers[:1] if shared else centers)
    noise = normal((1 if shared else len(centers), config.candidates, f.shape[1]), key).to(f)
    copies = (centers[:, None] + config.noise * noise).flatten(0, 1)
    alike = possible // len(copies)  # times that each is there: 1, or S of one noise around zero
    compared = F.normalize(copies, dim=1) if config.outlier_length == "unit" else copies
    distances = kth_distances(compared, F.normalize(f, dim=1), min(config.neighbors, len(f)))
    farthest = distances.topk(-(-kept // alike)).indices.repeat_interleave(alike)
    order = slice(None) if config.outlier_order == "farthest" else seeds.permutation(kept, *key)
    return copies[farthest[:kept][order]]


@dataclass(frozen=True)
class Samples:
    """Features (B, D) of images, their labels (B,), and outliers (B', D)."""

    features: Tensor
    labels: Tensor
    outliers: Tensor

    def __len__(self) -> int:
        return len(self.features)


def in_batches(f: Tensor, labels: Tensor, outliers: Tensor, batch: int) -> Iterator[Samples]:
    """Batches of features, each with an equal share of the outliers, at least one."""
    batches = range(-(-len(f) // batch))
    share = max(1, len(outliers) // len(batches))
    for number in batches:
        rows = slice(number * batch, (number + 1) * batch)
        own = torch.arange(number * share, (number + 1) * share) % len(outliers)
        yield Samples(f[rows], labels[rows], outliers[own])


def regularization(z_id: Tensor, z_out: Tensor, config: OutlierConfig) -> Tensor:
    """R of scores (B, c) of features and (B', c) of outliers."""
    return _huber(-z_id.logsumexp(1) - config.tau_id) + _huber(config.tau_out + z_out.logsumexp(1))


def _huber(excess: Tensor) -> Tensor:
    return F.huber_loss(F.relu(excess), torch.zeros_like(excess))
