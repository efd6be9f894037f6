"""Augments a batch of images at once, each with its own draws, to Pillow's 8-bit results.

Images are (B, 3, H, W), whole numbers 0..255; those smaller than H x W lie in the top left corner with zeros
around, and `sizes` (B, 2) says which part of the frame each has. Every function works on any device and draws
nothing.
"""

import numpy as np
import torch
from torch import Tensor

from cl_bench.data.augment_draws import Draws
from cl_bench.data.augment_operations import AFFINE, OPERATIONS, TINY, Frame, affine
from cl_bench.data.device_images import uploaded

CACHE_BYTES, GPU_BYTES = 4 << 20, 1 << 28  # an operation takes up to ten times this


def augmented(images: Tensor, sizes: np.ndarray, draws: Draws, size: int, interpolation: str) -> Tensor:
    """uint8 images (B, 3, H, W) after the operations, crops and flips drawn; float32 (B, 3, size, size)."""
    for operations, magnitudes in zip(draws.operations, draws.magnitudes, strict=True):
        images = operated(images, sizes, operations, magnitudes)
    return resized_crops(images, draws.boxes, draws.mirrored, size, interpolation)


def operated(images: Tensor, sizes: np.ndarray, operations: np.ndarray, magnitudes: np.ndarray) -> Tensor:
    """Each uint8 image after its operation, "" for none."""
    kinds = np.array(["Affine" if name in AFFINE else name for name in operations], object)
    out = images
    for kind in sorted(set(kinds) - {""}):
        for rows in _parts(np.flatnonzero(kinds == kind), images):
            places, frame = uploaded(rows, images.device), Frame(sizes[rows], images)
            before = images[places].float()
            if kind == "Affine":
                matrices = frame.tensor(_matrices(operations[rows], magnitudes[rows], sizes[rows]))
                changed = affine(before, frame, matrices)
            else:
                changed = OPERATIONS[kind](before, frame, frame.tensor(magnitudes[rows]).view(-1, 1, 1, 1))
            out = out.clone() if out is images else out
            out[places] = (changed * frame.inside if frame.padded else changed).to(torch.uint8)
    return out


def _matrices(operations: np.ndarray, magnitudes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    matrices = np.empty((len(operations), 6))
    for name in set(operations):
        rows = operations == name
        numbers = AFFINE[name](magnitudes[rows], *sizes[rows].T)
        matrices[rows] = np.stack(np.broadcast_arrays(*numbers), axis=1)
    return matrices


def _parts(rows: np.ndarray, images: Tensor, pixels: int = 0) -> list[np.ndarray]:
    """The rows in parts whose float32 images stay in a processor's cache, or take little of a GPU."""
    most = CACHE_BYTES if images.device.type == "cpu" else GPU_BYTES
    fitting = max(1, most // (12 * max(pixels, images.shape[-2] * images.shape[-1])))
    return [rows[start : start + fitting] for start in range(0, len(rows), fitting)]


def resized_crops(
    images: Tensor, boxes: np.ndarray, mirrored: np.ndarray, size: int, interpolation: str
) -> Tensor:
    """Each image's box (top, left, height, width) antialiased to size x size, float32.

    Rows come first, and each pass is rounded to 8 bits. A pass is a product with a matrix of weights per
    image, so the whole batch is two batched matrix products.
    """
    parts = _parts(np.arange(len(images)), images, size * size)
    if len(parts) <= 1:
        return _resized_crops(images, boxes, mirrored, size, interpolation)
    found = []
    for rows in parts:
        part = images[rows[0] : rows[-1] + 1]
        found.append(_resized_crops(part, boxes[rows], mirrored[rows], size, interpolation))
    return torch.cat(found)


def _resized_crops(
    images: Tensor, boxes: np.ndarray, mirrored: np.ndarray, size: int, interpolation: str
) -> Tensor:
    (B, _, H, W), device = images.shape, images.device
    images = images.float()
    top, left, height, width = uploaded(boxes.T.astype(np.float32, order="C"), device).view(4, -1, 1, 1)
    across = _weights(left, width, W, size, interpolation)  # (B, size, W)
    if mirrored.any():
        across = torch.where(uploaded(mirrored, device).view(-1, 1, 1), across.flip(1), across)
    rows = _whole(torch.bmm(images.reshape(B, 3 * H, W), across.transpose(1, 2)))  # (B, 3 H, size)
    down = _weights(top, height, H, size, interpolation)  # (B, size, H)
    return _whole(down[:, None] @ rows.view(B, 3, H, size))


def _whole(pixels: Tensor) -> Tensor:
    """Halves go up, and so does what rounding has left of one: the frame's size must not decide."""
    return pixels.add_(0.5 + TINY).floor_().clamp_(0, 255)


def _weights(start: Tensor, length: Tensor, extent: int, size: int, interpolation: str) -> Tensor:
    """(B, size, extent): the share of every pixel of a line in each of `size` that cover a part of it.

    The part is `length` (B, 1, 1) pixels from `start` (B, 1, 1) on.
    """
    scale = length / size
    place = torch.arange(size, device=start.device, dtype=torch.float32).view(1, -1, 1)
    pixel = torch.arange(extent, device=start.device, dtype=torch.float32).view(1, 1, -1)
    distance = (pixel + 0.5 - start - (place + 0.5) * scale).abs_() / scale.clamp(min=1)
    if interpolation == "bilinear":
        weights = (1 - distance).clamp_(min=0)
    else:  # Keys' cubic with a = -1/2
        near = (1.5 * distance - 2.5) * distance * distance + 1
        far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
        weights = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    weights = weights * ((pixel >= start) & (pixel < start + length))
    return weights / weights.sum(2, keepdim=True)
