"""What happens to each training image: an AutoAugment policy, a random resized crop and a flip.

The numbers are counter-based: those of an image depend on the key (data seed, augmentation, pass) and its
index alone, and are drawn for a whole batch at once. Cubuk et al., "AutoAugment", CVPR 2019; policies and
probabilities are torchvision's.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from cl_bench.config import Transform
from cl_bench.seeds import uniforms

POLICIES = {"autoaugment-cifar10": "cifar10", "autoaugment-imagenet": "imagenet"}
ATTEMPTS = 10  # to find a crop that fits
ASPECT = (3 / 4, 4 / 3)
BINS = 10  # of a magnitude
LARGEST = {"ShearX": 0.3, "ShearY": 0.3, "Rotate": 30.0}
LARGEST |= dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), 0.9)
SIGNED = {*LARGEST, "TranslateX", "TranslateY"}


@dataclass(frozen=True)
class Draws:
    """What happens to B images, in this order."""

    operations: np.ndarray  # (2, B), in each of two slots; "" for none
    magnitudes: np.ndarray  # (2, B), signed
    boxes: np.ndarray  # (B, 4), the crop's top, left, height and width
    mirrored: np.ndarray  # (B,)


def draw(transform: Transform, sizes: np.ndarray, key: tuple, indices: np.ndarray) -> Draws:
    """The draws for images of these sizes, (B, 2); row i depends on the key and indices[i] alone."""
    numbers = uniforms(indices, 8 + 2 * ATTEMPTS, *key)
    top, left, flip = numbers[:, 5:8].T
    operations, magnitudes = np.full((2, len(indices)), "", object), np.zeros((2, len(indices)))
    if transform.augment in POLICIES:
        _draw_operations(policies(POLICIES[transform.augment]), sizes, numbers, operations, magnitudes)
    area, aspect = np.split(numbers[:, 8:], 2, axis=1)
    boxes = crops(sizes, transform.crop_scale, area, aspect, top, left)
    return Draws(operations, magnitudes, boxes, (flip < 0.5) & (transform.augment == "crop-flip"))


def _draw_operations(
    table: list, sizes: np.ndarray, numbers: np.ndarray, operations: np.ndarray, magnitudes: np.ndarray
) -> None:
    """Put the operations of a policy drawn for each image, and their magnitudes, into both slots."""
    policy, applied, positive = numbers[:, 0], numbers[:, 1:3], numbers[:, 3:5]
    chosen = (policy * len(table)).astype(int)
    for slot in (0, 1):
        columns = zip(*(entry[slot] for entry in table), strict=True)
        names, chances, bins = (np.array(column, object)[chosen] for column in columns)
        taken = applied[:, slot] <= chances.astype(float)
        operations[slot, taken] = names[taken]
        for name in dict.fromkeys(names[taken]):
            rows = np.flatnonzero(taken & (names == name))
            values = magnitude(name, bins[rows], sizes[rows])
            negative = (positive[rows, slot] < 0.5) & (name in SIGNED)
            magnitudes[slot, rows] = np.where(negative, -values, values)


@cache
def policies(name: str) -> list:
    """Pairs of (operation, probability, magnitude bin) of a published policy, as torchvision has them."""
    from torchvision.transforms import AutoAugment, AutoAugmentPolicy  # takes seconds to import

    return AutoAugment(AutoAugmentPolicy(name)).policies


def magnitude(name: str, bins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Magnitudes (B,), without sign, of an operation's bins 0..9.

    They are the slope of a shear, pixels, degrees, change of a factor, bits or threshold, and to the last bit
    those of torchvision, which computes in float32: Pillow cuts its results, so that a last bit can be a
    level.
    """
    index = np.array([0 if one is None else one for one in bins])
    if name == "Posterize":
        return 8 - np.rint(4 * index / (BINS - 1))
    if name == "Solarize":
        return _spaced(np.float32(255), BINS - 1 - index)
    if name in ("TranslateX", "TranslateY"):
        return _spaced((150.0 / 331.0 * sizes[:, 1 if name == "TranslateX" else 0]).astype(np.float32), index)
    return _spaced(np.float32(LARGEST.get(name, 0)), index)


def _spaced(largest: np.ndarray | np.float32, index: np.ndarray) -> np.ndarray:
    """Value `index` of BINS evenly spaced ones from 0 to `largest`, as torch.linspace rounds them."""
    step = largest / np.float32(BINS - 1)
    up, down = step * index.astype(np.float32), largest - step * (BINS - 1 - index).astype(np.float32)
    return np.where(index < BINS // 2, up, down).astype(float)


def crops(
    sizes: np.ndarray,
    smallest: float,
    area: np.ndarray,
    aspect: np.ndarray,
    top: np.ndarray,
    left: np.ndarray,
) -> np.ndarray:
    """Boxes (B, 4) of random resized crops from numbers in [0, 1).

    `area` and `aspect` are (B, attempts), `top` and `left` (B,). The first area in [smallest, 1] of the image
    and log-uniform aspect in [3/4, 4/3] that fit are taken, else the largest central crop of such an aspect.
    """
    height, width = sizes.T
    areas = (height * width)[:, None] * (smallest + (1 - smallest) * area)
    aspects = np.exp(math.log(ASPECT[0]) + math.log(ASPECT[1] / ASPECT[0]) * aspect)
    w, h = (np.rint(np.sqrt(found)).astype(int) for found in (areas * aspects, areas / aspects))
    fits = (w > 0) & (w <= width[:, None]) & (h > 0) & (h <= height[:, None])
    first = fits.argmax(1)[:, None]
    w, h = (np.take_along_axis(found, first, 1)[:, 0] for found in (w, h))
    y, x = (top * (height - h + 1)).astype(int), (left * (width - w + 1)).astype(int)
    none = ~fits.any(1)
    if none.any():
        w = np.where(none, np.minimum(width, np.rint(height * ASPECT[1])).astype(int), w)
        h = np.where(none, np.minimum(height, np.rint(width / ASPECT[0])).astype(int), h)
        y, x = np.where(none, (height - h) // 2, y), np.where(none, (width - w) // 2, x)
    return np.stack([y, x, h, w], axis=1)
