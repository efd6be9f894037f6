"""The frozen network's forward pass, from timm's own parts and with a method's edits."""

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from cl_bench.nn.edits import NONE, Edits
from cl_bench.nn.precision import autocast
from cl_bench.nn.rotary import is_rotary


def embedded(vit: VisionTransformer, images: Tensor, edits: Edits = NONE) -> Tensor:
    """The tokens (B, N, D) that enter the first block, in the precision of `network_in`."""
    with autocast(images.device):
        patches = edits.patches(vit.patch_embed(images))
        return vit.norm_pre(vit.patch_drop(vit._pos_embed(patches)))


def through_blocks(
    vit: VisionTransformer,
    x: Tensor,
    edits: Edits = NONE,
    first: int = 0,
    until: int | None = None,
    read: int | None = None,
) -> Tensor:
    """What tokens x (B, N, D) that enter block `first` are behind block `until` - 1 (None: the last).

    The last block of all computes `read` tokens alone.
    """
    with autocast(x.device):
        for l, block in enumerate(vit.blocks[first:until], start=first):
            x = _entering(vit, l, x, edits)
            wanted = read if block is vit.blocks[-1] else None
            x = edits.feed_forward(l, block, x[:, :wanted], edits.attend(l, block, x, wanted))
    return x


def _entering(vit: VisionTransformer, l: int, x: Tensor, edits: Edits) -> Tensor:
    """The tokens of block l; what joins them goes to the end where patches must keep their places."""
    found = edits.tokens(l, x)
    added = found.shape[1] - x.shape[1]
    if not (added and edits.in_front and is_rotary(vit)):
        return found
    return torch.cat([found[:, :1], found[:, 1 + added :], found[:, 1 : 1 + added]], dim=1)


def tokens(vit: VisionTransformer, images: Tensor, edits: Edits = NONE, read: int | None = None) -> Tensor:
    """The first `read` (None: all) tokens (B, N, D) after the final norm; the last block computes no others.

    All but that norm computes in the precision of `network_in`.
    """
    return last_norm(vit, through_blocks(vit, embedded(vit, images, edits), edits, read=read), edits)


def last_norm(vit: VisionTransformer, x: Tensor, edits: Edits = NONE) -> Tensor:
    """The tokens after the final norm."""
    return edits.norm(len(vit.blocks), "norm", vit.norm)(x)
