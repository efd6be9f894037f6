"""One Gaussian per class: mean and covariance of features, factorized once and stored packed."""

import torch
from torch import Tensor

CLASSES = 16  # factors unpacked at a time


def packed_length(width: int) -> int:
    """Entries of a packed lower triangle."""
    return width * (width + 1) // 2


def fit(features: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Mean (D,) and packed lower Cholesky factor of the unbiased covariance + ridge I of features (n, D).

    It is computed in float64. A single feature has covariance 0.
    """
    x = features.double()
    mean = x.mean(0)
    centered = x - mean
    covariance = centered.T @ centered / max(1, len(x) - 1)
    covariance.diagonal().add_(ridge)
    factor = torch.linalg.cholesky(covariance)
    rows, columns = torch.tril_indices(*factor.shape, device=factor.device)
    return mean.float(), factor[rows, columns].float()


def describe(features: Tensor, labels: Tensor, means: Tensor, factors: Tensor, ridge: float) -> None:
    """Write mean and packed factor of each class 0..K-1 with features (n, D) into means (K, D) and factors.

    A class without features keeps its own.
    """
    for label in range(len(means)):
        own = features[labels == label]
        if len(own):
            means[label], factors[label] = fit(own, ridge)


def unpack(packed: Tensor, width: int) -> Tensor:
    """Lower triangular factors (K, D, D) of packed ones (K, D (D + 1) / 2)."""
    factors = packed.new_zeros(len(packed), width, width)
    rows, columns = torch.tril_indices(width, width, device=packed.device)
    factors[:, rows, columns] = packed
    return factors


def sample(means: Tensor, packed: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` draws of every class, (K, count, D), from means (K, D) and packed factors."""
    draws = []
    for mean, factor in zip(means.split(CLASSES), packed.split(CLASSES), strict=True):
        noise = torch.randn(len(mean), count, means.shape[1], generator=generator, device=means.device)
        draws.append(mean[:, None] + noise @ unpack(factor, means.shape[1]).transpose(1, 2))
    return torch.cat(draws)
