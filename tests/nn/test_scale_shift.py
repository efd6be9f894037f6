"""Scales and shifts behind a frozen network's parts are the same as other weights in the parts."""

import pytest
import torch
import toys
from torch import nn

from cl_bench.nn.scale_shift import ScalesShifts

IMAGES = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def drawn(trunk) -> ScalesShifts:
    return ScalesShifts(trunk.vit, torch.Generator().manual_seed(0))


@torch.no_grad()
def merge(part: nn.Module, gamma: torch.Tensor, beta: torch.Tensor) -> None:
    """gamma * (W x + b) + beta = (gamma W) x + (gamma b + beta), a convolution's and a norm's W alike."""
    part.weight.mul_(gamma.view(-1, *[1] * (part.weight.ndim - 1)))
    part.bias.mul_(gamma).add_(beta)


@pytest.mark.parametrize(
    "changes", [{}, {"class_token": False, "global_pool": "avg", "fc_norm": False}], ids=str
)
def test_they_can_be_merged_into_the_weights(changes):
    trunk, merged = toys.backbone(**changes), toys.backbone(**changes)
    edits = drawn(trunk)
    with torch.no_grad():
        for parameter in edits.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    vit, scale, shift = merged.vit, edits.scale, edits.shift
    merge(vit.patch_embed.proj, scale["patches"], shift["patches"])
    merge(vit.norm, scale["norm"], shift["norm"])
    for l, block in enumerate(vit.blocks):
        parts = {"norm1": block.norm1, "norm2": block.norm2, "fc1": block.mlp.fc1, "fc2": block.mlp.fc2}
        for name, part in {**parts, "qkv": block.attn.qkv, "proj": block.attn.proj}.items():
            merge(part, scale[name][l], shift[name][l])
    found = trunk.features(IMAGES, edits)
    assert torch.allclose(found, merged.features(IMAGES), atol=1e-5)
    assert not torch.allclose(found, trunk.features(IMAGES), atol=0.1)


def test_there_are_eleven_pairs_of_the_width_in_a_block_and_two_besides():
    """norm1, norm2, proj and fc2 of D, qkv of 3 D, fc1 of 4 D; the patches and the last norm."""
    edits = drawn(toys.backbone())
    counts = [sum(p.numel() for p in bank.parameters()) for bank in (edits.scale, edits.shift)]
    assert counts == [(2 * 11 + 2) * 32] * 2


def test_they_start_near_one_and_zero():
    edits = drawn(toys.backbone(depth=8))
    for bank, mean in ((edits.scale, 1), (edits.shift, 0)):
        values = torch.cat([parameter.detach().flatten() for parameter in bank.parameters()])
        assert values.mean().item() == pytest.approx(mean, abs=2e-3)
        assert values.std().item() == pytest.approx(0.02, rel=0.1)
