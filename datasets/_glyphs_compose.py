"""Composes the glyph images from gray masks, bit for bit the same on every machine and library version.

Only elementwise IEEE operations (+ - * /) on float64 and PCG64's raw 64-bit stream are used: no sine, no
reduction whose order depends on the processor, no sampler whose algorithm a numpy release may change.

What chose the benchmark's style was written down before any rank of methods was seen. Its images are
renditions that pre-training never saw: a frozen network must be worth less on them than one that is adapted,
as on photographs. One change that all images share can be learned; what differs from image to image
destroys. Of the changes tried, the chosen one meets these bounds, measured with held-out training images
alone (never a test image), over three seeds:

- prompt tuning of all classes at once reaches 75 % or more;
- nearest class mean of frozen features lies at least 12 points below it (the aim is 20);
- a linear classifier on frozen features lies at least 5 points below it;
- sequential prompt tuning over ten tasks forgets at least 10 points.

How methods against forgetting rank plays no part. `tests/benchmarks/glyphs_strengths.py` measures the grid,
`results/bench/glyphs-strengths.json` has all of it, rejected ones too.
"""

from dataclasses import dataclass, replace

import numpy as np

IMAGE_SIZE = 24  # pixels, height and width of a composed image


@dataclass(frozen=True)
class Style:
    """The ranges an image's distortions are drawn from (uniformly, symmetric where one number is given)."""

    rotation: float  # largest |tan(angle / 2)|
    shear: float
    scale: tuple[float, float]  # glyph box as a fraction of the image
    shift: float  # pixels
    warp: float  # pixels, largest displacement of a coarse 4x4 grid
    noise: float  # gray levels in [0, 1], half-width of the noise
    # fraction of images with colored ink on uneven colored paper; the others are dark ink on near-white
    colored: float
    ruling: float = 0.0  # gray levels by which ruled lines are brighter than what is between them


PRETRAINING = Style(
    rotation=0.16, shear=0.20, scale=(0.62, 0.96), shift=1.8, warp=1.0, noise=0.10, colored=0.5
)
PLAIN = Style(rotation=0.20, shear=0.25, scale=(0.60, 0.96), shift=2.0, warp=1.4, noise=0.16, colored=1.0)
RULED = replace(PLAIN, ruling=0.20)


class Uniforms:
    """A stream of float64 in [0, 1) that depends on `key` alone (PCG64's raw output, which numpy keeps)."""

    def __init__(self, *key: int):
        self._bits = np.random.PCG64(np.random.SeedSequence(key))

    def draw(self, *shape: int) -> np.ndarray:
        """The next prod(shape) numbers of the stream, in the given shape."""
        raw = self._bits.random_raw(int(np.prod(shape)))
        return (raw >> np.uint64(11)).reshape(shape) * 2.0**-53

    def symmetric(self, half_width: float, *shape: int) -> np.ndarray:
        """Numbers in [-half_width, half_width)."""
        return (self.draw(*shape) * 2.0 - 1.0) * half_width


