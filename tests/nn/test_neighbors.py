"""Distances from the k-th neighbor."""

import math

import pytest
import torch

from cl_bench.nn import neighbors
from cl_bench.nn.neighbors import kth_distances


def test_the_kth_distance_is_that_of_the_kth_nearest_point_by_hand():
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    queries = torch.tensor([[0.0, 0.0], [3.0, 0.0]])
    assert kth_distances(queries, points, 1).tolist() == [0.0, 3.0]  # a point is its own first neighbor
    assert kth_distances(queries, points, 2).tolist() == pytest.approx([1.0, math.sqrt(10)])
    assert kth_distances(queries, points, 3).tolist() == pytest.approx([5.0, 4.0])


def test_many_queries_in_parts_have_the_distances_of_a_sorted_list(monkeypatch):
    queries, points = torch.randn(11, 5, dtype=torch.float64), torch.randn(40, 5, dtype=torch.float64)
    expected = (queries[:, None] - points[None]).square().sum(2).sqrt().sort(dim=1).values[:, 6]
    monkeypatch.setattr(neighbors, "ROWS", 4)
    assert torch.allclose(kth_distances(queries, points, 7), expected)
