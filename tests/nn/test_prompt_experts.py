"""Routing to experts' prompts: gates and loads by hand and by drawing, and what an image attends to."""

import math

import pytest
import torch
import toys
from torch.nn import functional as F

from cl_bench.nn.prompt_experts import PromptExperts, expected_load, sparse_gates, squared_variation

LOGITS = torch.tensor([[1.0, 3.0, 2.0, -1.0], [0.0, 0.0, 0.0, 0.0]])


def random(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(k: int = 2, scale: float = 1.0, **options) -> PromptExperts:
    settings = {"twice": False, "probabilities": False, **options}
    experts = PromptExperts((2, 5, 3, 32), k, generator=random(), **settings)
    with torch.no_grad():
        for W in (experts.W_g, experts.W_n):
            W.copy_(scale * torch.randn(W.shape, generator=random(4)))
    return experts


def test_gates_are_the_softmax_of_the_largest_logits_and_of_equal_ones_the_first_are_taken():
    gates = sparse_gates(LOGITS, 2)
    larger = math.e / (1 + math.e)  # of 3 and 2
    assert torch.allclose(gates[0], torch.tensor([0, larger, 1 - larger, 0]))
    assert gates[1].tolist() == [0.5, 0.5, 0, 0]


def test_gates_of_probabilities_are_within_a_factor_e_of_each_other():
    wide = 20 * torch.randn(50, 8, generator=random())
    once, twice = sparse_gates(wide, 3), sparse_gates(wide, 3, twice=True)
    assert torch.equal(once > 0, twice > 0) and (once > 0).sum(1).eq(3).all()
    ratio = twice.amax(1) / twice.masked_fill(twice == 0, 1).amin(1)
    assert ratio.max() <= math.e + 1e-4 and once.amax(1).max() > 0.99
    p = LOGITS[0].softmax(0)
    assert torch.allclose(sparse_gates(LOGITS, 2, twice=True)[0, 1:3], torch.stack([p[1], p[2]]).softmax(0))


def test_the_expected_load_is_how_often_an_expert_is_chosen_when_its_own_noise_is_drawn_again():
    clean, noise = torch.randn(4, 6, generator=random()), torch.randn(4, 6, generator=random(5))
    std = 0.3 + torch.rand(4, 6, generator=random(6))
    noisy, draws = clean + noise * std, 40_000
    counted = torch.zeros(6)
    for e in range(6):
        again = noisy.expand(draws, 4, 6).clone()
        again[..., e] = clean[:, e] + std[:, e] * torch.randn(draws, 4, generator=random(7 + e))
        counted[e] = (again.topk(2, dim=2).indices == e).any(2).float().mean(0).sum()
    found = expected_load(clean, noisy, std, 2)
    assert torch.allclose(found, counted, atol=0.02) and found.max() - found.min() > 0.3
    assert not torch.allclose(expected_load(clean, noisy, std, 2, probabilities=True), counted, atol=0.2)


def test_the_squared_variation_is_that_of_a_sample_over_the_squared_mean():
    assert squared_variation(torch.tensor([1.0, 2.0, 3.0])).item() == pytest.approx(1 / 4)
    assert squared_variation(torch.full((5,), 7.0)).item() == 0


@pytest.mark.parametrize("read", [None, 1])
def test_an_image_attends_to_the_prompts_its_class_token_mixes(read):
    experts, backbone = made(), toys.backbone()
    block, x = backbone.vit.blocks[1], torch.randn(4, 5, 32, generator=random(8))
    P = torch.zeros(4, 3, 32)
    for image in range(4):
        a = x[image, 0] @ experts.W_g[1]
        chosen = a.topk(2).indices
        for g, e in zip(a[chosen].softmax(0), chosen, strict=True):
            P[image] += g * experts.P[1, e].detach()
    expected = block.attn(block.norm1(torch.cat([x, P], dim=1)))[:, : read or 5]  # timm's own, of all tokens
    assert torch.allclose(experts.attend(1, block, x, read), expected, atol=1e-5)


def test_noise_has_the_softplus_of_its_logits_as_deviation_and_is_off_outside_of_training():
    experts, q = made(), torch.randn(1, 32, generator=random(9))
    torch.manual_seed(0)
    chosen = [experts.route(0, q, noise=True)[0] > 0 for _ in range(4000)]
    clean = (q @ experts.W_g[0]).expand(4000, 5)
    std = F.softplus(q @ experts.W_n[0]) + 0.01
    drawn = clean + std * torch.randn(4000, 5, generator=random(10))
    expected = (sparse_gates(drawn, 2) > 0).float().mean(0)
    assert torch.allclose(torch.cat(chosen).float().mean(0), expected, atol=0.05)
    gates, load = experts.route(0, q, noise=False)
    assert torch.equal(gates, sparse_gates(clean[:1], 2)) and load.tolist() == (gates[0] > 0).tolist()


def test_with_noise_and_without_the_balance_reaches_the_weights_that_it_can():
    q = torch.randn(6, 32, generator=random(11))
    for noise in (True, False):
        experts = made(scale=0.1)
        gates, load = experts.route(0, q, noise)
        (squared_variation(gates.sum(0)) + squared_variation(load)).backward()
        assert experts.W_g.grad[0].any() and not experts.W_g.grad[1].any()
        assert (experts.W_n.grad is not None and bool(experts.W_n.grad[0].any())) == noise
