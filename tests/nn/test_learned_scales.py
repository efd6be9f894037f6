"""Adapters, low-rank updates and prefixes whose scale is learned: what each adds to attention, by hand."""

import pytest
import torch
import toys
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.nn.adapter import AttentionAdapters
from cl_bench.nn.attention import EXPLICIT_TOKENS
from cl_bench.nn.edits import Edits
from cl_bench.nn.heads import new_head
from cl_bench.nn.lora import ScaledLoRA
from cl_bench.nn.prompts import TunedPrefixes

IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def randomized(module: nn.Module) -> nn.Module:
    """Its parameters drawn anew, scales among them."""
    drawn = generator()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(generator=drawn)
    return module


def test_adapters_stand_beside_attention_on_its_normalized_input_and_nowhere_else():
    trunk, adapters = toys.backbone(), AttentionAdapters(1, 32, 4, generator())
    assert torch.equal(trunk.features(IMAGES, adapters), trunk.features(IMAGES))  # up = 0
    assert adapters.scale.tolist() == [1.0]
    randomized(adapters)
    block, x = trunk.vit.blocks[0], torch.randn(2, 5, 32)
    h = block.norm1(x)
    hidden = F.gelu(h @ adapters.down[0].T + adapters.down_bias[0])
    added = adapters.scale[0] * (hidden @ adapters.up[0].T + adapters.up_bias[0])
    assert torch.allclose(adapters.attend(0, block, x), block.attn(h) + added, atol=1e-5)
    for l, own in enumerate(trunk.vit.blocks):  # the MLPs, and attention behind the first block, stay
        attended = own.attn(own.norm1(x))
        assert torch.allclose(adapters.feed_forward(l, own, x, attended), own(x), atol=1e-5)
    assert torch.equal(adapters.attend(1, own, x), Edits().attend(1, own, x))


def test_low_rank_updates_have_a_scale_for_each_block_and_target():
    trunk, merged = toys.backbone(), toys.backbone()
    lora = ScaledLoRA(2, 32, 3, "kv", generator())
    assert torch.equal(trunk.features(IMAGES, lora), trunk.features(IMAGES))  # B = 0
    assert lora.scale.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    randomized(lora)
    with torch.no_grad():
        lora.B.mul_(0.1)
        for l, block in enumerate(merged.vit.blocks):
            block.attn.qkv.weight[32:64] += lora.scale[l, 0] * lora.B[l, 0] @ lora.A[l, 0]
            block.attn.qkv.weight[64:] += lora.scale[l, 1] * lora.B[l, 1] @ lora.A[l, 1]
    assert torch.allclose(trunk.features(IMAGES, lora), merged.features(IMAGES), atol=1e-4)


def rows_of_attention(attn: nn.Module, h: Tensor, K: Tensor) -> Tensor:
    """Weights (B, H, N, N + m) over tokens and prefix keys K (m, D), the latter's divided by their sum."""
    q, k, _ = attn.qkv(h).unflatten(2, (3, attn.num_heads, -1)).permute(2, 0, 3, 1, 4)
    keys = torch.cat([k, K.unflatten(1, (attn.num_heads, -1)).transpose(0, 1).expand(len(h), -1, -1, -1)], 2)
    weights = (q @ keys.mT * attn.scale).softmax(dim=-1)
    weights[..., k.shape[2] :] /= weights[..., k.shape[2] :].sum(dim=-1, keepdim=True)
    return weights


@pytest.mark.parametrize("read", [None, 1])
@pytest.mark.parametrize("count", [5, EXPLICIT_TOKENS + 1])
def test_the_weights_of_prefixes_sum_to_one_beside_the_tokens_own(read, count):
    trunk, prefixes = toys.backbone(), TunedPrefixes(1, 32, 3, generator())
    assert prefixes.K.min() >= 0 and prefixes.V.max() < 0.01 and prefixes.scale.tolist() == [[1.0, 1.0]]
    randomized(prefixes)
    block, x = trunk.vit.blocks[0], torch.randn(2, count, 32)
    with torch.no_grad():
        attn, h = block.attn, block.norm1(x)
        K, V = prefixes.scale[0, 0] * prefixes.K[0], prefixes.scale[0, 1] * prefixes.V[0]
        weights = rows_of_attention(attn, h, K)
        sums = weights[..., :count].sum(-1), weights[..., count:].sum(-1)
        assert (sums[0] < 1).all() and torch.allclose(sums[1], torch.ones_like(sums[1]))
        v = attn.qkv(h)[..., 64:]
        values = torch.cat([v, V.expand(2, -1, -1)], dim=1).unflatten(2, (attn.num_heads, -1)).transpose(1, 2)
        expected = attn.proj((weights @ values).transpose(1, 2).flatten(2))[:, :read]
        assert torch.allclose(prefixes.attend(0, block, x, read), expected, atol=1e-5)


def test_a_small_head_starts_near_zero_without_bias():
    head = new_head(400, 50, "small", generator())
    assert head.weight.std().item() == pytest.approx(0.001, rel=0.05) and not head.bias.any()
