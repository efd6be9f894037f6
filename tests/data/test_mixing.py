"""Mixup and CutMix: what of an image is another's, and how often which of both."""

import numpy as np
import pytest
import torch

from cl_bench.data.mixing import mixed

IMAGES = torch.arange(4.0)[:, None, None, None].expand(4, 3, 8, 6)  # image b is b everywhere


class Given:
    """Draws that are given: the choice, lambda, and the center of the rectangle."""

    def __init__(self, choice: float, share: float, center: tuple[int, int] = (0, 0)):
        self.choice, self.share, self.centers = choice, share, iter(center)

    def random(self) -> float:
        return self.choice

    def beta(self, a: float, b: float) -> float:
        assert (a, b) == ((0.8, 0.8) if self.choice >= 0.5 else (1.0, 1.0))
        return self.share

    def integers(self, high: int) -> int:
        return next(self.centers)


def test_mixup_adds_the_images_in_reverse_order():
    images, share = mixed(IMAGES, Given(0.5, 0.7))
    assert share == 0.7
    assert torch.allclose(images[:, 0, 0, 0], torch.tensor([0.9, 1.3, 1.7, 2.1]))  # 0.7 b + 0.3 (3 - b)


def test_cutmix_takes_a_rectangle_from_them_and_the_share_is_that_of_what_is_left():
    images, share = mixed(IMAGES, Given(0.4, 0.75, center=(4, 3)))  # half of each side: rows 2-5, columns 2-3
    assert share == pytest.approx(1 - 4 * 2 / 48)
    inside = torch.zeros(8, 6, dtype=torch.bool)
    inside[2:6, 2:4] = True
    assert (images[1, :, inside] == 2).all() and (images[1, :, ~inside] == 1).all()
    assert IMAGES[1].eq(1).all()  # the batch itself is as it was
    corner, share = mixed(IMAGES, Given(0.4, 0.75, center=(0, 0)))
    assert share == pytest.approx(1 - 2 * 1 / 48) and corner[0].eq(3).sum() == 3 * 2 * 1


def test_both_are_drawn_equally_often_and_lambda_from_its_distribution():
    random, cut, shares = np.random.default_rng(0), 0, []
    for _ in range(2000):
        images, share = mixed(IMAGES, random)
        whole = images[0, 0].unique()
        if len(whole) == 1 and 0 < share < 1:
            shares.append(share)
        else:
            cut += 1
    assert cut == pytest.approx(1000, abs=100)
    assert np.mean(shares) == pytest.approx(0.5, abs=0.03)
    assert np.std(shares) == pytest.approx((4 * (2 * 0.8 + 1)) ** -0.5, rel=0.05)  # of Beta(0.8, 0.8)
