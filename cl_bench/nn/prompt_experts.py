"""Prompts that a router mixes for each image, block by block, from those of experts.

The routing is that of sparsely gated mixtures of experts: Shazeer et al., "Outrageously Large Neural
Networks", ICLR 2017, arXiv 1701.06538, eq. 3 to 5, and appendix A for the loss that balances the experts.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.nn.attention import attention_with, prompt_keys_values
from cl_bench.nn.edits import Edits, Watched

LEAST_NOISE = 0.01
See = Callable[[int, Tensor, Tensor, Tensor], None]
"""(block index, queries q (B, D), gates g (B, E), load (E,)) of a batch, as it passes the block."""


def sparse_gates(logits: Tensor, k: int, twice: bool = False) -> Tensor:
    """Gates (B, E) of logits (B, E): the softmax of each row's k largest, 0 elsewhere.

    Among equal ones the first are taken. With `twice` it is the softmax of the k largest probabilities, those
    of a softmax over all E, which leaves gates of a row within a factor e of each other.
    """
    chosen = logits.argsort(dim=1, descending=True, stable=True)[:, :k]
    kept = (logits.softmax(dim=1) if twice else logits).gather(1, chosen)  # (B, k)
    return torch.zeros_like(logits).scatter(1, chosen, kept.softmax(dim=1))


def expected_load(clean: Tensor, noisy: Tensor, std: Tensor, k: int, probabilities: bool = False) -> Tensor:
    """How many rows of a batch each expert is expected among the k largest of, (E,); k < E.

    The expectation is over its own noise alone, of deviation `std`; all three are (B, E). What it has to
    exceed is the k-th largest of the others' noisy logits or, with `probabilities`, of all noisy logits'
    softmax, while it is itself compared as a logit.
    """
    ranked = noisy.softmax(dim=1) if probabilities else noisy
    out, inside = ranked.topk(k + 1, dim=1).values[:, k - 1 :].split(1, dim=1)  # k-th and next, (B, 1)
    limit = torch.where(noisy > inside, inside, out)
    return torch.special.ndtr((clean - limit) / std).sum(dim=0)


def squared_variation(values: Tensor) -> Tensor:
    """var(v) / (mean(v)^2 + eps), unbiased, of values (E,); 0 where all are equal."""
    return values.var() / (values.mean().square() + torch.finfo(values.dtype).eps)


class PromptExperts(nn.Module, Edits):
    """P (L, E, M, D), M prompts of each of E experts for the first L blocks, drawn from U(-1, 1).

    An image attends in block l to sum_e g_e P_le, with the gates g of its class token q as it enters the
    block. Their logits are q W_g; W_g and W_n (L, D, E) start as zero.
    """

    def __init__(
        self, shape: tuple[int, int, int, int], k: int, twice: bool, probabilities: bool,
        generator: torch.Generator,
    ):  # fmt: skip
        """`shape` is that of P; for k, `twice` and `probabilities` see the functions above."""
        super().__init__()
        layers, experts, _, D = shape
        self.k, self.twice, self.probabilities = k, twice, probabilities
        self.W_g, self.W_n = (nn.Parameter(torch.zeros(layers, D, experts)) for _ in range(2))
        self.P = nn.Parameter(torch.empty(shape).uniform_(-1.0, 1.0, generator=generator))

    def attend(self, l: int, block: nn.Module, x: Tensor, read: int | None = None) -> Tensor:
        """Attention over the tokens and each image's prompts, routed without noise."""
        return self._attend(l, block, x, read, noise=False, see=None)

    def watched(self, see: See, noise: bool) -> Watched:
        """The same edits, with noise or without, that show what they route."""
        return Watched(self, lambda l, block, x, read: self._attend(l, block, x, read, noise, see))

    def route(self, l: int, q: Tensor, noise: bool) -> tuple[Tensor, Tensor]:
        """Gates (B, E) of queries (B, D), and the experts' load (E,).

        With noise that is `expected_load`, else (or where all are chosen) how often they were chosen.
        """
        clean = q @ self.W_g[l]  # (B, E)
        if not noise:
            gates = sparse_gates(clean, self.k, self.twice)
            return gates, (gates > 0).sum(dim=0).to(q.dtype)
        std = F.softplus(q @ self.W_n[l]) + LEAST_NOISE
        noisy = clean + torch.randn_like(clean) * std
        gates = sparse_gates(noisy, self.k, self.twice)
        if self.k == clean.shape[1]:
            return gates, (gates > 0).sum(dim=0).to(q.dtype)
        return gates, expected_load(clean, noisy, std, self.k, self.probabilities)

    def _attend(
        self, l: int, block: nn.Module, x: Tensor, read: int | None, noise: bool, see: See | None
    ) -> Tensor:
        if l >= len(self.P):
            return attention_with(block.attn, x, None, read, block.norm1)
        with torch.autocast(x.device.type, enabled=False):  # a rounded logit may be another expert's turn
            q = x[:, 0].to(self.P.dtype)
            gates, load = self.route(l, q, noise)
            prompts = torch.einsum("be,emd->bmd", gates, self.P[l])
        if see is not None:
            see(l, q, gates, load)
        extra = prompt_keys_values(block.attn, block.norm1(prompts))  # (B, H, M, d)
        return attention_with(block.attn, x, extra, read, block.norm1)
