"""Null spaces of covariances, and an Adam whose finished update is projected."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cl_bench import seeds
from cl_bench.errors import InputError
from cl_bench.nn.subspaces import directions_needed

Nullity = Literal["official", "paper"]
Step = Literal["projected", "direction", "size"]
Projection = tuple[torch.nn.Parameter, Callable[[Tensor], Tensor]]  # a parameter, and what its update becomes


def nullity(spectrum: np.ndarray, rule: Nullity) -> int:
    """R in 1..n-1: how many of the n singular values (descending) count as zero.

    It is found by the corner of the L-shaped curve. `paper`: NSP2 paper, eq. 28: R = n - argmax_j (s_{j-1} -
    2 s_j + s_{j+1}), j counted from 1, the corner itself excluded. `official`: the published code. The corner
    belongs to the null space; from n = 128 on the curve is first smoothed (Gaussian, sigma 10, cut at 4
    sigma, reflecting ends) and the first and last floor(0.015 n) second differences are ignored.
    """
    spectrum = np.asarray(spectrum, dtype=np.float64)
    n = len(spectrum)
    if n < 3:
        raise ValueError(f"the nullity needs at least 3 singular values, got {n}: use at least 3 prompts")
    if rule == "paper":
        return n - 2 - int(np.argmax(np.diff(spectrum, 2)))
    from scipy.ndimage import gaussian_filter1d  # takes a fifth of a second to import

    smooth = gaussian_filter1d(spectrum, 10, truncate=4.0, mode="reflect") if n >= 128 else spectrum
    trim = int(0.03 * n / 2) if n >= 128 else 0
    curvature = np.diff(smooth, 2)
    corner = trim + 1 + int(np.argmax(curvature[trim : n - 2 - trim]))
    if spectrum[corner] > 0:  # of equal values the last; zeros differ by rounding alone, and all are null
        corner = int(np.flatnonzero(spectrum >= spectrum[corner])[-1])
    return n - corner


def require_null_space(prompts: int) -> None:
    """Raise InputError for fewer prompts than a nullity can be found for."""
    if prompts < 3:
        few = f"b2=on needs at least 3 prompts for a null space, got prompts={prompts}"
        raise InputError(f"{few}; give b2=off or more prompts")


def null_projector(covariance: Tensor, rule: Nullity | int) -> tuple[Tensor, int]:
    """Pi = U0 U0' (n, n) onto the span of the eigenvectors of the R smallest eigenvalues, and R; float64.

    `rule` is a nullity rule, or R itself.
    """
    eigenvalues, vectors = torch.linalg.eigh(covariance)  # ascending
    rank = rule if isinstance(rule, int) else nullity(eigenvalues.flip(0).clamp(min=0).cpu().numpy(), rule)
    null = vectors[:, :rank]
    return null @ null.T, rank


def leading_projectors(C: Tensor, energy: float, norm: str) -> tuple[Tensor, list[int]]:
    """U U' of every layer's C (L, n, n), float32, and how many directions U has.

    They are the fewest leading eigenvectors with the part `energy` of tr(C); with `norm="fro"` U U' is
    divided by its Frobenius norm, the root of their number.
    """
    found, counts = torch.zeros_like(C), []
    for layer, covariance in enumerate(C):
        values, vectors = torch.linalg.eigh(covariance)  # ascending
        values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
        counts.append(directions_needed(values, values.new_zeros(()), energy))
        U = vectors[:, : counts[-1]]
        found[layer] = U @ U.T / (counts[-1] ** 0.5 if norm == "fro" else 1.0)
    return found.float(), counts


def random_projector(n: int, rank: int, generator: torch.Generator) -> Tensor:
    """Projector (n, n), float64, onto a uniformly random subspace of the given rank."""
    basis, _ = torch.linalg.qr(torch.randn(n, rank, dtype=torch.float64, generator=generator))
    return basis @ basis.T


class ProjectedAdam(torch.optim.Adam):
    """torch's Adam, then P <- P_before + project(P_after - P_before) for the parameters of `projections`.

    The moments are never projected.
    """

    def __init__(self, parameters, projections: Sequence[Projection], **settings):
        super().__init__(parameters, **settings)
        self.projections = projections

    @torch.no_grad()
    def step(self, closure=None):
        """One Adam step with the projected updates."""
        before = [parameter.clone() for parameter, _ in self.projections]
        loss = super().step(closure)
        for (parameter, project), old in zip(self.projections, before, strict=True):
            parameter.copy_(old + project(parameter - old))
        return loss


def adam(parameters, projections: Sequence[Projection], **settings) -> torch.optim.Adam:
    """A new Adam whose finished updates are projected where there are projections."""
    if projections:
        return ProjectedAdam(parameters, projections, **settings)
    return torch.optim.Adam(parameters, **settings)


def keep_norm_outside(K: Tensor, old: Tensor, outside_of: Callable[[Tensor], Tensor]) -> Tensor:
    """K (n, D) with each row's part outside a protected subspace as long as it is in `old` (n, D).

    Where the part inside is that of `old`, the cosine of a row with every protected vector is then that of
    `old` too.
    """
    outside, outside_old = outside_of(K), outside_of(old)
    length, length_old = (part.norm(dim=1, keepdim=True) for part in (outside, outside_old))
    return K - outside + outside * (length_old / length.clamp(min=torch.finfo(K.dtype).tiny))


def shares_outside_null(deltas: Tensor, C: Tensor, rule: Nullity) -> list[float]:
    """|delta - delta Pi| / |delta| of every layer's update (L, M, D), 0 where nothing moved.

    Pi is the projector onto the null space of the layer's C (L, D, D).
    """
    shares = []
    for delta, covariance in zip(deltas.double(), C, strict=True):
        outside = delta - delta @ null_projector(covariance, rule)[0] if delta.any() else delta
        shares.append(float(outside.norm() / delta.norm()) if delta.any() else 0.0)
    return shares


def fused_projection(
    C: Tensor,
    eta: float,
    rule: Nullity,
    norm: str,
    subspace: str = "nsp",
    generator: torch.Generator | None = None,
) -> tuple[Tensor, int]:
    """eta B + (1 - eta) I (n, n) of a covariance C (n, n), and the nullity R; Algorithm 2.

    B = Pi / ||Pi||_F = Pi / sqrt(R) with `norm="fro"`, Pi itself with "none". In place of the null space's
    Pi, "random" takes a random subspace of the same R and "iso" the identity, whose multiple then is what a
    null direction gets. "range" takes I - Pi, the protected space, over the same sqrt(R): null and protected
    directions change places.
    """
    Pi, R = null_projector(C, rule)
    I = torch.eye(len(C), dtype=C.dtype, device=C.device)
    if subspace == "random":
        Pi = random_projector(len(C), R, generator).to(C)
    elif subspace == "iso":
        Pi = I
    elif subspace == "range":
        Pi = I - Pi
    B = Pi / R**0.5 if norm == "fro" else Pi
    return eta * B + (1 - eta) * I, R


def between(B2: Tensor | None, U: Tensor, B1: Tensor | None) -> Tensor:
    """B2 U B1 of an update U (L, M, D); None is the identity."""
    U = U if B1 is None else U @ B1
    return U if B2 is None else B2 @ U


def stepping(project: Callable[[Tensor], Tensor], step: Step) -> Callable[[Tensor], Tensor]:
    """A projection of updates U (..., M, D) of which one part is kept, in each matrix by itself.

    `direction` is the projected update's, as long (Frobenius norm) as U; `size` is U, as long as the
    projected update; `projected` has both. What has no direction stays 0.
    """
    if step == "projected":
        return project

    def kept(U: Tensor) -> Tensor:
        projected = project(U)
        return _as_long_as(U, projected) if step == "direction" else _as_long_as(projected, U)

    return kept


def _as_long_as(lengths: Tensor, directions: Tensor) -> Tensor:
    """Matrices (..., M, D) with the Frobenius norms of one tensor and the directions of another."""
    wanted, own = (X.double().norm(dim=(-2, -1), keepdim=True) for X in (lengths, directions))
    factor = torch.where(own > 0, wanted / own, torch.zeros_like(own))
    return (directions.double() * factor).to(directions.dtype)


def ln_loss(P: Tensor, P_prev: Tensor, reduction: str) -> Tensor:
    """L_LN (eq. 27): change of every prompt's mean and (biased) standard deviation, summed over blocks."""
    of_mean = (P.mean(2) - P_prev.mean(2)).abs()  # (L, M)
    of_std = (P.std(2, correction=0) - P_prev.std(2, correction=0)).abs()
    drift = of_mean + of_std
    return drift.sum() if reduction == "l1" else drift.mean(1).sum()


def fused_projections(
    C: Tensor, eta: float, rule: Nullity, norm: str, subspace: str, key: tuple, blocks: int = 1
) -> tuple[Tensor, list[int]]:
    """`fused_projection` of every layer's C (L, n, n), or of its diagonal blocks, and the layers' nullities.

    `key` seeds random ones.
    """
    found, nullities, width = torch.zeros_like(C), [], C.shape[1] // blocks
    for layer in range(len(C)):
        R = 0
        for block in range(blocks):
            part = slice(block * width, (block + 1) * width)
            generator = seeds.generator(*key, layer, *([block] if blocks > 1 else []))
            found[layer, part, part], rank = fused_projection(
                C[layer, part, part], eta, rule, norm, subspace, generator
            )
            R += rank
        nullities.append(R)
    return found, nullities
