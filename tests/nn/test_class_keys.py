"""Keys of classes: how they start, what they are compared with, and which task they name."""

import torch
from torch.nn import functional as F

from cl_bench.nn.class_keys import ClassKeys

CPU = torch.device("cpu")


def keys(*sizes: int, width: int = 8, seed: int = 1) -> ClassKeys:
    made = ClassKeys(width, seed)
    for size in sizes:
        made.grow([size], CPU)
    return made


def test_keys_start_orthonormal_to_each_other_also_where_earlier_ones_have_moved():
    rows = torch.cat([*keys(2, 3, 1).K])
    assert torch.allclose(rows @ rows.T, torch.eye(6), atol=1e-5)
    moved = keys(2)
    with torch.no_grad():
        moved.K[0].normal_()
    moved.grow([3], CPU)
    assert torch.equal(moved.K[1], keys(2, 3).K[1])


def test_keys_of_all_tasks_at_once_are_those_of_one_after_the_other():
    together = ClassKeys(8, 1)
    together.grow([2, 3, 1], CPU)
    assert all(torch.equal(one, two) for one, two in zip(together.K, keys(2, 3, 1).K, strict=True))
    assert not torch.equal(together.K[0], keys(2, seed=2).K[0])


def test_where_there_is_no_more_room_keys_are_random_directions():
    made = keys(6, 5)
    assert torch.allclose(made.K[1].norm(dim=1), torch.ones(5))
    assert float((made.K[1] @ made.K[0].T).detach().abs().max()) > 1e-2


def test_similarities_are_cosines_and_only_keys_from_a_class_on_have_a_gradient():
    made, q = keys(2, 3, 2), torch.randn(4, 8)
    found = made.similarity(q, 2, 5)
    expected = [F.cosine_similarity(q, row[None], dim=1) for row in torch.cat([*made.K])[:5]]
    assert torch.allclose(found, torch.stack(expected, dim=1), atol=1e-6)
    found.square().sum().backward()
    moves = [float(K.grad.abs().max()) > 0 for K in made.K]
    assert moves == [False, True, False]  # zeros, so that weight decay acts


def test_the_task_is_that_of_the_nearest_key_among_those_so_far():
    made = keys(2, 3, 2)
    q = torch.cat([*made.K]) * torch.rand(7, 1) + 0.01
    assert made.nearest_task(q, 3).tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert int(made.nearest_task(q, 2).max()) == 1


def test_trained_keys_are_those_that_are_not_frozen():
    made = keys(2)
    made.requires_grad_(False).grow([3], CPU)
    assert made.trained() == [made.K[1]]
