"""How much an image's class token looks at each patch, through the blocks before, and where it looks little.

Abnar & Zuidema, "Quantifying Attention Flow in Transformers", ACL 2020, for the rollout; Lu et al.,
"Attention Retention for Continual Learning with Vision Transformers", AAAI 2026, for the threshold.
"""

import torch
from torch import Tensor, nn

from cl_bench.nn.shown_attention import Attended

POINTS, SIGMA = 10_000, 20  # of a resampled curve, and of its smoothing, in points
RADIUS = 4 * SIGMA  # where the Gaussian is cut
LENGTH = 10_500  # of a transform that has room for curve, margins and kernel
ROWS = 256  # curves at a time


class Rollout:
    """The rollout of a batch of images, block after block, as it passes the network once.

    R_l = (A_l + I) / 2 R_{l-1}, A_l the attention of block l, its heads averaged; R of the first block is
    that of its own.
    """

    def __init__(self, prefix: int):
        """`prefix` tokens stand before the patches, the class token first."""
        self._prefix, self._R = prefix, None
        self._rows: list[Tensor] = []

    @torch.no_grad()
    def see(self, attended: Attended) -> None:
        """Go on by a block; the last may have computed its first token alone."""
        A = attended.weights.mean(dim=1)  # (B, R, N)
        A = (A + torch.eye(*A.shape[1:], dtype=A.dtype, device=A.device)) / 2
        self._R = A if self._R is None else A @ self._R
        self._rows.append(self._R[:, 0, self._prefix :])

    def rows(self) -> Tensor:
        """R_l of the class token at the patches, (B, L, P), of the blocks that were seen."""
        return torch.stack(self._rows, dim=1)


def split_points(values: Tensor, margin: float) -> Tensor:
    """The value at which each row (..., P) falls apart into little and much attention, less `margin`.

    The rank of a value as a function of the value, resampled at 10,000 points and smoothed, is steep among
    the many small ones: where its second derivative is smallest it turns. float64; at most the largest value.
    """
    flat = values.double().flatten(0, -2)
    found = torch.cat([_turns(part) for part in flat.split(ROWS)]).view(values.shape[:-1])
    return torch.minimum(found - margin, values.double().amax(dim=-1))


def _turns(values: Tensor) -> Tensor:
    """The points (R,) of smallest second derivative, of rows (R, P)."""
    x, device = values.sort(dim=1).values, values.device
    low, high = x[:, :1], x[:, -1:]
    grid = low + (high - low) * torch.linspace(0, 1, POINTS, dtype=x.dtype, device=device)  # (R, T)
    left = (torch.searchsorted(x, grid, right=True) - 1).clamp(0, x.shape[1] - 2)
    start, end = x.gather(1, left), x.gather(1, left + 1)
    step = torch.where(end > start, end - start, 1.0)
    ranks = left + ((grid - start) / step).clamp(0, 1)  # (R, T)
    (slope,) = torch.gradient(_smooth(ranks), dim=1)
    (bend,) = torch.gradient(slope, dim=1)
    return grid.gather(1, bend.argmin(dim=1, keepdim=True))[:, 0]


def _smooth(curves: Tensor) -> Tensor:
    """Curves (R, T) under a Gaussian of 20 points, cut at 80; ends are mirrored, their last point twice."""
    offsets = torch.arange(-RADIUS, RADIUS + 1, dtype=curves.dtype, device=curves.device)
    kernel = torch.exp(-0.5 * (offsets / SIGMA).square())
    padded = torch.cat([curves[:, :RADIUS].flip(1), curves, curves[:, -RADIUS:].flip(1)], dim=1)
    spectrum = torch.fft.rfft(padded, LENGTH) * torch.fft.rfft(kernel / kernel.sum(), LENGTH)
    return torch.fft.irfft(spectrum, LENGTH)[:, 2 * RADIUS : 2 * RADIUS + curves.shape[1]]


class LowAttention(nn.Module):
    """For how many images of all so far each patch was little looked at, block by block: (L, P)."""

    def __init__(self, blocks: int, patches: int, margin: float, device: torch.device):
        super().__init__()
        self.margin = margin
        self.register_buffer("total", torch.zeros(blocks, patches, dtype=torch.float64, device=device))
        self.register_buffer("images", torch.zeros((), dtype=torch.float64, device=device))

    def add(self, rows: Tensor, labels: Tensor) -> None:
        """Look at rollouts (B, L, P) of images of these classes (B,)."""
        low = rows.double() <= self.limits(rows.double(), labels)[..., None]
        self.total += low.sum(dim=0)
        self.images += len(rows)

    def limits(self, rows: Tensor, labels: Tensor) -> Tensor:
        """What is little attention of each image in each block, (B, L): its own rollout decides."""
        return split_points(rows, self.margin)

    def mean(self) -> Tensor:
        """The share of images (L, P) for which a patch was little looked at."""
        return self.total / self.images
