"""Data sets of encoded images, decoded once: how they are kept for training and for evaluation.

Training images are kept at their own shape with the shorter side at most 256 pixels, from which they are
augmented. Evaluation images are resized and cropped from the original pixels by Pillow, as published code
does, and kept at the network's size.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import numpy as np
from PIL import Image

from cl_bench.config import Transform
from cl_bench.data.cache import cached_files
from cl_bench.data.decode import in_threads, stream_npy
from cl_bench.data.images import ImageSet, Ragged
from cl_bench.data.preprocess import central, evaluation_size
from cl_bench.data.source import Source
from cl_bench.errors import InputError

SHORT_SIDE = 256  # pixels, of stored training images


Key = TypeVar("Key", bound=Hashable)  # what a source needs to know of an image to open it


class Decoded(Source, Generic[Key]):
    """A source whose images are decoded into caches; subclasses list them and open one at a time."""

    # whether images of one size, all small, are kept as they are and resized where they are used
    SMALL_AS_THEY_ARE: ClassVar[bool] = True

    @abstractmethod
    def keys(self, side: str) -> Sequence[Key]:
        """What `opened` and `size` need to know of every image of the "train" or "test" side, in order."""

    @abstractmethod
    def labels(self, side: str) -> np.ndarray:
        """Labels in the same order."""

    @abstractmethod
    def opened(self, key: Key) -> Image.Image:
        """The image in RGB, after its bytes were found to be those of the manifest; called in threads."""

    @abstractmethod
    def size(self, key: Key) -> tuple[int, int]:
        """(width, height) of what `opened` returns, sooner; called in threads."""

    def images(self, side: str) -> ImageSet:
        """Images in the side's order, the shorter side at most 256 pixels (bilinear), for augmentation."""
        arrays = self._cached(side, {"short_side": SHORT_SIDE}, self._write_ragged)
        if shape := self._common(side):
            return ImageSet(arrays["pixels"].reshape(-1, *shape, 3), self.labels(side))
        return ImageSet(Ragged(arrays["pixels"], np.asarray(arrays["sizes"])), self.labels(side))

    def evaluated(self, side: str, transform: Transform, image_size: int) -> ImageSet:
        """Images in the side's order, resized and cropped to the network's size."""
        if self._common(side):
            return self.images(side)

        def write(side: str, folder: Path) -> None:
            self._write_ready(side, folder, transform, image_size)

        settings = {"resize": transform.resize, "interpolation": transform.interpolation}
        arrays = self._cached(side, {**settings, "image_size": image_size}, write)
        return ImageSet(arrays["images"], self.labels(side), ready=True)

    def _common(self, side: str) -> tuple[int, int] | None:
        """(height, width) that all of the side's images have, where that is small; else None."""
        if not self.SMALL_AS_THEY_ARE:
            return None
        sizes = self._cached(side, {"measured": True}, self._write_sizes)["measured"]
        shape = int(sizes[0, 1]), int(sizes[0, 0])
        return shape if min(shape) <= SHORT_SIDE and (sizes == sizes[0]).all() else None

    def _cached(self, side: str, settings: dict, write: Callable[[str, Path], None]) -> dict[str, np.ndarray]:
        key = {"source": self.name, "manifest": self.manifest(), "side": side, **settings}
        return cached_files(key, lambda folder: write(side, folder))

    def _measured(self, side: str) -> list[tuple[int, int]]:
        return list(in_threads(self.size, self.keys(side), f"measuring {self.name} {side}"))

    def _write_sizes(self, side: str, folder: Path) -> None:
        np.save(folder / "measured.npy", np.array(self._measured(side), np.int64))

    def _write_ragged(self, side: str, folder: Path) -> None:
        shapes = np.array([_stored(*found) for found in self._measured(side)])
        description = f"decoding {self.name} {side} at a shorter side of {SHORT_SIDE}"
        images = in_threads(lambda key: _shortened(self.opened(key)), self.keys(side), description)
        np.save(folder / "sizes.npy", shapes)
        stream_npy(folder / "pixels.npy", (int(shapes.prod(axis=1).sum()) * 3,), images)

    def _write_ready(self, side: str, folder: Path, transform: Transform, image_size: int) -> None:

        def evaluated(key: Key) -> np.ndarray:
            return evaluation_image(self.opened(key), transform, image_size)

        keys = self.keys(side)
        ready = in_threads(evaluated, keys, f"decoding {self.name} {side} at {image_size} px")
        stream_npy(folder / "images.npy", (len(keys), image_size, image_size, 3), ready)


def require_classes(name: str, labels: Mapping[str, np.ndarray], class_names: Sequence[str]) -> None:
    """Raise InputError for a class without images on one of the sides, and for fewer than two classes."""
    if len(class_names) < 2:
        raise InputError(f"{name} has {len(class_names)} class, expected at least 2")
    for side, found in labels.items():
        lacking = np.setdiff1d(np.arange(len(class_names)), found)
        if len(lacking):
            more = f", and none of {len(lacking) - 1} others" if len(lacking) > 1 else ""
            missing = f"no {side} image of class {class_names[lacking[0]]!r}{more}"
            raise InputError(f"{name} has {missing}; expected images of every class on both sides")


def _stored(width: int, height: int) -> tuple[int, int]:
    """(height, width) of a training image as it is kept."""
    if min(width, height) <= SHORT_SIDE:
        return height, width
    return evaluation_size((height, width), SHORT_SIDE, "short-crop")


def _shortened(image: Image.Image) -> np.ndarray:
    height, width = _stored(*image.size)
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image)


def evaluation_image(image: Image.Image, transform: Transform, image_size: int) -> np.ndarray:
    """The image (S, S, 3) as Pillow resizes and torchvision crops it: the reference of `Preprocess.plain`."""
    height, width = evaluation_size((image.height, image.width), image_size, transform.resize)
    pixels = np.asarray(image.resize((width, height), Image.Resampling[transform.interpolation.upper()]))
    return pixels[central(height, image_size), central(width, image_size)]