def compose(masks: np.ndarray, style: Style, count: int, uniforms: Uniforms) -> np.ndarray:
    """`count` images of one class: (count, 24, 24, 3) uint8 from masks (faces, S, S) uint8.

    Every face is used equally often, or once less.
    """
    places = uniforms.draw(-(-count // len(masks)), len(masks))
    faces = np.argsort(places, axis=1, kind="stable").reshape(-1)[:count]
    ink = _distorted(masks[faces].astype(np.float64) / 255.0, style, uniforms)  # (n, 24, 24)
    colored_paper, colored_pen = _uneven_colors(count, uniforms)
    colored = uniforms.draw(count, 1, 1, 1) < style.colored
    paper = np.where(colored, colored_paper, 1.0 - uniforms.draw(count, 1, 1, 1) * 0.12)
    pen = np.where(colored, colored_pen, uniforms.draw(count, 1, 1, 1) * 0.25)
    image = paper + (pen - paper) * ink[..., None]
    image = image + (_ruled_lines() - 0.5) * style.ruling
    grain = uniforms.draw(3, count, IMAGE_SIZE, IMAGE_SIZE, 3)
    image = image + (grain[0] + grain[1] + grain[2] - 1.5) * (style.noise / 1.5 * 2.0)
    return np.floor(np.clip(image, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)


def _ruled_lines() -> np.ndarray:
    """1 on ruled lines and 0 between them, (24, 1, 1): three rows of pixels each, the same on every image."""
    return (np.arange(IMAGE_SIZE) % 6 < 3).astype(np.float64)[:, None, None]


def _distorted(ink: np.ndarray, style: Style, uniforms: Uniforms) -> np.ndarray:
    """Rotate, shear, scale, shift and warp glyphs (n, S, S) into (n, 24, 24); around them is nothing."""
    count, size = len(ink), ink.shape[-1]
    half_tangent = uniforms.symmetric(style.rotation, count, 1, 1)
    cosine = (1.0 - half_tangent * half_tangent) / (1.0 + half_tangent * half_tangent)
    sine = 2.0 * half_tangent / (1.0 + half_tangent * half_tangent)
    shear = uniforms.symmetric(style.shear, count, 1, 1)
    low, high = style.scale
    stretch = size / (IMAGE_SIZE * (low + (high - low) * uniforms.draw(2, count, 1, 1)))
    shift = uniforms.symmetric(style.shift, 2, count, 1, 1)
    bend = _upsampled(uniforms.symmetric(style.warp, 2 * count, 4, 4))
    bend = bend.reshape(2, count, IMAGE_SIZE, IMAGE_SIZE)
    centered = np.arange(IMAGE_SIZE) - (IMAGE_SIZE - 1) / 2
    y = centered[None, :, None] + shift[0] + bend[0]
    x = centered[None, None, :] + shift[1] + bend[1]
    source_y = (sine * x + cosine * y) * stretch[0] + (size - 1) / 2
    source_x = (cosine * x - sine * y + shear * y) * stretch[1] + (size - 1) / 2
    return bilinear(np.pad(ink, ((0, 0), (1, 1), (1, 1))), source_y + 1.0, source_x + 1.0)


def bilinear(images: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Values of images (n, S, S) at fractional coordinates (n, h, w), clamped to the border."""
    last = images.shape[-1] - 1
    y, x = np.clip(y, 0.0, last), np.clip(x, 0.0, last)
    top, left = (np.minimum(np.floor(place).astype(np.int64), last - 1) for place in (y, x))
    down, right = y - top, x - left
    n = np.arange(len(images))[:, None, None]
    upper = images[n, top, left] * (1.0 - right) + images[n, top, left + 1] * right
    lower = images[n, top + 1, left] * (1.0 - right) + images[n, top + 1, left + 1] * right
    return upper * (1.0 - down) + lower * down


def _upsampled(grids: np.ndarray) -> np.ndarray:
    """Coarse grids (n, g, g) interpolated to (n, 24, 24), corners on corners."""
    coordinates = np.arange(IMAGE_SIZE) * ((grids.shape[-1] - 1) / (IMAGE_SIZE - 1))
    shape = (len(grids), IMAGE_SIZE, IMAGE_SIZE)
    y, x = (np.broadcast_to(places, shape) for places in (coordinates[:, None], coordinates[None, :]))
    return bilinear(grids, y, x)


def _uneven_colors(count: int, uniforms: Uniforms) -> tuple[np.ndarray, np.ndarray]:
    """Uneven colored paper (n, 24, 24, 3) and an ink color (n, 1, 1, 3), at least 0.35 darker or brighter."""
    base = uniforms.draw(count, 1, 1, 3)
    unevenness = _upsampled(uniforms.symmetric(0.18, 3 * count, 3, 3))
    unevenness = unevenness.reshape(3, count, IMAGE_SIZE, IMAGE_SIZE)
    brightness = (base[..., 0] + base[..., 1] + base[..., 2]) / 3.0
    target = np.where(
        brightness > 0.5,
        brightness - 0.35 - 0.15 * uniforms.draw(count, 1, 1),
        brightness + 0.35 + 0.15 * uniforms.draw(count, 1, 1),
    )
    tint = uniforms.draw(count, 1, 1, 3)
    tint = tint - ((tint[..., 0] + tint[..., 1] + tint[..., 2]) / 3.0)[..., None]
    return base + np.moveaxis(unevenness, 0, -1), target[..., None] + tint * 0.5
