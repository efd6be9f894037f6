"""uint8 images of a data set, in memory, mapped from disk, or in the memory of a device."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from cl_bench.data.device_images import Frames, OnDevice, packed


class Ragged:
    """uint8 images of differing sizes end to end in one memory-mapped array; image i is (h_i, w_i, 3)."""

    def __init__(self, pixels: np.ndarray, sizes: np.ndarray):
        self._pixels, self.sizes = pixels, sizes
        self._ends = np.cumsum(sizes.prod(axis=1) * 3)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, rows: int | np.ndarray) -> np.ndarray | list[np.ndarray]:
        if isinstance(rows, np.ndarray):
            return [self._image(int(row)) for row in rows]
        return self._image(rows)

    def _image(self, row: int) -> np.ndarray:
        height, width = (int(length) for length in self.sizes[row])
        end = int(self._ends[row])
        return self._pixels[end - height * width * 3 : end].reshape(height, width, 3)


@dataclass(frozen=True, eq=False)
class ImageSet:
    """One side of a data set: N images, often memory-mapped, of which n are chosen, and their labels.

    For a run on a GPU the images may lie in its memory, see `cl_bench.data.device_images`.
    """

    images: "np.ndarray | Ragged | OnDevice"  # (N, H, W, 3) uint8, or of differing sizes
    labels: np.ndarray  # (n,), indices into `class_names`
    rows: np.ndarray | None = None  # (n,), the chosen images, which stay where they are; None: all of them
    ready: bool = False  # whether the images are resized and cropped to the network's input already

    def __post_init__(self):
        images = self.images
        if isinstance(images, np.ndarray) and (
            images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3
        ):
            raise ValueError(f"images must be (N, H, W, 3) uint8, got {images.shape} {images.dtype}")
        count = len(self.images if self.rows is None else self.rows)
        if self.labels.shape != (count,):
            raise ValueError(f"{count} images but labels of shape {self.labels.shape}")

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, chosen: np.ndarray) -> "ImageSet":
        """The chosen positions, in that order; no pixel is copied."""
        rows = chosen if self.rows is None else self.rows[chosen]
        return replace(self, labels=self.labels[chosen], rows=rows)

    def pixels(self, chosen: np.ndarray) -> "np.ndarray | list[np.ndarray] | Frames":
        """The images at these positions: (B, H, W, 3), (h, w, 3) each where sizes differ, or on a device."""
        rows = chosen if self.rows is None else self.rows[chosen]
        found = self.images[rows]
        return np.asarray(found) if isinstance(found, np.ndarray) else found


SHARE = 0.25  # of the free memory of a GPU that images may take


def resident(sides: list[ImageSet], device: torch.device, most: int | None = None) -> list[ImageSet]:
    """The sides, each in the device's memory where it fits beside those before it, else as it is.

    At most `most` bytes are taken: by default a quarter of what is free on a GPU, and nothing elsewhere,
    where images are at hand already. A side that stands there twice is moved once.
    """
    if most is None:
        most = int(SHARE * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0
    kept: dict[ImageSet, ImageSet] = {}
    for side in sides:
        if side not in kept and (length := _bytes(side)) <= most:
            kept[side] = _moved(side, device)
            most -= length
    return [kept.get(side, side) for side in sides]


def _bytes(side: ImageSet) -> int:
    return int(_sizes(side).prod(axis=1).sum()) * 3


def _sizes(side: ImageSet) -> np.ndarray:
    rows = np.arange(len(side.labels)) if side.rows is None else side.rows
    if isinstance(side.images, Ragged):
        return side.images.sizes[rows]
    assert isinstance(side.images, np.ndarray)  # nothing is moved twice
    return np.tile(np.array(side.images.shape[1:3]), (len(rows), 1))


def _moved(side: ImageSet, device: torch.device, images: int = 1024) -> ImageSet:
    """The chosen images of a side on the device, moved in parts of `images`."""
    sizes = _sizes(side)
    pixels, end = torch.empty((int(sizes.prod(axis=1).sum()), 3), dtype=torch.uint8, device=device), 0
    for start in range(0, len(side), images):
        found = side.pixels(np.arange(start, min(start + images, len(side))))
        assert not isinstance(found, Frames)  # nothing is moved twice
        part = torch.from_numpy(packed(found)[0] if isinstance(found, list) else found.reshape(-1, 3))
        pixels[end : end + len(part)] = part.to(device)
        end += len(part)
    return replace(side, images=OnDevice(pixels, sizes), rows=None)
