"""Low-rank adaptation (LoRA): B A beside frozen linear maps of the blocks (Hu et al., ICLR 2022)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from cl_bench.errors import InputError
from cl_bench.nn.edits import Edits

QKV = "qkv"  # targets whose maps are thirds of one


class LoRA(nn.Module, Edits):
    """y = W x + scale B A x for queries, keys or values ("q", "k", "v") of the first L blocks.

    A is (L, T, r, D) and B (L, T, D', r), T targets. A starts as U(-1/sqrt(D), 1/sqrt(D)), B as zero, so that
    the network starts as it is.
    """

    def __init__(
        self, depth: int, width: int, rank: int, targets: Sequence[str], generator: torch.Generator,
        scale: float = 1.0,
    ):  # fmt: skip
        super().__init__()
        unknown = [target for target in targets if target not in QKV]
        if unknown or not targets or len(set(targets)) < len(targets):
            expected = "letters of qkv, each at most once, such as qv"
            raise InputError(f"targets={''.join(targets)!r} is not usable; expected {expected}")
        self.targets, self.scale, self.width = sorted(QKV.index(target) for target in targets), scale, width
        bound = width**-0.5
        A = torch.empty(depth, len(targets), rank, width)
        self.A = nn.Parameter(A.uniform_(-bound, bound, generator=generator))
        self.B = nn.Parameter(torch.zeros(depth, len(targets), width, rank))

    def linear(self, l: int, name: str, own: nn.Module) -> Callable[[Tensor], Tensor]:
        """The block's qkv map with what is learned beside it."""
        if name != "qkv" or l >= len(self.A):
            return own
        return lambda x: own(x) + self.beside(l, x)

    def beside(self, l: int, x: Tensor) -> Tensor:
        """scale B A x (B, N, 3 D), zero where there is no target."""
        low = (x @ self.A[l].flatten(0, 1).T).unflatten(-1, (len(self.targets), -1))  # (B, N, T, r)
        parts = [low.new_zeros(x.shape)] * 3
        for place, target in enumerate(self.targets):
            parts[target] = self.strength(l, place) * low[..., place, :] @ self.B[l, place].T
        return torch.cat(parts, dim=-1)

    def strength(self, l: int, place: int) -> float | Tensor:
        """The scale of a block's target, the same for all."""
        return self.scale


class ScaledLoRA(LoRA):
    """The same with a learned scale (L, T) for each block and target; all start at 1."""

    def __init__(self, depth: int, width: int, rank: int, targets: Sequence[str], generator: torch.Generator):
        super().__init__(depth, width, rank, targets, generator)
        self.scale = nn.Parameter(torch.ones(depth, len(targets)))

    def strength(self, l: int, place: int) -> Tensor:
        """The learned scale."""
        return self.scale[l, place]
