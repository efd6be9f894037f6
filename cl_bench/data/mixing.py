"""Mixup and CutMix: the images of a batch are mixed with those of the batch in reverse order.

Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018; Yun et al., "CutMix", ICCV 2019; drawn
as by timm with one choice for the whole batch: CutMix or mixup with equal chances.
"""

import numpy as np
from torch import Tensor

MIXUP, CUTMIX = 0.8, 1.0  # both parameters of the Beta distributions of lambda


def mixed(images: Tensor, random: np.random.Generator) -> tuple[Tensor, float]:
    """Mixed images (B, 3, H, W) and the share lambda that image b has of itself.

    The rest is of image B - 1 - b, everywhere (mixup) or in a rectangle (CutMix).
    """
    if random.random() >= 0.5:
        share = random.beta(MIXUP, MIXUP)
        return share * images + (1 - share) * images.flip(0), share
    share = random.beta(CUTMIX, CUTMIX)
    (top, bottom), (left, right) = (_side(size, share, random) for size in images.shape[2:])
    images = images.clone()
    images[:, :, top:bottom, left:right] = images.flip(0)[:, :, top:bottom, left:right]
    return images, 1 - (bottom - top) * (right - left) / images[0, 0].numel()


def _side(size: int, share: float, random: np.random.Generator) -> tuple[int, int]:
    """Where a rectangle of 1 - lambda of the image's area begins and ends, its center anywhere inside."""
    half, center = int(size * (1 - share) ** 0.5) // 2, int(random.integers(size))
    return max(0, center - half), min(size, center + half)
