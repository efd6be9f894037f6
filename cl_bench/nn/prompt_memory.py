"""Prompts that two linear maps a block make of an image's query, and their alignment with others."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.nn.prompts import JoinedPrompts
from cl_bench.nn.transport import matching


class PromptMemory(nn.Module):
    """P_l = U_l relu(V_l q): m prompts for each of L blocks.

    V is (L, h, D), U (L, m D, h), each drawn as torch.nn.Linear draws it: U(-1/sqrt(k), 1/sqrt(k)), k its
    last dimension.
    """

    def __init__(self, layers: int, length: int, width: int, hidden: int, generator: torch.Generator):
        super().__init__()
        V, U = torch.empty(layers, hidden, width), torch.empty(layers, length * width, hidden)
        for part in (V, U):
            bound = part.shape[2] ** -0.5
            part.uniform_(-bound, bound, generator=generator)
        self.V, self.U = nn.Parameter(V), nn.Parameter(U)

    def units(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """relu(V q) (L, B, h), and the prompts of all blocks, each block's as one row, (L, B, m D)."""
        h = F.relu(q @ self.V.mT)
        return h, h @ self.U.mT

    def joined(self, prompts: Tensor) -> JoinedPrompts:
        """The edits that such prompts (L, B, m D) make."""
        return JoinedPrompts(dict(enumerate(prompts.unflatten(2, (-1, self.V.shape[2])))))

    def aligned(self, l: int, reference: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """V_l and U_l in the order of a reference's (V, U), float64, each with the plan T of `matching`.

        First hidden units are matched, then outputs, whose inputs are in the new order.
        """
        V, U, R_V, R_U = (part[l].detach().double() for part in (self.V, self.U, *reference))
        T_V = matching(V, V, R_V)
        ordered = U @ T_V
        T_U = matching(U, ordered, R_U)
        return [(T_V.T @ V, T_V), (T_U.T @ ordered, T_U)]


def stretched(values: Tensor) -> Tensor:
    """Values as shares of the way from the least to the largest of them, in [0, 1]."""
    low, high = values.aminmax()
    return (values - low) / (high - low).clamp(min=1e-9)
