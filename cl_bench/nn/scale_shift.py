"""Scales and shifts behind the linear maps and norms of a frozen network (SSF: Lian et al., NeurIPS 2022)."""

from collections.abc import Callable
from types import EllipsisType

import torch
from timm.layers import Mlp
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from cl_bench.errors import InputError
from cl_bench.nn.edits import Edits


class ScalesShifts(nn.Module, Edits):
    """gamma * f(x) + beta for f the patches' projection, norm1, qkv, proj, norm2, fc1 and fc2, the last norm.

    `scale` and `shift` are by these names, those of blocks (L, width), of patches and the last norm (width,).
    gamma starts from N(1, 0.02^2), beta from N(0, 0.02^2).
    """

    def __init__(self, vit: VisionTransformer, generator: torch.Generator):
        super().__init__()
        depth, block, width = len(vit.blocks), vit.blocks[0], vit.embed_dim
        if type(block.mlp) is not Mlp:
            odd = f"the network's MLP is a {type(block.mlp).__name__}, not a plain one"
            raise InputError(f"{odd}, beside which scales and shifts do not stand; choose another backbone")
        maps = {"qkv": block.attn.qkv, "proj": block.attn.proj, "fc1": block.mlp.fc1, "fc2": block.mlp.fc2}
        shapes = {"patches": (width,), "norm": (width,), "norm1": (depth, width), "norm2": (depth, width)}
        shapes |= {name: (depth, own.out_features) for name, own in maps.items()}
        self.scale, self.shift = nn.ParameterDict(), nn.ParameterDict()
        for name, shape in shapes.items():
            gamma, beta = 0.02 * torch.randn(2, *shape, generator=generator)
            self.scale[name], self.shift[name] = nn.Parameter(1 + gamma), nn.Parameter(beta)

    def patches(self, x: Tensor) -> Tensor:
        """The projected patches, scaled and shifted."""
        return x * self.scale["patches"] + self.shift["patches"]

    def norm(self, l: int, name: str, own: nn.Module) -> Callable[[Tensor], Tensor]:
        """The network's norm, with a scale and a shift behind its own."""
        return self.behind(own, name, ... if name == "norm" else l)

    def linear(self, l: int, name: str, own: nn.Module) -> Callable[[Tensor], Tensor]:
        """The network's linear map, with a scale and a shift behind it."""
        return self.behind(own, name, l)

    def behind(self, own: nn.Module, name: str, row: int | EllipsisType) -> Callable[[Tensor], Tensor]:
        """x -> gamma * own(x) + beta."""
        gamma, beta = self.scale[name][row], self.shift[name][row]
        return lambda x: own(x) * gamma + beta
