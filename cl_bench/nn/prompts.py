"""Prompts of VPT-deep as extra keys and values of frozen attention.

With Z = [X; P] the rows of attention in which prompts are queries are dropped by the next block, so they are never computed (NSP2 paper,
section 3): prompts need their LayerNorm and their key and value projections only, once per step and not once per image.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DeepPrompts(nn.Module):
    """P (L, M, D): M prompts for each of the first L blocks, drawn from U(-1, 1)."""

    def __init__(self, layers: int, prompts: int, width: int, generator: torch.Generator):
        super().__init__()
        self.P = nn.Parameter(torch.empty(layers, prompts, width).uniform_(-1.0, 1.0, generator=generator))

    def attend(self, index: int, block: nn.Module, x: Tensor) -> Tensor:
        """Attention output of image tokens x (B, N, D) over [x; P] in block `index`; blocks without prompts attend to x alone."""
        prompts = self.P[index] if index < len(self.P) else None
        return attention(block.attn, block.norm1(x), None if prompts is None else block.norm1(prompts))


def split_heads(attn: nn.Module, projected: Tensor) -> Tensor:
    """(B, N, H * d) -> (B, H, N, d)."""
    return projected.unflatten(-1, (attn.num_heads, -1)).transpose(-3, -2)


def queries_keys_values(attn: nn.Module, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v, each (B, H, N, d), of normalised tokens (B, N, D)."""
    q, k, v = (split_heads(attn, part) for part in attn.qkv(tokens).chunk(3, dim=-1))
    return attn.q_norm(q), attn.k_norm(k), v


def prompt_keys_values(attn: nn.Module, prompts: Tensor) -> tuple[Tensor, Tensor]:
    """k, v, each (H, M, d), of normalised prompts (M, D)."""
    inner = attn.qkv.out_features // 3
    bias = None if attn.qkv.bias is None else attn.qkv.bias[inner:]
    k, v = (split_heads(attn, part) for part in F.linear(prompts, attn.qkv.weight[inner:], bias).chunk(2, dim=-1))
    return attn.k_norm(k), v


def merge_heads(attn: nn.Module, mixed: Tensor, tokens: Tensor) -> Tensor:
    """Output projection of mixed values (B, H, N, d); `tokens` are the normalised input, which a gate may look at."""
    out = attn.norm(mixed.transpose(1, 2).flatten(2))  # (B, N, H * d)
    if getattr(attn, "gate", None) is not None:
        out = out * attn.gate(tokens).sigmoid()
    return attn.proj(out)


def attention(attn: nn.Module, tokens: Tensor, prompts: Tensor | None) -> Tensor:
    """Frozen timm attention of normalised tokens (B, N, D) over themselves and normalised prompts (M, D) -> (B, N, D)."""
    if prompts is None or len(prompts) == 0:
        return attn(tokens)
    q, k, v = queries_keys_values(attn, tokens)
    k_p, v_p = prompt_keys_values(attn, prompts)
    k = torch.cat([k, k_p.to(k.dtype).expand(len(k), -1, -1, -1)], dim=2)  # (B, H, N + M, d)
    v = torch.cat([v, v_p.to(v.dtype).expand(len(v), -1, -1, -1)], dim=2)
    return merge_heads(attn, F.scaled_dot_product_attention(q, k, v), tokens)
