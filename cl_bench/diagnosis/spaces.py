"""What old images leave free: null spaces of their covariances, and how much of an update lies outside."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cl_bench.nn.projection import Nullity, nullity

PLACES = 8  # of a spectrum that are kept, at most
NEGLIGIBLE = 1e-6  # of the largest eigenvalue


@dataclass(frozen=True)
class Space:
    """Eigenvalues (n,) of a covariance, largest first, the nullity R, and what spans the rest (n, n - R)."""

    eigenvalues: np.ndarray
    nullity: int
    protected: Tensor

    @classmethod
    def of(cls, covariance: Tensor, rule: Nullity) -> "Space | None":
        """That of a covariance (n, n); None where n is too small for a nullity."""
        if len(covariance) < 3:
            return None
        values, vectors = torch.linalg.eigh(covariance)  # ascending
        found = values.flip(0).clamp(min=0).cpu().numpy()
        R = nullity(found, rule)
        return cls(found, R, vectors[:, R:])

    def inside(self, rows: Tensor) -> float:
        """The share of the energy of rows (m, n) outside the null space; 0 where they are 0."""
        whole = float(rows.square().sum())
        return float((rows @ self.protected).square().sum()) / whole if whole else 0.0

    @property
    def dimensions(self) -> float:
        """The share of dimensions outside the null space: what a random row has inside on average."""
        return 1 - self.nullity / len(self.eigenvalues)

    @property
    def rank(self) -> int:
        """How many eigenvalues are not negligible."""
        return int((self.eigenvalues > NEGLIGIBLE * self.eigenvalues[0]).sum())

    @property
    def spectrum(self) -> list[float]:
        """Eigenvalues over the largest, at places 1 to n that are evenly spaced on a logarithmic scale."""
        n = len(self.eigenvalues)
        places = np.unique(np.geomspace(1, n, min(PLACES, n)).round().astype(int)) - 1
        largest = self.eigenvalues[0]
        return (self.eigenvalues[places] / largest).tolist() if largest > 0 else [0.0] * len(places)
