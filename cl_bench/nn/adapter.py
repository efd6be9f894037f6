"""Bottleneck adapters beside MLPs (AdaptFormer: Chen et al., NeurIPS 2022) or attentions of frozen blocks."""

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

    activation = staticmethod(F.relu)

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
        return self.scale * self.adapted(l, x) if l < len(self.down) else None

    def adapted(self, l: int, x: Tensor) -> Tensor:
        """up(dropout(activation(down x))) (B, N, D)."""
        return self.through(x, self.down[l], self.down_bias[l], self.up[l], self.up_bias[l])

    def through(self, x: Tensor, down: Tensor, down_bias: Tensor, up: Tensor, up_bias: Tensor) -> Tensor:
        """The same by a block's weights and biases, its own or others in their place."""
        hidden = self.activation(F.linear(x, down, down_bias))  # (B, N, r)
        return F.linear(F.dropout(hidden, self.dropout, self.training), up, up_bias)


class AttentionAdapters(Adapters):
    """attention(h) + s up(gelu(down h)) in the first L blocks, h attention's normalized input.

    s (L,) are learned and start at 1.
    """

    activation = staticmethod(F.gelu)
    beside_mlp = Edits.beside_mlp

    def __init__(self, depth: int, width: int, bottleneck: int, generator: torch.Generator):
        super().__init__(depth, width, bottleneck, generator)
        self.scale = nn.Parameter(torch.ones(depth))

    def beside_attention(self, l: int, h: Tensor) -> Tensor | None:
        """s up(gelu(down h)) (B, N, D)."""
        return self.scale[l] * self.adapted(l, h) if l < len(self.down) else None
