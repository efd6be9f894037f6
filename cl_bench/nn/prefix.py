"""Prefix tuning: vectors that stand among the keys and values of attention as they are, without LayerNorm or projection."""

import torch
from torch import Tensor, nn

from cl_bench.nn.prompts import ExtraKeys, split_heads


class Prefixes(ExtraKeys):
    """Key and value prefixes of some blocks: block index -> (K, V), each (B, m, D) or (1, m, D) for all images."""

    def __init__(self, blocks: dict[int, tuple[Tensor, Tensor]]):
        self.blocks = blocks

    def keys_values(self, index: int, block: nn.Module) -> tuple[Tensor, Tensor] | None:
        """k, v (B, H, m, d)."""
        if index not in self.blocks or self.blocks[index][0].shape[1] == 0:
            return None
        K, V = self.blocks[index]
        return split_heads(block.attn, K), split_heads(block.attn, V)


def without_permute(K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """What the public PyTorch code makes of prefixes (B, m, D): an array (2, B, ...) read as (B, 2, ...).

    Image b is given entries 2b and 2b + 1 of all keys followed by all values: two keys in the first half of the batch, two values in the
    second, and those of other images.
    """
    return torch.stack([K, V]).reshape(len(K), 2, *K.shape[1:]).unbind(1)
