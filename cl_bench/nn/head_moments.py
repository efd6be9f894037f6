"""Second moments of attention head by head, of a few images, from which changes of prompts are judged."""

from typing import Any

import torch
from torch import Tensor, nn

from cl_bench.nn import attention
from cl_bench.nn.edits import Watched
from cl_bench.nn.prompts import ExtraKeys


class HeadMoments:
    """Sums over images and image tokens of Q_h' Q_h (L, H, d, d) and S_h' S_h (L, H, R, R), float64.

    For every head h of the first L blocks. S is attention on the rows of P (L, R, D), which image tokens
    attend to besides each other. For any K and V (R, d), |Q_h K'|^2 = tr(K Q_h' Q_h K') and |S_h V|^2 =
    tr(V' S_h' S_h V) are known then.
    """

    def __init__(self, P: Tensor, vit: nn.Module):
        layers, rows, _ = P.shape
        heads, d = vit.blocks[0].attn.num_heads, vit.blocks[0].attn.head_dim
        self.vit: Any = vit
        self.queries = torch.zeros(layers, heads, d, d, dtype=torch.float64, device=P.device)
        self.weights = torch.zeros(layers, heads, rows, rows, dtype=torch.float64, device=P.device)

    def observing(self, prompts: ExtraKeys) -> Watched:
        """The prompts' own attention up to rounding, which sums each batch's moments as it goes."""

        def attend(index: int, block: nn.Module, x: Tensor, read: int | None) -> Tensor:
            if index >= len(self.weights):
                return prompts.attend(index, block, x, read)
            attn, tokens = block.attn, block.norm1(x)
            q, k, v = attention.queries_keys_values(attn, tokens)  # (B, H, N, d)
            more_k, more_v = prompts.keys_values(index, block)
            k, v = attention.with_extra(k, more_k), attention.with_extra(v, more_v)
            weights = attention.attention_map(attn, q, k)  # (B, H, N, N + M)
            self._add(index, q, weights[..., tokens.shape[1] :], prompts.rows.to(weights.dtype))
            return attention.merge_heads(attn, (weights @ v)[:, :, :read], tokens[:, :read])

        return Watched(prompts, attend)

    def _add(self, index: int, q: Tensor, weights: Tensor, rows: Tensor) -> None:
        """Add queries (B, H, N, d) and attention (B, H, N, M) on prompts that are these rows of P."""
        s = (weights @ (rows if rows.dim() == 2 else rows[:, None])).double()  # (B, H, N, R)
        for sums, found in ((self.queries, q.double()), (self.weights, s)):
            by_head = found.transpose(0, 1).flatten(1, 2)
            sums[index] += by_head.mT @ by_head


def affinity_covariances(vit: nn.Module, queries: Tensor) -> Tensor:
    """Omega1' Omega1 = sum_h W_k,h' (Q_h' Q_h) W_k,h of the first L blocks, (L, D, D), float64.

    `queries` are Q_h' Q_h, (L, H, d, d).
    """
    found = []
    for block, gram in zip(vit.blocks, queries, strict=False):
        w_k = key_weights(block.attn).double()
        found.append((w_k.mT @ gram @ w_k).sum(0))
    return torch.stack(found)


def key_weights(attn: nn.Module) -> Tensor:
    """W_k of every head, (H, d, D)."""
    return _by_head(attn, 1)


def value_weights(attn: nn.Module) -> Tensor:
    """W_v of every head, (H, d, D)."""
    return _by_head(attn, 2)


def _by_head(attn: nn.Module, part: int) -> Tensor:
    """One of attention's three input maps, (H, d, D)."""
    return attn.qkv.weight.chunk(3)[part].unflatten(0, (attn.num_heads, -1))
