"""Rollouts of attention and the points at which they fall apart, against plain formulas and scipy."""

import numpy as np
import pytest
import torch
import toys
from scipy.ndimage import gaussian_filter

from cl_bench.nn.rollout import LowAttention, Rollout, split_points
from cl_bench.nn.shown_attention import ShownAttention

MARGIN = 1e-3


def by_scipy(values: np.ndarray, margin: float) -> float:
    """Where the smoothed rank of a value, at 10,000 points, has its smallest second derivative."""
    ordered = np.sort(values)
    x = np.linspace(ordered[0], ordered[-1], 10_000)
    y = gaussian_filter(np.interp(x, ordered, np.arange(len(ordered))), sigma=20)
    place = np.argmin(np.gradient(np.gradient(y, x), x))
    return min(x[place] - margin, ordered[-1])


@pytest.mark.parametrize("patches", [2, 16, 196])
def test_split_points_are_scipys(patches):
    rng = np.random.default_rng(patches)
    values = rng.exponential(size=(3, 4, patches)) ** 2 / patches
    found = split_points(torch.tensor(values), MARGIN)
    expected = [[by_scipy(row, MARGIN) for row in image] for image in values]
    assert found.shape == (3, 4) and np.allclose(found.numpy(), expected, atol=1e-5 * values.max())


def test_a_few_large_values_stand_out_of_many_small_ones():
    values = torch.cat([torch.linspace(0.001, 0.002, 90), torch.linspace(0.05, 0.08, 10)])
    limit = split_points(values.double()[None], 0.0)
    assert 0.0019 < limit < 0.005
    assert split_points(values.double()[None], 0.0005).item() == pytest.approx(limit.item() - 0.0005)


def test_equal_values_are_all_above_a_threshold_with_a_margin():
    assert split_points(torch.full((1, 9), 0.25), MARGIN).item() == pytest.approx(0.249)


def attention(block, x: torch.Tensor) -> torch.Tensor:
    """The map of a block by its definition, heads averaged."""
    q, k, _ = block.attn.qkv(block.norm1(x)).unflatten(2, (3, block.attn.num_heads, -1)).unbind(2)
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * block.attn.scale
    return scores.softmax(-1).mean(1)


def test_a_rollout_multiplies_attention_of_all_blocks_so_far_and_shows_it_at_the_patches():
    backbone = toys.backbone(depth=3)
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    rollout = Rollout(1)
    with torch.no_grad():
        f = backbone.features(images, ShownAttention([rollout.see]))
        assert torch.allclose(f, backbone.features(images), atol=1e-5)
        R, x = torch.eye(5), backbone.hidden(images, 0)
        for l, block in enumerate(backbone.vit.blocks):
            R = (attention(block, x) + torch.eye(5)) / 2 @ R
            assert torch.allclose(rollout.rows()[:, l], R[:, 0, 1:], atol=1e-6)
            x = block(x)
    assert rollout.rows().shape == (4, 3, 4)


def test_shares_count_all_images_of_all_tasks_alike():
    low = LowAttention(1, 4, 0.0, torch.device("cpu"))
    looked = torch.tensor([[0.011, 0.012, 0.013, 0.5]])[:, None]  # (1, 1, 4): at the last patch alone
    low.add(looked, torch.tensor([0]))
    assert low.mean().tolist() == [[1, 1, 1, 0]]
    low.add(looked.flip(2).expand(3, -1, -1), torch.tensor([0, 1, 1]))
    assert low.mean().tolist() == [[0.25, 1, 1, 0.75]] and low.images == 4
