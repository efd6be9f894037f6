"""The prompt generator: its attention by hand, its pool, and when it drops out."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cl_bench.errors import InputError
from cl_bench.nn.prompt_generator import HEADS, PromptGenerator

D = 16


def random() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def made(classes=(3, 2), dropout: float = 0.0) -> PromptGenerator:
    generator = random()
    g = PromptGenerator(D, dropout, generator)
    for count in classes:
        g.grow(count, generator)
    with torch.no_grad():
        for parameter in g.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))
    return g


def test_every_head_looks_at_the_image_and_at_all_classes_and_its_row_sums_to_the_scale():
    g, h = made(), torch.randn(4, D, generator=random())
    pool = torch.cat(list(g.tokens))
    p, classes = g(h)
    a = g.norm(g.mlp_in(h))
    for image in range(4):
        both = torch.cat([a[image : image + 1], pool])  # the image's own entry, then the classes'
        mixed = []
        for head in range(HEADS):
            part = slice(head * D // HEADS, (head + 1) * D // HEADS)
            q, k, v = g.q(a[image])[part], g.k(both)[:, part], g.v(both)[:, part]
            scores = k @ q / (D // HEADS) ** 0.5
            assert torch.allclose(classes[image, head], scores[1:], atol=1e-5)
            mixed.append(scores.softmax(0) @ v / (D // HEADS) ** 0.5)  # scaled once more
        assert torch.allclose(p[image], g.mlp_out(g.proj(torch.cat(mixed))), atol=1e-4)


def test_where_all_values_are_one_a_prompt_is_made_of_the_scale():
    g = made()
    with torch.no_grad():
        g.v.weight.zero_()
        g.v.bias.fill_(1.0)
    p, _ = g(torch.randn(4, D))
    expected = g.mlp_out(g.proj(torch.full((4, D), (D // HEADS) ** -0.5)))
    assert torch.allclose(p, expected, atol=1e-5)


def test_tokens_of_the_first_task_are_small_later_ones_between_zero_and_one_and_old_ones_frozen():
    g = PromptGenerator(64, 0.0, random())
    for count in (50, 40, 30):
        g.grow(count, random())
    first, second, third = g.tokens
    assert first.std().item() == pytest.approx(0.02, rel=0.1)
    for later in (second, third):
        assert later.min() >= 0 and later.max() <= 1 and later.mean().item() == pytest.approx(0.5, abs=0.05)
    assert [tokens.requires_grad for tokens in g.tokens] == [False, False, True]


def test_the_order_of_classes_changes_no_prompt():
    g, h = made((5,)), torch.randn(4, D)
    p, classes = g(h)
    with torch.no_grad():
        g.tokens[0].copy_(g.tokens[0].flip(0))
    flipped, other = g(h)
    assert torch.allclose(p, flipped, atol=1e-5) and torch.allclose(classes.flip(2), other, atol=1e-6)


def test_it_drops_out_in_training_alone():
    g, h = made(dropout=0.5), torch.randn(4, D)
    assert torch.equal(g(h)[0], g(h)[0])
    g.train()
    assert not torch.equal(g(h)[0], g(h)[0])


def test_maps_start_small_and_without_bias():
    g = PromptGenerator(64, 0.0, random())
    for own in g.modules():
        if isinstance(own, nn.Linear):
            assert own.weight.std().item() == pytest.approx(0.02, rel=0.05) and not own.bias.any()
    assert torch.equal(g.norm(torch.eye(64)), F.layer_norm(torch.eye(64), (64,)))


def test_a_width_that_heads_cannot_share_is_refused():
    with pytest.raises(InputError, match="attends with 4 heads, and width 18 is no multiple of that"):
        PromptGenerator(18, 0.0, random())
