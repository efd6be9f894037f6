"""The space of old tasks' inputs of several layers, as a basis of it or of what it leaves, the smaller one.

GPM: Saha et al., "Gradient Projection Memory for Continual Learning", ICLR 2021; its dual form: Liang & Li,
"Adaptive Plasticity Improvement for Continual Learning", CVPR 2023.
"""

import torch
from torch import Tensor, nn

from cl_bench.nn.subspaces import directions_needed


class DualGPM(nn.Module):
    """One subspace of R^D for each of L layers; it starts empty and grows from task to task.

    With X (n, D) a layer's inputs in a task, it is grown by their second moments X^T X, times any factor.
    `basis` (L, D, D // 2) holds orthonormal columns in float64, `rank` (L,) of them and zeros behind; where
    `complement` (L,) is true they span what is outside the subspace.
    """

    def __init__(self, layers: int, width: int, device: torch.device):
        super().__init__()
        columns = torch.zeros(layers, width, width // 2, dtype=torch.float64, device=device)
        self.register_buffer("basis", columns)
        self.register_buffer("rank", torch.zeros(layers, dtype=torch.long, device=device))
        self.register_buffer("complement", torch.zeros(layers, dtype=torch.bool, device=device))

    def ranks(self) -> list[int]:
        """How many dimensions each layer's subspace has."""
        return torch.where(self.complement, self.basis.shape[1] - self.rank, self.rank).tolist()

    def bases(self, layer: int) -> tuple[Tensor, Tensor]:
        """Orthonormal columns (D, k) that span the layer's subspace, and (D, D - k) that span the rest."""
        kept = self.basis[layer, :, : int(self.rank[layer])]
        other = torch.linalg.qr(kept, mode="complete")[0][:, kept.shape[1] :]
        return (other, kept) if self.complement[layer] else (kept, other)

    def outside(self, X: Tensor) -> Tensor:
        """The part of rows X (L, n, D) that is orthogonal to their layer's subspace."""
        basis = self.basis.to(X.dtype)
        along = (X @ basis) @ basis.mT
        return torch.where(self.complement[:, None, None], along, X - along)

    def leading(self, moments: Tensor, count: int, inside: bool = False) -> Tensor:
        """The directions outside along which a task's inputs have most energy, as unit rows (L, count, D).

        `moments` (L, D, D) are those of the task. Where fewer than `count` directions are outside, the rows
        behind them are zero, or with `inside` directions of the subspace, as any.
        """
        found = moments.new_zeros(len(moments), count, moments.shape[-1])
        for layer, own in enumerate(moments.double()):
            rows = self._outside(layer, own)[1].T  # (f, D)
            rows = torch.cat([rows, self.bases(layer)[0].T]) if inside else rows
            found[layer, : len(rows)] = rows[:count]
        return found

    def grow(self, moments: Tensor, energy: float, below: bool = False) -> None:
        """Add the fewest directions with which a task's `moments` (L, D, D) have the part `energy` inside.

        `below`: the most with which they have less, but at least one.
        """
        half = self.basis.shape[2]
        for layer, own in enumerate(moments.double()):
            energies, directions = self._outside(layer, own)
            count = directions_needed(energies, own.trace() - energies.sum(), energy, below)
            count = max(count, 1) if below else count
            added, left = directions.split([count, len(energies) - count], dim=1)
            if not self.complement[layer]:
                kept = torch.cat([self.basis[layer, :, : int(self.rank[layer])], added], dim=1)
            if self.complement[layer] or kept.shape[1] > half:
                kept, self.complement[layer] = left, True
            self.rank[layer] = kept.shape[1]
            self.basis[layer] = 0
            self.basis[layer, :, : kept.shape[1]] = kept

    def _outside(self, layer: int, moments: Tensor) -> tuple[Tensor, Tensor]:
        """Energies (f,) of moments (D, D) outside the subspace, descending, and their directions (D, f)."""
        free = self.bases(layer)[1]  # (D, f)
        energies, vectors = torch.linalg.eigh(free.T @ moments @ free)
        return energies.flip(0).clamp(min=0), (free @ vectors).flip(1)
