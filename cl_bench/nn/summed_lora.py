"""Low-rank updates of tasks, whose products add up; those of earlier tasks can be taken away again."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.nn.edits import Edits
from cl_bench.nn.lora import LoRA


class SummedLoRA(LoRA):
    """y = (W + sum_i B_i A_i) x + B_t A_t x, over tasks i < t, of which the newest pair learns.

    Old pairs stand side by side in `old_A` (L, T, R, D) and `old_B` (L, T, D, R), R the sum of their ranks,
    and are added to W: a token takes no more work however many there are.
    """

    def __init__(self, depth: int, width: int, targets: Sequence[str]):
        """There is no pair until `grow`."""
        super().__init__(depth, width, 0, targets, torch.Generator())
        for name in ("A", "B"):
            self.register_buffer(f"old_{name}", getattr(self, name).detach().clone())

    @torch.no_grad()
    def grow(self, rank: int, generator: torch.Generator, sparse: bool = False) -> None:
        """The pair so far becomes an old one; add one, whose A starts as U(-1/sqrt(D), 1/sqrt(D)), B as zero.

        Where it is `sparse` one entry of every column of B, at a random place, is drawn from N(0, 0.01^2).
        """
        for name, dim in (("A", 2), ("B", 3)):
            old = torch.cat([getattr(self, f"old_{name}"), getattr(self, name)], dim=dim)
            setattr(self, f"old_{name}", old)
        bound, (layers, targets) = self.width**-0.5, self.A.shape[:2]
        A = torch.empty(layers, targets, rank, self.width).uniform_(-bound, bound, generator=generator)
        B = torch.zeros(layers, targets, self.width, rank)
        if sparse:
            place, value = (torch.empty(layers, targets, 1, rank) for _ in range(2))
            place = place.uniform_(0, self.width, generator=generator).long().clamp(max=self.width - 1)
            B.scatter_(2, place, value.normal_(std=0.01, generator=generator))
        self.A, self.B = (nn.Parameter(part.to(self.old_A)) for part in (A, B))

    def sums(self, l: int) -> Tensor:
        """sum_i B_i A_i of a block's old pairs (3 D, D), zero where there is no target."""
        parts = [self.old_A.new_zeros(self.width, self.width)] * 3
        for place, target in enumerate(self.targets):
            parts[target] = self.old_B[l, place] @ self.old_A[l, place]
        return torch.cat(parts)

    def linear(self, l: int, name: str, own: nn.Linear) -> Callable[[Tensor], Tensor]:
        """The block's qkv map with all pairs."""
        if name != "qkv" or l >= len(self.A):
            return own
        weight = own.weight + self.sums(l)
        return lambda x: F.linear(x, weight, own.bias) + self.beside(l, x)


class Subtracted(Edits):
    """y = (W - sum_i B_i A_i) x: the network from which old pairs are taken, without the newest."""

    def __init__(self, lora: SummedLoRA):
        self.lora = lora

    def linear(self, l: int, name: str, own: nn.Linear) -> Callable[[Tensor], Tensor]:
        """The block's qkv map without what old pairs stand for."""
        if name != "qkv" or l >= len(self.lora.A):
            return own
        weight = own.weight - self.lora.sums(l)
        return lambda x: F.linear(x, weight, own.bias)
