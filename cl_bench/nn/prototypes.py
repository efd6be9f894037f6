"""Class means of features, and cosines with them: what needs no gradient."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Prototypes(nn.Module):
    """Sums (K, D) and counts (K,) of the classes' features, in float64.

    Means do not depend on how images are cut into batches.
    """

    def __init__(self, width: int, device: torch.device):
        super().__init__()
        self.register_buffer("sums", torch.zeros(0, width, dtype=torch.float64, device=device))
        self.register_buffer("counts", torch.zeros(0, dtype=torch.float64, device=device))

    def grow(self, classes: int) -> None:
        """Make room for so many more classes."""
        self.sums = torch.cat([self.sums, self.sums.new_zeros(classes, self.sums.shape[1])])
        self.counts = torch.cat([self.counts, self.counts.new_zeros(classes)])

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Features (B, D) of images of classes (B,), as positions."""
        own = F.one_hot(labels, len(self.counts)).double()  # (B, K)
        self.sums += own.T @ features.double()
        self.counts += own.sum(0)

    @property
    def means(self) -> Tensor:
        """P_k (K, D); zero for a class without images."""
        return (self.sums / self.counts.clamp(min=1)[:, None]).float()

    def forward(self, features: Tensor) -> Tensor:
        """Cosines (B, K) of features (B, D) with the means."""
        return F.normalize(features, dim=1) @ F.normalize(self.means, dim=1).T
