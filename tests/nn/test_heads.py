"""How heads start."""

import torch

from cl_bench.nn.heads import new_head


def test_a_kaiming_head_has_weights_of_variance_one_over_the_width_and_no_bias():
    head = new_head(400, 50, "kaiming", torch.Generator().manual_seed(0))
    weight, bound = head.weight.detach(), (3 / 400) ** 0.5
    assert 0.99 * bound < float(weight.abs().max()) <= bound * (1 + 1e-6)
    assert abs(float(weight.var()) * 400 - 1) < 0.05 and not head.bias.any()
