"""From uint8 images to the network's input, on the device and for a whole batch at once."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cl_bench.config import BackboneSpec, Transform
from cl_bench.seeds import uniforms


def evaluation_size(stored: tuple[int, int], size: int, rule: str) -> tuple[int, int]:
    """(height, width) that images of the stored (height, width) are resized to before the central size x size is taken.

    As torchvision's Resize: "squash-crop" is 256 for 224, "short-crop" brings the shorter side to `size` and cuts the longer one to whole pixels,
    "short-margin-crop" brings it to 256 for 224.
    """
    length = round(size * 256 / 224) if rule in ("squash-crop", "short-margin-crop") else size
    if rule.startswith("squash"):
        return length, length
    height, width = stored
    return (length, int(length * width / height)) if height <= width else (int(length * height / width), length)


def central(length: int, size: int) -> slice:
    """The middle `size` of `length` pixels, as torchvision's CenterCrop cuts it."""
    start = round((length - size) / 2)
    return slice(start, start + size)


class Preprocess:
    """Resizes, augments and normalises; an image's augmentation depends on (data seed, pass, image index) alone."""

    def __init__(self, backbone: BackboneSpec, transform: Transform, data_seed: int, device: torch.device):
        self.size, self.transform, self.data_seed, self.device = backbone.image_size, transform, data_seed, device
        mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (backbone.mean, backbone.std))
        self._scale, self._offset = 1.0 / (255.0 * std), -mean / std

    def plain(self, images: np.ndarray, ready: bool = False) -> Tensor:
        """Evaluation input (B, 3, S, S) of uint8 images (B, h, w, 3): antialiased resize and central crop as Pillow's, normalised as the
        checkpoint was. `ready` images have the right size already."""
        pixels = torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).float()
        if not ready:
            pixels = self._resized(pixels)
        return pixels * self._scale + self._offset

    def _resized(self, pixels: Tensor) -> Tensor:
        height, width = evaluation_size(pixels.shape[-2:], self.size, self.transform.resize)
        for shape in ((pixels.shape[-2], width), (height, width)):  # rows, then columns, each rounded to 8 bits: Pillow's order
            if pixels.shape[-2:] != shape:
                pixels = F.interpolate(pixels, shape, mode=self.transform.interpolation, antialias=True, align_corners=False)
                pixels = pixels.add_(0.5).floor_().clamp_(0, 255)  # halves go up
        return pixels[..., central(height, self.size), central(width, self.size)]

    def augmented(self, images: np.ndarray | list[np.ndarray], pass_index: int, indices: np.ndarray, ready: bool = False) -> Tensor:
        """Training input (B, 3, S, S): "none" as `plain`, "crop" a random resized crop (aspect 3/4 to 4/3, bilinear), "crop-flip" also
        mirrored every second time, else see `augment`."""
        return self.augmenting(images, pass_index, indices, ready)()

    def augmenting(self, images: np.ndarray | list[np.ndarray], pass_index: int, indices: np.ndarray, ready: bool = False) -> Callable[[], Tensor]:
        """Start what other processes do of `augmented`; the function returned does the rest."""
        if self.transform.augment == "none":
            return lambda: self.plain(images, ready)
        if self.transform.augment not in ("crop", "crop-flip") or isinstance(images, list):
            from cl_bench.augment import augmenting  # torchvision takes a while to import

            key = (self.data_seed, self.transform.augment, pass_index)
            pixels = augmenting(images, self.transform, self.size, key, indices, torch.get_num_threads())
            return lambda: self.plain(pixels(), ready=True)
        return lambda: self._cropped(images, pass_index, indices)

    def _cropped(self, images: np.ndarray, pass_index: int, indices: np.ndarray) -> Tensor:
        pixels = torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).float() * self._scale + self._offset
        theta = torch.from_numpy(self._crops(pass_index, indices)).to(self.device)
        finer = max(1, math.ceil(max(pixels.shape[-2:]) / self.size))  # a stored image larger than the input is sampled finer, then averaged
        grid = F.affine_grid(theta, [len(images), 3, self.size * finer, self.size * finer], align_corners=False)
        crops = F.grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False)
        return F.avg_pool2d(crops, finer) if finer > 1 else crops

    def _crops(self, pass_index: int, indices: np.ndarray) -> np.ndarray:
        """Affine matrices (B, 2, 3) of crops with area in [crop_scale, 1] and log-uniform aspect, shrunk where they would not fit."""
        area, aspect, left, top = uniforms(indices, 4, self.data_seed, "crop", pass_index).T
        area = self.transform.crop_scale + (1.0 - self.transform.crop_scale) * area
        aspect = np.exp(math.log(3 / 4) + math.log(16 / 9) * aspect)
        width, height = np.minimum(np.sqrt(area * aspect), 1.0), np.minimum(np.sqrt(area / aspect), 1.0)
        theta = np.zeros((len(indices), 2, 3), np.float32)
        theta[:, 0, 0], theta[:, 1, 1] = width, height
        if self.transform.augment == "crop-flip":
            theta[:, 0, 0] *= np.where(uniforms(indices, 1, self.data_seed, "flip", pass_index)[:, 0] < 0.5, -1, 1)
        theta[:, 0, 2], theta[:, 1, 2] = (1 - width) * (2 * left - 1), (1 - height) * (2 * top - 1)
        return theta
