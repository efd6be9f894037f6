"""A network that makes a prompt of an image's token, by attention over one learned token for each class."""

import torch
from torch import Tensor, nn

from cl_bench.errors import InputError
from cl_bench.nn.heads import new_head

HEADS = 4


class PromptGenerator(nn.Module):
    r"""g: h (B, D) -> p (B, D), with a pool of tokens k_c (K, D) that grows with the classes.

    With a = LN(MLP_in(h)), keys and values of [a; k_1 .. k_K], and s = 1 / sqrt(d) for heads of d entries,
    \[ p = MLP_{out}(W_o \, s \, softmax(s \, q(a) k^T) v). \] That attention is scaled once more behind the
    softmax, so that a row sums to s, is the public code's. MLPs are Linear, GELU, Linear, with dropout behind
    both maps in training. Tokens of earlier tasks are frozen.
    """

    def __init__(self, width: int, dropout: float, generator: torch.Generator):
        super().__init__()
        if width % HEADS:
            raise InputError(f"APG attends with {HEADS} heads, and width {width} is no multiple of that")
        self.q, self.k, self.v, self.proj = (new_head(width, width, "normal", generator) for _ in range(4))
        self.mlp_in, self.mlp_out = (_mlp(width, dropout, generator) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.tokens = nn.ParameterList()
        self.train(False)

    def grow(self, classes: int, generator: torch.Generator) -> None:
        """Add tokens: of the first task from N(0, 0.02^2), of later ones from U(0, 1)."""
        tokens = torch.empty(classes, self.norm.weight.numel())
        if self.tokens:
            tokens.uniform_(generator=generator)
        else:
            tokens.normal_(std=0.02, generator=generator)
        self.tokens.requires_grad_(False)
        self.tokens.append(nn.Parameter(tokens.to(self.norm.weight.device)))

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """p (B, D), and s q k^T (B, H, K): how much each head looks at each class, before the softmax."""
        a = self.norm(self.mlp_in(h))
        pool = torch.cat(list(self.tokens))  # (K, D)
        scale = (a.shape[1] // HEADS) ** -0.5
        q = self._split(self.q(a)) * scale  # (B, H, d)
        k, v = self._split(self.k(a)), self._split(self.v(a))
        K, V = self._split(self.k(pool)), self._split(self.v(pool))  # (K, H, d)
        classes = torch.einsum("bhd,khd->bhk", q, K)
        own = (q * k).sum(dim=2, keepdim=True)  # (B, H, 1)
        attention = scale * torch.cat([own, classes], dim=2).softmax(dim=2)
        mixed = attention[..., :1] * v + torch.einsum("bhk,khd->bhd", attention[..., 1:], V)
        return self.mlp_out(self.proj(mixed.flatten(1))), classes

    def _split(self, projected: Tensor) -> Tensor:
        """(n, D) -> (n, H, d)."""
        return projected.unflatten(1, (HEADS, -1))


def _mlp(width: int, dropout: float, generator: torch.Generator) -> nn.Sequential:
    first, second = (new_head(width, width, "normal", generator) for _ in range(2))
    return nn.Sequential(first, nn.GELU(), nn.Dropout(dropout), second, nn.Dropout(dropout))
