"""Gradients of attention's input maps through some of its rows: all, none, and what autograd says of some."""

import gc
import weakref

import pytest
import torch
import toys

from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.masked_gradients import MaskedGradients, require_linear_maps
from cl_bench.nn.shown_attention import Attended, ShownAttention

IMAGES = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1)).double()


def network() -> Backbone:
    """Three blocks whose input maps learn, in double precision."""
    return toys.backbone(depth=3).double().trainable_copy(lambda name: name.endswith("qkv.weight"))


def maps(twin: Backbone) -> list[torch.nn.Parameter]:
    return [block.attn.qkv.weight for block in twin.vit.blocks]


def loss(f: torch.Tensor) -> torch.Tensor:
    return (f @ torch.linspace(-1, 1, 32).double()).square().sum()


def masked(twin: Backbone, rows: torch.Tensor, parts: int = 1) -> MaskedGradients:
    """After a backward pass, the images in so many parts."""
    found = MaskedGradients(maps(twin), rows)
    for images in IMAGES.chunk(parts):
        loss(twin.features(images, ShownAttention([found.see]))).backward()
    return found


def test_the_attention_shown_is_the_networks_own_and_its_true_gradients_stay():
    twin, usual = network(), network()
    masked(twin, torch.zeros(3, 5))
    loss(usual.features(IMAGES)).backward()
    for W, own in zip(maps(twin), maps(usual), strict=True):
        assert torch.allclose(W.grad, own.grad, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("parts", [1, 3])
def test_with_all_rows_the_masked_gradients_are_the_true_ones_and_with_none_they_are_zero(parts):
    twin = network()
    for R in masked(twin, torch.ones(3, 5), parts).ratios():
        assert torch.allclose(R, torch.ones_like(R), atol=1e-6)
    none = masked(network(), torch.zeros(3, 5), parts)
    assert all(not gradient.any() for gradient in none.gradients)


def split(attn: torch.nn.Module, X: torch.Tensor, W: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values (B, H, N, d)."""
    projected = (X @ W.T + attn.qkv.bias).unflatten(2, (3, attn.num_heads, -1))
    return projected.permute(2, 0, 3, 1, 4).unbind(0)


def test_masked_gradients_are_those_of_a_twin_of_each_map_that_acts_in_some_rows_alone():
    """The twin enters scores and mixed values beside the map, as a difference of nothing."""
    m = torch.tensor([[0.0, 0.3, 1.0, 0.5, 0.8], [1.0, 0.0, 0.2, 0.9, 0.4], [0.6, 1.0, 0.0, 0.0, 0.3]])
    found, twin = masked(network(), m), network()
    twins = [W.detach().clone().requires_grad_(True) for W in maps(twin)]
    x = twin.hidden(IMAGES, 0)
    for block, W, rows in zip(twin.vit.blocks, twins, m.double(), strict=True):
        attn, X = block.attn, block.norm1(x)
        q, k, v = split(attn, X, attn.qkv.weight)
        twin_q, twin_k, twin_v = split(attn, X.detach(), W)
        row = rows[:, None]
        beside = twin_q @ k.detach().mT + q.detach() @ twin_k.mT
        scores = (q @ k.mT + row * (beside - beside.detach())) * attn.scale
        S = scores.softmax(-1)
        mixed = S @ v + (row * S.detach()) @ (twin_v - twin_v.detach())
        x = x + attn.proj(mixed.transpose(1, 2).flatten(2))
        x = x + block.mlp(block.norm2(x))
    loss(twin.vit.norm(x)[:, 0]).backward()
    for gradient, W in zip(found.gradients, twins, strict=True):
        assert gradient.any() and torch.allclose(gradient, W.grad, rtol=1e-6, atol=1e-10)


def test_ratios_are_cut_and_one_where_there_is_nothing_and_start_anew():
    W = torch.nn.Parameter(torch.zeros(1, 5))
    W.grad = torch.tensor([[1.0, 1.0, 0.0, 0.0, -2.0]])
    found = MaskedGradients([W], torch.ones(1, 1))
    found.gradients[0] += torch.tensor([[0.5, -40.0, 3.0, 0.0, 0.0]])
    assert found.ratios()[0].tolist() == [[0.5, -10.0, 10.0, 1.0, 0.0]]
    assert not found.gradients[0].any()


def test_networks_that_norm_their_queries_are_refused():
    with pytest.raises(InputError, match="normalizes its queries and keys"):
        require_linear_maps(toys.backbone(qk_norm=True), "ARCL-ViT")


@pytest.mark.parametrize("backward", [True, False])
def test_nothing_of_a_step_is_kept_after_it(backward):
    """Not even until the collector looks: a step's activations would stay until then, or for good."""
    twin, kept = network(), []

    def watch(attended: Attended) -> None:
        kept.extend(weakref.ref(found) for found in (attended.scores, attended.mixed, attended.tokens))

    found = MaskedGradients(maps(twin), torch.ones(3, 5))
    gc.disable()
    try:
        step = loss(twin.features(IMAGES, ShownAttention([found.see, watch])))
        if backward:
            step.backward()
        del step
        assert len(kept) == 9 and not any(reference() is not None for reference in kept)
    finally:
        gc.enable()
