"""Low-rank adaptation (LoRA): B A beside frozen linear maps of the blocks (Hu et al., ICLR 2022)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.errors import InputError
from cl_bench.nn.edits import Edits

QKV = "qkv"  # targets whose maps are thirds of one
ATTENTION = ("qkv", "proj")  # maps of a block's attention; others are of its MLP


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
        return self.added(l, x, *self.pairs(l))

    def added(self, l: int, x: Tensor, A: Tensor, B: Tensor) -> Tensor:
        """The same by A (T, r, D) and B (T, D', r), a block's own or others in their place."""
        low = (x @ A.flatten(0, 1).T).unflatten(-1, (len(self.targets), -1))  # (B, N, T, r)
        parts = [low.new_zeros(x.shape)] * 3
        for place, target in enumerate(self.targets):
            parts[target] = self.strength(l, place) * low[..., place, :] @ B[place].T
        return torch.cat(parts, dim=-1)

    def pairs(self, l: int) -> tuple[Tensor, Tensor]:
        """A (T, r, D) and B (T, D', r) of a block."""
        return self.A[l], self.B[l]

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


class DecoupledLoRA(LoRA):
    """Frozen directions and learned magnitudes of old pairs, and a pair that is learned now.

    y = W x + sum_i alpha_i B_i A_i x / (||B_i|| ||A_i||) + alpha_t B_t A_t x, over i < t, Frobenius norms.
    The directions stand side by side in `old_A` (L, T, R, D) and `old_B` (L, T, D, R), R the sum of their
    ranks; alpha (t,) is shared by all blocks and targets.
    """

    def __init__(self, depth: int, width: int, targets: Sequence[str]):
        """There is no pair until `grow`."""
        super().__init__(depth, width, 0, targets, torch.Generator())
        self.alpha = nn.Parameter(self.A.new_zeros(0))
        self.register_buffer("ranks", torch.zeros(0, dtype=torch.long), persistent=False)
        for name in ("A", "B"):
            self.register_buffer(f"old_{name}", getattr(self, name).detach().clone())

    @torch.no_grad()
    def grow(self, rank: int, magnitudes: Tensor, generator: torch.Generator) -> None:
        """The pair so far becomes a direction; add one of so many directions, and set all magnitudes (t,)."""
        units = (F.normalize(part.flatten(2), dim=2).view_as(part) for part in (self.A, self.B))
        for name, unit, dim in zip(("old_A", "old_B"), units, (2, 3), strict=True):
            setattr(self, name, torch.cat([getattr(self, name), unit], dim=dim))
        bound, shape = self.width**-0.5, (*self.A.shape[:2], rank, self.width)
        A = torch.empty(shape).uniform_(-bound, bound, generator=generator)
        self.A = nn.Parameter(A.to(self.old_A))
        self.B = nn.Parameter(torch.zeros_like(self.A.mT))
        self.alpha = nn.Parameter(magnitudes.to(self.old_A))
        self.ranks = torch.cat([self.ranks, self.ranks.new_full((1,), rank)])

    def pairs(self, l: int) -> tuple[Tensor, Tensor]:
        """Directions, and behind them the newest pair: (T, R + r, D) and (T, D, R + r)."""
        return torch.cat([self.old_A[l], self.A[l]], dim=1), torch.cat([self.old_B[l], self.B[l]], dim=2)

    def strength(self, l: int, place: int) -> Tensor:
        """alpha of every pair, for each of its ranks, (R + r,)."""
        size = self.old_A.shape[2] + self.A.shape[2]
        return self.alpha.repeat_interleave(self.ranks, output_size=size)

    def products(self) -> float:
        """Multiply-adds of a token beside all blocks."""
        return float(sum(part.numel() for part in (self.old_A, self.old_B, self.A, self.B)))


class InWeights(Edits):
    """The same as a LoRA, whose updates are added to the weights: a token takes no work more."""

    def __init__(self, lora: LoRA):
        self.lora = lora

    def linear(self, l: int, name: str, own: nn.Module) -> Callable[[Tensor], Tensor]:
        """The block's qkv map, of weight W + scale B A."""
        lora = self.lora
        if name != "qkv" or l >= len(lora.A):
            return own
        A, B = lora.pairs(l)
        parts = [A.new_zeros(lora.width, lora.width)] * 3
        for place, target in enumerate(lora.targets):
            parts[target] = lora.strength(l, place) * B[place] @ A[place]
        weight = own.weight + torch.cat(parts)
        return lambda x: F.linear(x, weight, own.bias)


class SuccessiveLoRA(nn.Module, Edits):
    """y = W x + B A x for keys and values of the first L blocks, where B A can be merged into W.

    W (L, 2 D, D) starts as the network's own, keys above values. A (L, r, D) is frozen, the same for both,
    and given by the method; B (L, 2 D, r) is trained. However many updates are merged, a token takes no more
    work than with one.
    """

    def __init__(self, blocks: Sequence[nn.Module], rank: int):
        super().__init__()
        own = [block.attn.qkv.weight.detach() for block in blocks]
        W = torch.stack([weight[len(weight) // 3 :] for weight in own])
        self.register_buffer("W", W)
        self.register_buffer("A", W.new_zeros(len(W), rank, W.shape[2]))
        self.B = nn.Parameter(W.new_zeros(len(W), W.shape[1], rank))

    @torch.no_grad()
    def merge(self) -> None:
        """W + B A becomes W, and B zero."""
        self.W += self.B @ self.A
        self.B.zero_()

    def linear(self, l: int, name: str, own: nn.Linear) -> Callable[[Tensor], Tensor]:
        """The block's qkv map with its own queries."""
        if name != "qkv" or l >= len(self.W):
            return own
        queries = len(own.weight) // 3
        weight, bias = torch.cat([own.weight[:queries], self.W[l]]), own.bias  # (3 D, D)
        A, B = self.A[l], F.pad(self.B[l], (0, 0, queries, 0))  # (r, D), (3 D, r)
        return lambda x: F.linear(x, weight, bias) + F.linear(F.linear(x, A), B)


class WholeLoRA(nn.Module, Edits):
    """y = W x + scale B A x for whole linear maps of all blocks, which are named as in `Edits.linear`.

    Of every name A is (L, r, D) and B (L, D', r). B starts as zero, so that the network starts as it is; A is
    zero until `start`.
    """

    def __init__(self, blocks: Sequence[nn.Module], rank: int, names: Sequence[str], scale: float = 1.0):
        super().__init__()
        self.scale, self.A, self.B = scale, nn.ParameterDict(), nn.ParameterDict()
        for name in names:
            W, L = weights(blocks, name)[0], len(blocks)
            if rank > min(W.shape):
                has = f"{name} of a block has {min(W.shape)} directions"
                raise InputError(f"rank={rank}, but {has}; give at most as many")
            self.A[name] = nn.Parameter(torch.zeros(L, rank, W.shape[1], device=W.device))
            self.B[name] = nn.Parameter(torch.zeros(L, W.shape[0], rank, device=W.device))

    @torch.no_grad()
    def start(self, blocks: Sequence[nn.Module]) -> None:
        """A becomes the leading right singular vectors of every W."""
        for name, A in self.A.items():
            for l, W in enumerate(weights(blocks, name)):
                A[l] = leading_inputs(W, A.shape[1])

    def linear(self, l: int, name: str, own: nn.Module) -> Callable[[Tensor], Tensor]:
        """The block's map with what is learned beside it."""
        if name not in self.A:
            return own
        A, B = self.A[name][l], self.B[name][l]
        return lambda x: own(x) + self.scale * F.linear(F.linear(x, A), B)


def weights(blocks: Sequence[nn.Module], name: str) -> list[Tensor]:
    """The weight (D', D) of every block's linear map of this name. Raises InputError where there is none."""
    found = [getattr(block.attn if name in ATTENTION else block.mlp, name, None) for block in blocks]
    if not all(isinstance(part, nn.Linear) for part in found):
        raise InputError(f"LoRA beside {name} needs blocks with such a linear map; choose another backbone")
    return [part.weight for part in found]


def leading_inputs(W: Tensor, rank: int) -> Tensor:
    """The `rank` leading right singular vectors (rank, D) of W (D', D), by its smaller Gram matrix."""
    X = W.double()
    if X.shape[0] >= X.shape[1]:
        return torch.linalg.eigh(X.T @ X).eigenvectors.flip(1)[:, :rank].T.to(W.dtype)
    left = torch.linalg.eigh(X @ X.T).eigenvectors.flip(1)[:, :rank]  # (D', rank)
    return F.normalize(left.T @ X, dim=1).to(W.dtype)
