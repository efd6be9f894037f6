"""Bottleneck adapters beside the MLPs of frozen blocks (AdaptFormer: Chen et al., NeurIPS 2022)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.nn.edits import Edits


class Adapters(nn.Module, Edits):
    """MLP(norm2(x)) + scale up(dropout(relu(down x))) in the first L blocks.

    down is (L, r, D), up (L, D, r), both with bias. Down starts as U(-1/sqrt(D), 1/sqrt(D)) with zero bias,
    up as zero, so that the network starts as it is. Dropout is on while the method is trained, and off
    everywhere else.
    """

    def __init__(
        self, depth: int, width: int, bottleneck: int, generator: torch.Generator, scale: float = 0.1,
        dropout: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        self.scale, self.dropout = scale, dropout
        bound = width**-0.5
        down = torch.empty(depth, bottleneck, width).uniform_(-bound, bound, generator=generator)
        self.down = nn.Parameter(down)
        self.down_bias = nn.Parameter(torch.zeros(depth, bottleneck))
        self.up = nn.Parameter(torch.zeros(depth, width, bottleneck))
        self.up_bias = nn.Parameter(torch.zeros(depth, width))
        self.train(False)

    def beside_mlp(self, l: int, x: Tensor) -> Tensor | None:
        """scale up(relu(down x)) (B, N, D)."""
        if l >= len(self.down):
            return None
        hidden = F.relu(F.linear(x, self.down[l], self.down_bias[l]))  # (B, N, r)
        hidden = F.dropout(hidden, self.dropout, self.training)
        return self.scale * F.linear(hidden, self.up[l], self.up_bias[l])
