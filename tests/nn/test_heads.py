"""How heads start."""

import torch
from torch.nn import functional as F

from cl_bench.nn.heads import CosineTaskHeads, Decaying, new_head


def test_a_kaiming_head_has_weights_of_variance_one_over_the_width_and_no_bias():
    head = new_head(400, 50, "kaiming", torch.Generator().manual_seed(0))
    weight, bound = head.weight.detach(), (3 / 400) ** 0.5
    assert 0.99 * bound < float(weight.abs().max()) <= bound * (1 + 1e-6)
    assert abs(float(weight.var()) * 400 - 1) < 0.05 and not head.bias.any()


def test_cosine_heads_of_tasks_have_no_bias_and_freeze_the_earlier_ones():
    heads, generator = CosineTaskHeads(5, 20.0), torch.Generator().manual_seed(0)
    for classes in (3, 2):
        heads.grow(classes, generator, "normal", torch.device("cpu"))
    assert [name for name, _ in heads.named_parameters()] == ["heads.0.weight", "heads.1.weight"]
    assert [parameter.requires_grad for parameter in heads.parameters()] == [False, True]
    assert heads.tasks().tolist() == [0, 0, 0, 1, 1]
    f, W = torch.randn(4, 5), torch.cat([head.weight for head in heads.heads])
    expected = 20 * F.cosine_similarity(f[:, None], W[None], dim=2)
    assert torch.allclose(heads(f), expected, atol=1e-5)
    assert torch.allclose(heads.current(f), expected[:, 3:], atol=1e-5)


def test_decaying_heads_hand_old_ones_a_gradient_of_zero_so_that_weight_decay_alone_changes_them():
    heads, generator = Decaying(5), torch.Generator().manual_seed(0)
    for classes in (3, 2):
        heads.grow(classes, generator, "normal", torch.device("cpu"))
    before = [head.weight.detach().clone() for head in heads.heads]
    optimizer = torch.optim.SGD(heads.parameters(), lr=0.5, weight_decay=0.1)
    heads.current(torch.randn(4, 5, generator=generator)).square().sum().backward()
    assert not heads.heads[0].weight.grad.any() and heads.heads[1].weight.grad.any()
    optimizer.step()
    assert torch.allclose(heads.heads[0].weight, 0.95 * before[0], atol=1e-7)
    assert not torch.allclose(heads.heads[1].weight, 0.95 * before[1], atol=1e-3)
