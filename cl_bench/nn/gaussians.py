"""One Gaussian per class: mean and covariance of features, factorized once and stored packed."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CLASSES = 16  # factors unpacked at a time


class ClassGaussians(nn.Module):
    """Means (K, D) of the classes' features, and packed Cholesky factors (K, D (D + 1) / 2), float32."""

    def __init__(self, width: int, ridge: float, device: torch.device):
        super().__init__()
        self.ridge = ridge  # added to the diagonal of every covariance
        self.register_buffer("means", torch.zeros(0, width, device=device))
        self.register_buffer("factors", torch.zeros(0, packed_length(width), device=device))

    def grow(self, classes: int) -> None:
        """Make room for so many more classes, of which nothing is known yet."""
        self.means = torch.cat([self.means, self.means.new_zeros(classes, self.means.shape[1])])
        self.factors = torch.cat([self.factors, self.factors.new_zeros(classes, self.factors.shape[1])])

    def describe(self, features: Tensor, labels: Tensor) -> None:
        """Take each class with features (n, D), all of them, as these describe it; labels (n,) are positions.

        A class without features keeps its own.
        """
        for label in range(len(self.means)):
            own = features[labels == label]
            if len(own):
                self.means[label], self.factors[label] = fit(own, self.ridge)

    def sample(self, count: int, generator: torch.Generator, classes: int | None = None) -> Tensor:
        """`count` draws of each of the first so many classes (None: all), (K, count, D)."""
        draws, width = [], self.means.shape[1]
        known = (part[:classes].split(CLASSES) for part in (self.means, self.factors))
        for means, packed in zip(*known, strict=True):
            noise = torch.randn(len(means), count, width, generator=generator, device=means.device)
            draws.append(means[:, None] + noise @ unpack(packed, width).transpose(1, 2))
        return torch.cat(draws)

    def centers(self, classes: int) -> Tensor:
        """The means of the first so many classes, (n, D)."""
        return self.means[:classes]

    def draws(
        self, samples: int, batches: int, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of `samples` features (B, D) and their classes (B,): the first of a shuffled pass.

        A whole pass has `samples` of every class.
        """
        drawn = self.sample(samples, generator).flatten(0, 1)
        order = torch.randperm(len(drawn), generator=generator, device=drawn.device)
        for chosen in order[: batches * samples].split(samples):
            yield drawn[chosen], chosen // samples


def closeness(means: Tensor, features: Tensor, sigma: float, least: float = 1e-5) -> Tensor:
    """How much each feature (n, D) counts for each mean (K, D), (K, n), float64; a mean's weights sum to 1.

    They are proportional to exp(-distance^2 / (2 sigma^2)) + least (semantic drift compensation: Yu et al.,
    CVPR 2020; without the second term).
    """
    distances = torch.cdist(means.double(), features.double())
    weights = torch.exp(-distances.square() / (2 * sigma**2)) + least
    return weights / weights.sum(dim=1, keepdim=True)


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


def packed_length(width: int) -> int:
    """Entries of a packed lower triangle."""
    return width * (width + 1) // 2


def unpack(packed: Tensor, width: int) -> Tensor:
    """Lower triangular factors (K, D, D) of packed ones (K, D (D + 1) / 2)."""
    factors = packed.new_zeros(len(packed), width, width)
    rows, columns = torch.tril_indices(width, width, device=packed.device)
    factors[:, rows, columns] = packed
    return factors
