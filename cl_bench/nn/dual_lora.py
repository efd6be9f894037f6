"""Low-rank updates of two kinds: of all tasks in the first blocks, of one task each in the others."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.nn.edits import Edits
from cl_bench.nn.lora import LoRA


class OrthonormalLoRA(LoRA):
    """A LoRA each of whose A starts with orthonormal rows: those of a QR decomposition of U(0, 1)^{D x r}."""

    def __init__(self, depth: int, width: int, rank: int, targets: Sequence[str], generator: torch.Generator):
        super().__init__(depth, width, rank, targets, generator)
        drawn = torch.empty_like(self.A.mT).uniform_(generator=generator)
        self.A = nn.Parameter(torch.linalg.qr(drawn)[0].mT.contiguous())


class SharedLoRA(OrthonormalLoRA):
    """One whose A stays as it starts, and whose B is remembered, `old_B` (L, T, D, r)."""

    def __init__(self, depth: int, width: int, rank: int, targets: Sequence[str], generator: torch.Generator):
        super().__init__(depth, width, rank, targets, generator)
        self.A.requires_grad_(False)
        self.register_buffer("old_B", torch.zeros_like(self.B), persistent=False)

    def remember(self) -> None:
        """B as it is now becomes the old one."""
        self.old_B.copy_(self.B.detach())

    def row_weights(self) -> Tensor:
        """D |u_i| / sum_j |u_j| of the rows u of every old B, (L, T, D): 1 on average."""
        norms = self.old_B.norm(dim=3)
        return self.width * norms / norms.sum(dim=2, keepdim=True).clamp(min=torch.finfo(norms.dtype).tiny)


class Remembered(Edits):
    """A shared LoRA with the B that it remembers."""

    def __init__(self, lora: SharedLoRA):
        self.lora = lora

    def linear(self, l: int, name: str, own: nn.Module) -> Callable[[Tensor], Tensor]:
        """The block's qkv map with what was learned beside it."""
        if name != "qkv" or l >= len(self.lora.A):
            return own
        A, B = self.lora.A[l], self.lora.old_B[l]
        return lambda x: own(x) + self.lora.added(l, x, A, B)


class WeightedLoRA(OrthonormalLoRA):
    """One with a learned weight of every block and row of weights, which start from U(0.5, 1.5).

    `rows` has a letter for each row of the weights (rows, L), that of the target which it belongs to; rows of
    others are used for nothing.
    """

    def __init__(
        self, depth: int, width: int, rank: int, targets: Sequence[str], generator: torch.Generator, rows: str
    ):
        super().__init__(depth, width, rank, targets, generator)
        self.weights = nn.Parameter(torch.empty(len(rows), depth).uniform_(0.5, 1.5, generator=generator))
        self.row_of = [rows.index("qkv"[target]) for target in self.targets]

    def strength(self, l: int, place: int) -> Tensor:
        """The weight of a block's target."""
        return self.weights[self.row_of[place], l]


class Joined(Edits):
    """Some edits in so many first blocks, others in the rest."""

    def __init__(self, first: Edits, rest: Edits, blocks: int):
        self.first, self.rest, self.blocks = first, rest, blocks

    def linear(self, l: int, name: str, own: nn.Module) -> Callable[[Tensor], Tensor]:
        """The map as the edits of its block have it."""
        if l < self.blocks:
            return self.first.linear(l, name, own)
        return self.rest.linear(l - self.blocks, name, own)


def likeness(weights: Tensor, old: Sequence[Tensor]) -> Tensor:
    """The mean of |cos| of weights with those of others, all entries of each as one vector."""
    units = [F.normalize(own.flatten(), dim=0, eps=1e-8) for own in (weights, *old)]
    return torch.stack([(units[0] @ unit).abs() for unit in units[1:]]).mean()
