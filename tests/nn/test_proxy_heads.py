"""Several proxies for each class: a score is their own softmax's mean of them."""

import pytest
import torch

from cl_bench.nn.heads import ProxyHeads

CPU = torch.device("cpu")


def made(classes: int = 3, proxies: int = 4) -> ProxyHeads:
    head = ProxyHeads(5, proxies, CPU)
    head.grow(classes, torch.Generator().manual_seed(0))
    return head


def test_a_score_by_hand():
    head = ProxyHeads(1, 2, CPU)
    head.grow(2, torch.Generator().manual_seed(0))
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.0], [1.0], [2.0], [2.0]]))
    e = torch.tensor(1.0).exp()
    assert torch.allclose(head(torch.tensor([[1.0]])), torch.stack([e / (1 + e), torch.tensor(2.0)])[None])


def test_a_score_lies_between_the_least_and_the_largest_of_its_proxies():
    head, f = made(), torch.randn(7, 5)
    u = (f @ head.weight.T + head.bias).unflatten(1, (3, 4))
    z = head(f)
    assert (z >= u.amin(2) - 1e-6).all() and (z <= u.amax(2) + 1e-6).all()
    single = made(proxies=1)
    assert torch.allclose(single(f), f @ single.weight.T + single.bias, atol=1e-6)


def test_more_classes_leave_the_scores_of_earlier_ones_and_all_rows_are_trained():
    head, f = made(), torch.randn(7, 5)
    before = head(f)
    head.grow(400, torch.Generator().manual_seed(1))
    assert torch.allclose(head(f)[:, :3], before, atol=1e-6) and head(f).shape == (7, 403)
    assert head.weight.requires_grad and not head.bias.any()
    assert head.weight[12:].std().item() == pytest.approx(5**-0.5, rel=0.05)
