"""From uint8 images to the network's input, on the device and for a whole batch at once."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cl_bench.config import BackboneSpec, Transform
from cl_bench.data import augment_batch
from cl_bench.data.augment_draws import POLICIES, Draws, draw
from cl_bench.data.device_images import Frames, gathered, packed, uploaded
from cl_bench.seeds import derived_seed

Images = np.ndarray | list[np.ndarray] | Frames
"""uint8 images: (B, H, W, 3), or (h, w, 3) each, or on the device."""


def evaluation_size(stored: tuple[int, int], size: int, rule: str) -> tuple[int, int]:
    """(height, width) that images of the stored (height, width) are resized to before their center is taken.

    As torchvision's Resize: "squash-crop" is 256 for 224, "short-crop" brings the shorter side to `size` and
    cuts the longer one to whole pixels, "short-margin-crop" brings it to 256 for 224.
    """
    length = round(size * 256 / 224) if rule in ("squash-crop", "short-margin-crop") else size
    if rule.startswith("squash"):
        return length, length
    height, width = stored
    if height <= width:
        return length, int(length * width / height)
    return int(length * height / width), length


def central(length: int, size: int) -> slice:
    """The middle `size` of `length` pixels, as torchvision's CenterCrop cuts it."""
    start = round((length - size) / 2)
    return slice(start, start + size)


class Preprocess:
    """Resizes, augments and normalizes; an image's augmentation depends on (data seed, pass, index) alone."""

    def __init__(self, backbone: BackboneSpec, transform: Transform, data_seed: int, device: torch.device):
        self.size, self.transform = backbone.image_size, transform
        self.data_seed, self.device = data_seed, device
        mean = torch.tensor(backbone.mean, device=device).view(1, 3, 1, 1)
        std = torch.tensor(backbone.std, device=device).view(1, 3, 1, 1)
        self._scale, self._offset = 1.0 / (255.0 * std), -mean / std

    @property
    def uses_pillow(self) -> bool:
        """Whether other processes augment the images."""
        return self.transform.augment != "none" and self.transform.augmenter == "torchvision"

    def plain(self, images: Images, ready: bool = False) -> Tensor:
        """Evaluation input (B, 3, S, S) of uint8 images (B, h, w, 3), normalized as the checkpoint was.

        Antialiased resize and central crop are Pillow's; `ready` images have the right size already.
        """
        pixels = self.moved(images).pixels.permute(0, 3, 1, 2).float()
        if not ready:
            pixels = self._resized(pixels)
        return pixels * self._scale + self._offset

    def moved(self, images: Images) -> Frames:
        """The images on the device; to a GPU they go while it computes, and it puts them into frames."""
        if isinstance(images, Frames):
            return images
        sizes, gpu = image_sizes(images), self.device.type == "cuda"
        if gpu and isinstance(images, list):
            pixels, starts = (uploaded(array, self.device) for array in packed(images))
            return Frames(gathered(pixels, starts, sizes), sizes)
        return Frames(uploaded(framed(images), self.device), sizes)

    def _resized(self, pixels: Tensor) -> Tensor:
        stored = (pixels.shape[-2], pixels.shape[-1])
        height, width = evaluation_size(stored, self.size, self.transform.resize)
        mode = self.transform.interpolation
        # rows, then columns, each rounded to 8 bits: Pillow's order
        for shape in ((pixels.shape[-2], width), (height, width)):
            if pixels.shape[-2:] != shape:
                pixels = F.interpolate(pixels, shape, mode=mode, antialias=True, align_corners=False)
                pixels = pixels.add_(0.5).floor_().clamp_(0, 255)  # halves go up
        return pixels[..., central(height, self.size), central(width, self.size)]

    def augmented(
        self, images: Images, pass_index: int | np.ndarray, indices: np.ndarray, ready: bool = False
    ) -> Tensor:
        """Training input (B, 3, S, S) of the images in their pass.

        "none" is as `plain`, "crop" a random resized crop (aspect 3/4 to 4/3, bilinear), "crop-flip" also
        mirrored every second time, the others AutoAugment and then the crop. With the augmenter "torchvision"
        Pillow does it, see `cl_bench.data.augment_pillow`.
        """
        return next(self.augmented_batches([(images, pass_index, indices)], ready))

    def augmented_batches(
        self, batches: Iterable[tuple[Images, int | np.ndarray, np.ndarray]], ready: bool = False
    ) -> Iterator[Tensor]:
        """`augmented` of each batch of images, their pass (or one for each image) and their indices.

        Pillow is one batch ahead of the caller.
        """
        if self.transform.augment == "none":
            yield from (self.plain(images, ready) for images, _, _ in batches)
        elif self.uses_pillow:
            from cl_bench.data.augment_pillow import augmented_batches  # torchvision takes a while to import

            numbered = ((_at_hand(images), self._seeds(passes, at)) for images, passes, at in batches)
            for pixels in augmented_batches(numbered, self.transform, self.size, torch.get_num_threads()):
                yield self.plain(pixels, ready=True)
        else:
            for images, passes, indices in batches:
                key = (self.data_seed, "augment", passes)
                yield self._batched(images, draw(self.transform, image_sizes(images), key, indices))

    def _seeds(self, pass_index: int | np.ndarray, indices: np.ndarray) -> list[int]:
        places = zip(np.broadcast_to(pass_index, len(indices)).tolist(), indices.tolist(), strict=True)
        return [derived_seed(self.data_seed, self.transform.augment, *place) for place in places]

    def _batched(self, images: Images, draws: Draws) -> Tensor:
        frames, kind = self.moved(images), self.transform
        interpolation = kind.crop_interpolation if kind.augment in POLICIES else "bilinear"
        pixels = frames.pixels.permute(0, 3, 1, 2)
        pixels = augment_batch.augmented(pixels, frames.sizes, draws, self.size, interpolation)
        return pixels * self._scale + self._offset


def _at_hand(images: Images) -> np.ndarray | list[np.ndarray]:
    """Images that Pillow is to augment, which are never moved to the device before."""
    assert not isinstance(images, Frames)
    return images


def image_sizes(images: Images) -> np.ndarray:
    """(B, 2), height and width."""
    if isinstance(images, Frames):
        return images.sizes
    if isinstance(images, list):
        return np.array([image.shape[:2] for image in images])
    return np.full((len(images), 2), images.shape[1:3])


def framed(images: np.ndarray | list[np.ndarray]) -> np.ndarray:
    """(B, H, W, 3): images of differing sizes in the top left corners of black frames, others as they are."""
    if not isinstance(images, list):
        return images
    frames = np.zeros((len(images), *image_sizes(images).max(0), 3), np.uint8)
    for frame, image in zip(frames, images, strict=True):
        frame[: image.shape[0], : image.shape[1]] = image
    return frames
