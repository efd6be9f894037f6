"""The network's own attention, whose parts are shown to whoever wants to see them as they are computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cl_bench.nn.attention import merge_heads, queries_keys_values
from cl_bench.nn.edits import Edits


@dataclass(frozen=True)
class Attended:
    """One block's attention over a batch; R of its N tokens attend, all of them or the first."""

    index: int  # of the block
    tokens: Tensor  # (B, N, D), normalized
    scale: float
    scaled: Tensor  # queries times the scale, (B, H, R, d)
    keys: Tensor  # (B, H, N, d)
    scores: Tensor  # scaled times keys, (B, H, R, N)
    weights: Tensor  # their softmax, in no less than single precision
    mixed: Tensor  # values mixed by the weights, (B, H, R, d)


See = Callable[[Attended], None]


class ShownAttention(Edits):
    """No edit: attention with explicit maps, each shown to all of `see` on its way, block after block."""

    def __init__(self, see: Sequence[See]):
        self._see = see

    def attend(self, l: int, block: nn.Module, x: Tensor, read: int | None = None) -> Tensor:
        """The block's own attention."""
        attn, tokens = block.attn, block.norm1(x)
        q, k, v = queries_keys_values(attn, tokens, read)
        scaled = q * attn.scale
        scores = scaled @ k.mT
        weights = scores.to(torch.promote_types(scores.dtype, torch.float32)).softmax(dim=-1)
        mixed = weights @ v
        attended = Attended(l, tokens, attn.scale, scaled, k, scores, weights, mixed)
        for see in self._see:
            see(attended)
        return merge_heads(attn, mixed, tokens[:, :read])
