"""AutoAugment's operations on a batch of images at once, magnitude by image, to Pillow's 8-bit results.

Images are (B, 3, H, W), whole numbers 0..255; those smaller than H x W lie in the top left corner of the
frame.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cl_bench.data.device_images import uploaded

TINY = 1e-3  # a sum that should be a whole number may be this far below it
AFFINE = {
    "ShearX": lambda m, h, w: (1, m, 0, 0, 1, 0),
    "ShearY": lambda m, h, w: (1, 0, 0, m, 1, 0),
    "TranslateX": lambda m, h, w: (1, 0, -np.trunc(m), 0, 1, 0),
    "TranslateY": lambda m, h, w: (1, 0, 0, 0, 1, -np.trunc(m)),
    "Rotate": lambda m, h, w: _rotation(np.radians(-m), h / 2, w / 2),
}
"""Operation -> (a, b, c, d, e, f) from magnitude, height and width.

Output (x, y) shows input (a x + b y + c, d x + e y + f).
"""


class Frame:
    """Where some images lie in their common frame."""

    def __init__(self, sizes: np.ndarray, images: Tensor):
        height, width = images.shape[-2:]
        self.device, self.padded = images.device, bool((sizes != (height, width)).any())
        self.height, self.width = (self.tensor(column.astype(float)).view(-1, 1, 1, 1) for column in sizes.T)
        self.y = torch.arange(height, dtype=torch.float32, device=self.device).view(1, 1, -1, 1)
        self.x = torch.arange(width, dtype=torch.float32, device=self.device).view(1, 1, 1, -1)

    def tensor(self, values: np.ndarray) -> Tensor:
        """Numbers on the images' device in float64, as Pillow computes with."""
        return uploaded(values, self.device)

    @property
    def inside(self) -> Tensor:
        """Which pixels of the frame are the image's, (B, 1, H, W)."""
        return (self.y < self.height) & (self.x < self.width)


def affine(images: Tensor, frame: Frame, matrices: Tensor) -> Tensor:
    """Each image under its own map (B, 6), bilinear, black outside."""
    a, b, c, d, e, f = matrices.T.reshape(6, -1, 1, 1)
    x, y = frame.x[0].double() + 0.5, frame.y[0].double() + 0.5
    x, y = a * x + b * y + c, d * x + e * y + f  # (B, H, W)
    height, width = frame.height[:, 0], frame.width[:, 0]
    shown = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    # beyond the centers the edge repeats
    x, y = (torch.minimum((at - 0.5).clamp(min=0), most - 1) for at, most in ((x, width), (y, height)))
    left, top = x.floor(), y.floor()
    right, bottom = torch.minimum(left + 1, width - 1), torch.minimum(top + 1, height - 1)
    across, down = (x - left).float()[:, None], (y - top).float()[:, None]

    def pixels(row: Tensor, column: Tensor) -> Tensor:
        places = (row * images.shape[-1] + column).long().flatten(1)[:, None]
        return images.flatten(2).gather(2, places.expand(-1, 3, -1)).view_as(images)

    above = torch.lerp(pixels(top, left), pixels(top, right), across)
    below = torch.lerp(pixels(bottom, left), pixels(bottom, right), across)
    return (torch.lerp(above, below, down) + TINY).floor() * shown[:, None]


def _rotation(angle: np.ndarray, cy: np.ndarray, cx: np.ndarray) -> tuple:
    cos, sin = np.cos(angle), np.sin(angle)
    return cos, sin, cx - cos * cx - sin * cy, -sin, cos, cy + sin * cx - cos * cy


def blended(weak: Tensor, images: Tensor, change: Tensor) -> Tensor:
    """weak + (1 + change) (image - weak), cut to 0..255 and to whole numbers."""
    return (weak + (1 + change).float() * (images - weak)).clamp(0, 255).floor()


def gray(images: Tensor) -> Tensor:
    """ITU-R 601-2 luma (B, 1, H, W) in Pillow's 16-bit fixed point; every sum is below 2^24 and exact."""
    red, green, blue = images.split(1, dim=1)
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) / 65536).floor()


def contrast(images: Tensor, frame: Frame, change: Tensor) -> Tensor:
    """Towards or away from the mean gray."""
    mean = gray(images).double().sum((2, 3), keepdim=True) / (frame.height * frame.width)
    return blended((mean + 0.5).floor().float(), images, change)


def sharpness(images: Tensor, frame: Frame, change: Tensor) -> Tensor:
    """Towards or away from the image smoothed with weights 1 around 5; the outermost pixels stay."""
    smooth = ((9 * F.avg_pool2d(images, 3, stride=1, padding=1) + 4 * images) / 13 + 0.5).floor()
    inner = (frame.y > 0) & (frame.x > 0) & (frame.y < frame.height - 1) & (frame.x < frame.width - 1)
    return blended(torch.where(inner, smooth, images), images, change)


def looked_up(images: Tensor, table: Tensor) -> Tensor:
    """table[b, channel, value], (B, 3, 256), for every pixel."""
    return table.gather(2, images.flatten(2).long()).view_as(images)


def autocontrast(images: Tensor, frame: Frame, _: Tensor) -> Tensor:
    """Each channel stretched to 0..255, in float64 as Pillow does; one of a single value stays."""
    low = torch.where(frame.inside, images, 255.0).amin((2, 3))[..., None].double()
    high = images.amax((2, 3))[..., None].double()  # zeros around an image raise no maximum
    values = torch.arange(256, dtype=torch.float64, device=images.device)
    # a number divided by a tensor would be a product with reciprocals
    scale = torch.full_like(low, 255.0) / (high - low).clamp(min=1)
    table = (values * scale - low * scale).trunc().clamp(0, 255)
    return looked_up(images, torch.where(high > low, table, values).float())


def equalize(images: Tensor, frame: Frame, _: Tensor) -> Tensor:
    """Each channel's histogram made flat; one of a single value, or too small, stays."""
    flat = images.flatten(2).long()
    counts = torch.zeros(*flat.shape[:2], 256, dtype=torch.long, device=images.device)
    counts.scatter_add_(2, flat, torch.ones_like(flat))
    if frame.padded:
        around = images.shape[-2] * images.shape[-1] - frame.height * frame.width
        counts[..., 0] -= around.long().view(-1, 1)
    filled = counts > 0
    last = counts.gather(2, 255 - filled.flip(2).long().argmax(2, keepdim=True))
    step = torch.div(counts.sum(2, keepdim=True) - last, 255, rounding_mode="floor")
    below = counts.cumsum(2) - counts
    table = torch.div(step // 2 + below, step.clamp(min=1), rounding_mode="floor").clamp(max=255)
    stays = (step == 0) | (filled.sum(2, keepdim=True) <= 1)
    return looked_up(images, torch.where(stays, torch.arange(256, device=images.device), table).float())


Operation = Callable[[Tensor, Frame, Tensor], Tensor]
OPERATIONS: dict[str, Operation] = {
    "Brightness": lambda images, frame, change: blended(torch.zeros_like(images), images, change),
    "Color": lambda images, frame, change: blended(gray(images), images, change),
    "Contrast": contrast,
    "Sharpness": sharpness,
    "Posterize": lambda images, frame, bits: images - images.remainder(2 ** (8 - bits).float()),
    "Solarize": lambda images, frame, threshold: torch.where(images < threshold, images, 255 - images),
    "AutoContrast": autocontrast,
    "Equalize": equalize,
    "Invert": lambda images, frame, _: 255 - images,
}
"""Operation -> function of float images, their frame and magnitudes (B, 1, 1, 1)."""
