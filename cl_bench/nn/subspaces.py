"""Growing orthonormal bases of what old tasks used (GPM: Saha et al., ICLR 2021), and random controls."""

import torch
from torch import Tensor, nn


class Subspaces(nn.Module):
    """Bases M (..., D, r) of protected directions, one for each of the leading indices.

    They are kept as (..., D, D) with columns of zeros behind. Two controls protect them in name only: with a
    `generator` updates are kept out of equally many random directions instead, with `opposite` inside.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        device: torch.device,
        generator: torch.Generator | None = None,
        opposite: bool = False,
    ):
        """Nothing is protected yet; `shape` is (..., D, D)."""
        super().__init__()
        self.register_buffer("M", torch.zeros(shape, dtype=torch.float64, device=device))
        self._random, self._opposite = None, opposite
        if generator is not None:
            drawn = torch.randn(shape, dtype=torch.float64, generator=generator)
            self._random = torch.linalg.qr(drawn)[0].to(device)
        self.active = self.M[..., :0].float()
        self.active_ranks = torch.zeros(*shape[:-2], 1, 1, dtype=torch.long, device=device)

    def ranks(self) -> list[int]:
        """How many directions r every basis holds."""
        return self.M.any(dim=-2).sum(dim=-1).flatten().tolist()

    @property
    def empty(self) -> bool:
        """Whether nothing is protected since `refresh`."""
        return self.active.shape[-1] == 0

    def refresh(self) -> None:
        """Use the bases as they are now in `outside` and `share_inside`."""
        ranks = torch.tensor(self.ranks(), device=self.M.device).view(*self.M.shape[:-2], 1, 1)
        directions = self.M
        if self._random is not None:
            directions = self._random * (torch.arange(self.M.shape[-1], device=self.M.device) < ranks)
        self.active = directions[..., : int(ranks.max())].float()  # (..., D, r)
        self.active_ranks = ranks

    def outside(self, X: Tensor, part: slice = slice(None)) -> Tensor:
        """X - X M M^T for rows X (..., n, D), X M M^T if `opposite`; X itself while nothing is protected.

        `part` says which of the first index's bases X belongs to.
        """
        if self.empty:
            return X
        M = self.active[part]
        inside = (X @ M) @ M.mT
        return inside if self._opposite else X - inside

    def share_inside(self, X: Tensor) -> float:
        """|X M| / |X|, 0 where X is 0."""
        return float((X @ self.active).norm() / X.norm()) if X.any() else 0.0

    def grow(self, A: Tensor, energy: float, powers: str, rank_rule: str, first: bool) -> None:
        """Extend every basis by the second moments A (..., D, D) of the rows of a task, see `grown_basis`."""
        for M, moments, rank in zip(self.M.flatten(0, -3), A.flatten(0, -3), self.ranks(), strict=True):
            basis = grown_basis(M[:, :rank], moments, energy, powers, rank_rule, first)
            M[:, : basis.shape[1]] = basis


def grown_basis(
    M: Tensor, A: Tensor, energy: float, powers: str = "sigma2", rank_rule: str = "geq", first: bool = True
) -> Tensor:
    """[M, new directions] (D, r'), orthonormal, r' <= D - 1, that capture the part `energy` of tr(A) (GPM).

    New directions are the fewest eigenvectors of A outside span(M) that reach it.
    With `sigma4_asis` A is squared before: the public code of PGP decomposes Z Z' where GPM decomposes Z, so
    that its energies are fourth powers. With `lt_asis` the first basis has, as there, the most directions
    that stay below `energy`; later ones reach it.
    """
    D, r = A.shape[0], M.shape[1]
    A = A @ A if powers == "sigma4_asis" else A
    outside = torch.eye(D, dtype=A.dtype, device=A.device) - M @ M.T
    values, vectors = torch.linalg.eigh(outside @ A @ outside)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    captured = (M.T @ A @ M).diagonal().sum()
    count = directions_needed(values, captured, energy, rank_rule == "lt_asis" and first)
    count = min(count, D - 1 - r)
    basis, _ = torch.linalg.qr(torch.cat([M, vectors[:, :count]], dim=1))
    return basis


def directions_needed(energies: Tensor, inside: Tensor, energy: float, below: bool = False) -> int:
    """The fewest of the descending energies (f,) that reach, with what is inside, the part `energy` of all.

    `below`: the most that stay below it.
    """
    total, reached = energies.sum() + inside, energies.cumsum(0)
    missing = energy * total - inside
    if below:
        return int((reached < missing).sum())
    rounding = 1e-12 * total  # must not let energy=1 ask for more than there is
    return 0 if missing <= rounding else int((reached < missing - rounding).sum()) + 1


def orthonormal_beside(drawn: Tensor, earlier: Tensor, rule: str) -> Tensor:
    """Rows (layers, n, D) made from `drawn`, orthonormal and orthogonal to `earlier` (layers, m, D).

    `classical`, as published: each row loses its projection on every row before it once, which leaves it
    orthogonal only to orthonormal ones.
    """
    if drawn.is_meta:  # planning asks for shapes alone
        return drawn
    if rule == "qr":
        basis = torch.linalg.qr(torch.cat([earlier, drawn], dim=1).double().mT)[0]  # (layers, D, m + n)
        return basis[..., earlier.shape[1] :].mT.to(drawn.dtype).contiguous()
    rows = list(earlier.unbind(1))
    for row in drawn.unbind(1):  # (layers, D)
        projections = [
            (row * other).sum(1, keepdim=True) / (other * other).sum(1, keepdim=True) * other
            for other in rows
        ]
        row = row - sum(projections) if projections else row
        rows.append(row / row.norm(dim=1, keepdim=True))
    return torch.stack(rows[earlier.shape[1] :], dim=1)


def orthogonality_loss(X: Tensor) -> Tensor:
    """Mean squared entry of X X^T - I for rows X (..., n, D), summed over the leading indices."""
    return (X @ X.mT - torch.eye(X.shape[-2], device=X.device)).square().mean((-2, -1)).sum()


def principal_scores(X: Tensor, components: int) -> Tensor:
    """Scores (n, c) of the centered rows of X (n, F) on its first min(components, n, F) principal components.

    float64; the largest entry of each column in absolute value is positive.
    """
    gram = X.double() @ X.double().T if X.shape[1] < 4 * X.shape[0] else (X @ X.T).double()
    gram = gram - gram.mean(0, keepdim=True) - gram.mean(1, keepdim=True) + gram.mean()
    values, vectors = torch.linalg.eigh(gram)
    count = min(components, *X.shape)
    values, vectors = values.flip(0)[:count].clamp(min=0), vectors.flip(1)[:, :count]
    signs = vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    return vectors * signs * values.sqrt()
