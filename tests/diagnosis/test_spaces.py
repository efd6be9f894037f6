"""Null spaces of old images, and what of an update lies outside, by hand."""

import numpy as np
import pytest
import torch

from cl_bench.diagnosis.spaces import Space


@pytest.fixture
def space():
    return Space.of(torch.diag(torch.tensor([1.0, 8, 0, 2, 0], dtype=torch.float64)), "official")


def test_the_protected_directions_are_the_large_ones(space):
    # 8, 2, 1, 0, 0: the corner is 2, so that four of five directions are null
    assert space.nullity == 4 and space.dimensions == pytest.approx(0.2)
    rows = torch.tensor([[0.0, 3, 0, 0, 4], [0, 0, 0, 0, 0]], dtype=torch.float64)
    assert space.inside(rows) == pytest.approx(9 / 25) and space.inside(torch.zeros_like(rows)) == 0


def test_rank_and_spectrum_by_hand(space):
    assert space.rank == 3
    assert space.spectrum == pytest.approx([1, 1 / 4, 1 / 8, 0])  # at 1, 1.5, 2.2, 3.3, 5: 1, 1, 2, 3, 5
    large = Space.of(torch.diag(torch.arange(128, 0, -1).double()), "paper")
    assert len(large.spectrum) == 8 and large.spectrum[-1] == pytest.approx(1 / 128)


def test_a_random_update_has_its_dimensions_share_inside_on_average(space):
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(20000, 5)))
    assert space.inside(rows) == pytest.approx(space.dimensions, abs=0.01)


def test_two_prompts_have_no_nullity_and_no_image_none_either():
    assert Space.of(torch.eye(2).double(), "official") is None
    assert Space.of(torch.zeros(4, 4).double(), "official").spectrum == [0.0] * 4
