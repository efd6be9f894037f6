"""Images in a device's memory: nothing but their places crosses the bus during a run."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Frames:
    """uint8 images on the device; those smaller than H x W lie in the top left corner, black around."""

    pixels: Tensor  # (B, H, W, 3)
    sizes: np.ndarray  # (B, 2), height and width


def uploaded(array: np.ndarray, device: torch.device) -> Tensor:
    """The array on the device; to a GPU it goes while that computes, and nobody waits."""
    values = torch.from_numpy(array)
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


class OnDevice:
    """uint8 images of one or of differing sizes, end to end in a device's memory."""

    def __init__(self, pixels: Tensor, sizes: np.ndarray):
        """`pixels` (total, 3) are those of all images, row by row; `sizes` (N, 2) heights and widths."""
        self._pixels, self._sizes = pixels, sizes
        self._starts = np.cumsum([0, *sizes.prod(axis=1)[:-1]])
        self._equal = len(sizes) > 0 and bool((sizes == sizes[0]).all())

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, rows: np.ndarray) -> Frames:
        device, sizes = self._pixels.device, self._sizes[rows]
        if self._equal:
            images = self._pixels.view(len(self), *map(int, self._sizes[0]), 3)
            return Frames(images[uploaded(rows, device)], sizes)
        return Frames(gathered(self._pixels, uploaded(self._starts[rows], device), sizes), sizes)


def gathered(pixels: Tensor, starts: Tensor, sizes: np.ndarray) -> Tensor:
    """Images in the top left corners of equal black frames, (B, H, W, 3), from pixels (total, 3).

    `starts` (B,) are the places of each image's first pixel, `sizes` (B, 2) heights and widths.
    """
    height, width = uploaded(np.ascontiguousarray(sizes.T), pixels.device).view(2, -1, 1, 1)
    y = torch.arange(int(sizes[:, 0].max()), device=pixels.device).view(1, -1, 1)
    x = torch.arange(int(sizes[:, 1].max()), device=pixels.device).view(1, 1, -1)
    inside = (y < height) & (x < width)
    places = torch.where(inside, starts.view(-1, 1, 1) + y * width + x, 0)
    return pixels[places] * inside[..., None]


def packed(images: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Images (h, w, 3) as pixels (total, 3), and places of their first ones, (B,): what `gathered` takes."""
    rows = [image.reshape(-1, 3) for image in images]
    return np.concatenate(rows), np.cumsum([0, *map(len, rows[:-1])])
