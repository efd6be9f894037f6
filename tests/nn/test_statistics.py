"""Moments of attention accumulated in one pass equal those of explicit attention maps."""

import pytest
import torch
import toys
from attention_maps import omegas

import cl_bench.nn.attention
from cl_bench.nn.attention import attention_map, queries_keys_values
from cl_bench.nn.edits import Watched
from cl_bench.nn.prompts import DeepPrompts
from cl_bench.nn.statistics import AttentionMoments


def moments_of(trunk, prompts, images, batch):
    moments = AttentionMoments(prompts.P, trunk.vit)
    with torch.no_grad():
        for part in images.split(batch):
            trunk.features(part, moments.observing(prompts))
    return moments


@pytest.mark.parametrize("explicit_tokens", [0, 128])
def test_accumulated_covariances_equal_those_of_explicit_attention_maps(explicit_tokens, monkeypatch):
    monkeypatch.setattr(
        cl_bench.nn.attention, "EXPLICIT_TOKENS", explicit_tokens
    )  # 0: the fused kernel, as on a GPU
    trunk = toys.backbone()
    prompts = DeepPrompts(2, 4, 32, torch.Generator().manual_seed(1))
    images = torch.randn(6, 3, 16, 16)
    inputs = []

    def watched(index, block, x, read):
        inputs.append(x)
        return prompts.attend(index, block, x, read)

    with torch.no_grad():
        trunk.features(images, Watched(prompts, watched))
        moments = moments_of(trunk, prompts, images, 6)
        for layer, (C1, C2) in enumerate(zip(*moments.covariances(), strict=True)):
            first, second = (
                o.double() for o in omegas(trunk.vit.blocks[layer], inputs[layer], prompts.P[layer])
            )
            assert moments.rows == len(first) == 6 * 2 * 5
            assert torch.allclose(C1, first.T @ first, rtol=1e-4, atol=1e-4 * C1.abs().max().item())
            assert torch.allclose(C2, second.T @ second, rtol=1e-4)


def test_statistics_do_not_depend_on_how_images_are_batched_and_leave_features_alone():
    trunk = toys.backbone()
    prompts = DeepPrompts(2, 4, 32, torch.Generator().manual_seed(1))
    images = torch.randn(11, 3, 16, 16)
    whole, parts = moments_of(trunk, prompts, images, 11), moments_of(trunk, prompts, images, 3)
    assert whole.rows == parts.rows
    for a, b in zip(whole.covariances(), parts.covariances(), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-5 * a.abs().max().item())
    with torch.no_grad():
        assert torch.allclose(
            trunk.features(images, prompts),
            trunk.features(images, AttentionMoments(prompts.P, trunk.vit).observing(prompts)),
            atol=1e-5,
        )


def test_an_attention_map_is_in_full_precision_also_where_products_are_not():
    trunk, x = toys.backbone(), torch.randn(3, 5, 32)
    attn = trunk.vit.blocks[0].attn
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        q, k, _ = queries_keys_values(attn, x)
        found = attention_map(attn, q, k)
    assert q.dtype == torch.bfloat16 and found.dtype == torch.float32
    assert (found.sum(-1) - 1).abs().max() < 1e-6
    assert attention_map(attn, q.double(), k.double()).dtype == torch.float64
