"""DINOv3's vision transformers: timm's Eva with rotary positions, as plain blocks whose attention rotates.

Queries and keys of patches are rotated by the place of the patch, so that no position is added to the tokens.
Class token, registers and whatever a method adds have no place and are not rotated.
"""

import torch
from timm.layers import LayerScale
from timm.layers.pos_embed_sincos import apply_rot_embed_cat
from timm.models.eva import Eva, EvaAttention, EvaBlock
from timm.models.vision_transformer import Attention, Block, VisionTransformer
from torch import Tensor, nn


class RotaryAttention(Attention):
    """Attention with the weights of Eva's: joint qkv, and sines and cosines of patches, (P, 2 d)."""

    def __init__(self, own: EvaAttention, table: Tensor, prefix: int):
        nn.Module.__init__(self)
        self.num_heads, self.head_dim, self.scale = own.num_heads, own.head_dim, own.scale
        self.fused_attn, self.half, self.prefix = own.fused_attn, own.rotate_half, prefix
        self.qkv = _joint(own)
        self.q_norm, self.k_norm, self.norm, self.gate = own.q_norm, own.k_norm, own.norm, own.gate
        self.attn_drop, self.proj, self.proj_drop = own.attn_drop, own.proj, own.proj_drop
        self.register_buffer("table", table, persistent=False)

    def rotated(self, x: Tensor) -> Tensor:
        """Queries or keys (B, H, N, d) of the first N tokens: those of patches, behind `prefix`, rotated.

        What lies behind the patches is left as it is.
        """
        patches = x[:, :, self.prefix : self.prefix + len(self.table)]
        if not patches.shape[2]:
            return x
        turned = apply_rot_embed_cat(patches, self.table[: patches.shape[2]], half=self.half).to(x.dtype)
        behind = x[:, :, self.prefix + len(self.table) :]
        return torch.cat([x[:, :, : self.prefix], turned, behind], dim=2)

    def forward(self, x: Tensor, **_) -> Tensor:
        """Attention of normalized tokens (B, N, D), for the network by itself."""
        from cl_bench.nn.attention import attention_with

        return attention_with(self, x)


def is_rotary(vit: VisionTransformer) -> bool:
    """Whether patches are told apart by rotation, so that they must stay where they are in the sequence."""
    return isinstance(vit.blocks[0].attn, RotaryAttention)


def is_convertible(model: nn.Module) -> bool:
    """Whether `of_eva` gives the same network: pre-norm blocks, one rotation for all, no other positions."""
    if type(model) is not Eva or model.rope is None or model.pos_embed is not None:
        return False
    plain = all(type(block) is EvaBlock and type(block.attn) is EvaAttention for block in model.blocks)
    return plain and not model.rope_mixed and model.cls_token is not None and model.attn_pool is None


def of_eva(model: Eva) -> VisionTransformer:
    """The network with the same weights, which reads its class token, as DINOv3's own code does."""
    registers = 0 if model.reg_token is None else model.reg_token.shape[1]
    first = model.blocks[0].attn
    vit = VisionTransformer(
        img_size=model.patch_embed.img_size, patch_size=model.patch_embed.patch_size,
        embed_dim=model.embed_dim, depth=0, num_heads=first.num_heads, num_classes=0, global_pool="token",
        reg_tokens=registers, pos_embed="none",
    )  # fmt: skip
    table = model.rope.get_embed(shape=list(model.patch_embed.grid_size)).detach().clone()
    vit.patch_embed, vit.norm = model.patch_embed, model.norm
    vit.cls_token, vit.reg_token = model.cls_token, model.reg_token
    vit.blocks = nn.Sequential(*(_block(own, table, 1 + registers) for own in model.blocks))
    return vit


def _block(own: EvaBlock, table: Tensor, prefix: int) -> Block:
    with torch.device("meta"):
        block = Block(own.norm1.weight.shape[0], own.attn.num_heads)
    block.norm1, block.norm2, block.mlp = own.norm1, own.norm2, own.mlp
    block.attn = RotaryAttention(own.attn, table, prefix)
    block.ls1, block.ls2 = _layer_scale(own.gamma_1), _layer_scale(own.gamma_2)
    return block


def _layer_scale(gamma: nn.Parameter | None) -> nn.Module:
    if gamma is None:
        return nn.Identity()
    with torch.device("meta"):
        scale = LayerScale(len(gamma))
    scale.gamma = gamma
    return scale


def _joint(own: EvaAttention) -> nn.Linear:
    """One linear map (3 D', D) for queries, keys and values."""
    parts = [own.qkv] if own.qkv is not None else [own.q_proj, own.k_proj, own.v_proj]
    weight = parts[0].weight if len(parts) == 1 else torch.cat([part.weight for part in parts]).detach()
    q, v = (own.q_bias, own.v_bias) if len(parts) == 1 else (own.q_proj.bias, own.v_proj.bias)
    with torch.device("meta"):
        joint = nn.Linear(weight.shape[1], weight.shape[0], bias=q is not None)
    joint.weight = nn.Parameter(weight.detach())
    if q is not None:  # keys have none
        joint.bias = nn.Parameter(torch.cat([q, torch.zeros_like(q), v]).detach())
    return joint
