"""Frozen attention with keys and values of a method's own besides those of the image tokens.

With Z = [X; P] the rows of attention in which prompts are queries are dropped by the next block, so they are
never computed (NSP2 paper, section 3): prompts need their LayerNorm and their key and value projections only,
once per step and not once per image.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.nn.kernel import Kernel
from cl_bench.nn.rotary import RotaryAttention

EXPLICIT_TOKENS = 128  # see `explicit`


def split_heads(attn: nn.Module, projected: Tensor) -> Tensor:
    """(B, N, H * d) -> (B, H, N, d)."""
    return projected.unflatten(-1, (attn.num_heads, -1)).transpose(-3, -2)


def queries_keys_values(
    attn: nn.Module, tokens: Tensor, read: int | None = None, qkv: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v (B, H, N, d) of normalized tokens (B, N, D); q of the first `read` tokens where given.

    `qkv` stands for the attention's own projection where it is another.
    """
    own = qkv is None or qkv is attn.qkv
    if read is not None and own:
        k, v = prompt_keys_values(attn, tokens)
        return queries(attn, tokens[:, :read]), rotated(attn, k), v
    q, k, v = (split_heads(attn, part) for part in (attn.qkv if own else qkv)(tokens).chunk(3, dim=-1))
    return rotated(attn, attn.q_norm(q[:, :, :read])), rotated(attn, attn.k_norm(k)), v


def queries(attn: nn.Module, tokens: Tensor) -> Tensor:
    """q (B, H, N, d) of normalized tokens (B, N, D), without the keys and values."""
    inner = attn.qkv.out_features // 3
    bias = None if attn.qkv.bias is None else attn.qkv.bias[:inner]
    return rotated(attn, attn.q_norm(split_heads(attn, F.linear(tokens, attn.qkv.weight[:inner], bias))))


def rotated(attn: nn.Module, x: Tensor) -> Tensor:
    """Queries or keys (B, H, N, d) of the first N tokens, turned by place where attention is rotary."""
    return attn.rotated(x) if isinstance(attn, RotaryAttention) else x


def prompt_keys_values(attn: nn.Module, prompts: Tensor) -> tuple[Tensor, Tensor]:
    """k, v, each ((B,) H, M, d), of normalized prompts ((B,) M, D), which have no place in the image."""
    inner = attn.qkv.out_features // 3
    bias = None if attn.qkv.bias is None else attn.qkv.bias[inner:]
    projected = F.linear(prompts, attn.qkv.weight[inner:], bias)
    k, v = (split_heads(attn, part) for part in projected.chunk(2, dim=-1))
    return attn.k_norm(k), v


def explicit(q: Tensor) -> bool:
    """Whether attention of queries (B, H, N, d) is computed with its map.

    On a CPU with few tokens that is faster than the fused kernel.
    """
    return q.device.type == "cpu" and q.shape[2] <= EXPLICIT_TOKENS


def attention_map(attn: nn.Module, q: Tensor, k: Tensor) -> Tensor:
    """softmax(q k' * scale), (B, H, N, N'), not in half precision whatever the products are in."""
    scores = (q * attn.scale) @ k.transpose(-2, -1)
    return scores.to(torch.promote_types(scores.dtype, torch.float32)).softmax(dim=-1)


def merge_heads(
    attn: nn.Module, mixed: Tensor, tokens: Tensor, proj: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Output projection, or `proj` in its place, of mixed values (B, H, N, d).

    `tokens` are the normalized input, which a gate may look at.
    """
    out = attn.norm(mixed.transpose(1, 2).flatten(2))  # (B, N, H * d)
    if getattr(attn, "gate", None) is not None:
        out = out * attn.gate(tokens).sigmoid()
    return (proj or attn.proj)(out)


@Kernel
def attention_with(
    attn: nn.Module,
    tokens: Tensor,
    extra: tuple[Tensor, Tensor] | None = None,
    read: int | None = None,
    norm: Callable[[Tensor], Tensor] | None = None,
    qkv: Callable[[Tensor], Tensor] | None = None,
    proj: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Frozen timm attention of tokens (B, N, D) over all of them and `extra` keys and values ((B,) H, M, d).

    The first `read` (None: all) of the tokens attend, (B, read or N, D); they are normalized before, or here
    by `norm`. `qkv` and `proj` may stand for its own linear maps.
    """
    tokens = tokens if norm is None else norm(tokens)
    q, k, v = queries_keys_values(attn, tokens, read, qkv)
    if extra is not None:
        k, v = (with_extra(own, more) for own, more in zip((k, v), extra, strict=True))
    return merge_heads(attn, mixed_values(attn, q, k, v), tokens[:, :read], proj)


@Kernel
def attention_beside(
    attn: nn.Module, tokens: Tensor, extra: tuple[Tensor, Tensor], read: int | None, norm: nn.Module
) -> Tensor:
    """`attention_with` in which the weights of the `extra` keys (H, M, d) are divided by their sum.

    Those of the tokens are left as they are, smaller by what the extra keys took: a row of attention sums to
    1 plus their share, and the extra values are mixed as if nothing stood beside them.
    """
    tokens = norm(tokens)
    q, k, v = queries_keys_values(attn, tokens, read)
    K, V = (more.to(k.dtype).expand(len(k), -1, -1, -1) for more in extra)
    mixed = mixed_values(attn, q, with_extra(k, K), with_extra(v, torch.zeros_like(V)))
    return merge_heads(attn, mixed + mixed_values(attn, q, K, V), tokens[:, :read])


def mixed_values(attn: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k' * scale) v, (B, H, N, d)."""
    if explicit(q):
        return attention_map(attn, q, k) @ v
    return F.scaled_dot_product_attention(q, k, v, scale=attn.scale)


def with_extra(own: Tensor, more: Tensor) -> Tensor:
    """Keys or values (B, H, N, d) and behind them further ones ((B,) H, M, d), (B, H, N + M, d)."""
    return torch.cat([own, more.to(own.dtype).expand(len(own), -1, -1, -1)], dim=2)
