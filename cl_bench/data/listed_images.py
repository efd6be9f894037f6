"""Data sets of image files named by published split lists: prepared once, decoded once, verified each time.

Training images are kept at their own shape with the shorter side at most 256 pixels, from which they are
augmented. Evaluation images are resized and cropped from the original pixels by Pillow, as published code
does, and kept at the network's size. What published code does with the files is kept too:
`Image.open(path).convert("RGB")`, without regard for EXIF or transparency.
"""

import hashlib
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

from cl_bench.config import Transform
from cl_bench.data.cache import cached_files, data_folder
from cl_bench.data.decode import as_published, in_threads, size, stream_npy
from cl_bench.data.fingerprints import Fingerprints
from cl_bench.data.images import ImageSet, Ragged
from cl_bench.data.listed_files import Archive, Published, list_path, notes_path, read_notes
from cl_bench.data.preprocess import central, evaluation_size
from cl_bench.data.source import Source, named_path
from cl_bench.errors import InputError

SHORT_SIDE = 256  # pixels, of stored training images
DECODING = "as published, 1"  # raise it when the same files decode to other pixels


class ListedImages(Source):
    """A source whose files and split are given by lists; subclasses say where those are and how they read."""

    LISTS: ClassVar[dict[str, Published]]  # "train", "test", and what else `name_classes` reads
    ARCHIVES: ClassVar[tuple[Archive, ...]]

    def __init__(self, argument: str | None = None):
        root = data_folder(self.name) if argument is None else named_path(argument)
        self.argument = None if argument is None else str(root)
        again = f"run `cl-bench prepare {self.name}{'' if argument is None else f' --root {root}'}`"
        lists = {side: list_path(self.name, published) for side, published in self.LISTS.items()}
        notes = notes_path(self.name, root)
        if not notes.exists() or not all(path.exists() for path in lists.values()):
            raise InputError(f"{self.name} in {root} has not been prepared; {again}")
        for key, path in lists.items():
            if hashlib.sha256(path.read_bytes()).hexdigest() != self.LISTS[key].sha256:
                other = "is not the published list (its sha256 differs)"
                raise InputError(f"{path} {other}; move it away and {again}")
        facts = read_notes(notes)
        self._files, self._base = facts["files"], Path(facts["base"])
        self._digest, self._again = facts["digest"], again
        texts = {key: path.read_text(encoding="utf-8") for key, path in lists.items()}
        self._split, self.class_names = self.split(texts), self.name_classes(texts)
        if not self._files.keys() >= {relative for side in self._split.values() for relative, _ in side}:
            raise InputError(f"{self.name} in {root} was prepared for other lists; {again}")
        self._require_sizes()
        self._fingerprints = Fingerprints(self._base)
        self._require_prepared(verify=False)

    def _require_sizes(self) -> None:
        for relative, (length, _) in self._files.items():
            path = self._base / relative
            try:
                found = os.stat(path).st_size
            except OSError:
                raise InputError(f"{path} is missing; put it back or {self._again}") from None
            if found != length:
                sizes = f"{found} bytes, {length} when it was prepared"
                raise InputError(f"{path} has {sizes}; put it back or {self._again}")

    def verify(self) -> None:
        """Read every listed file again."""
        self._require_prepared(verify=True)

    def _require_prepared(self, verify: bool) -> None:
        found = self._fingerprints.digests(list(self._files), verify)
        changed = [relative for relative, (_, digest) in self._files.items() if found[relative] != digest]
        if changed:
            more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
            problem = f"{self._base / changed[0]} has changed since it was prepared{more}"
            raise InputError(f"{problem}; put it back or {self._again}")

    @classmethod
    @abstractmethod
    def split(cls, texts: dict[str, str]) -> dict[str, list[tuple[str, int]]]:
        """(path, beginning with its archive's folder, and class) of every "train" and "test" image."""

    @abstractmethod
    def name_classes(self, texts: dict[str, str]) -> list[str]:
        """Class names in the order of the labels, from the lists' texts."""

    def manifest(self) -> dict:
        """Digests of the split lists and of all listed files' bytes, and how they are decoded."""
        return {
            "lists": {side: published.sha256 for side, published in self.LISTS.items()},
            "files": self._digest,
            "decoding": DECODING,
        }

    def images(self, side: str) -> ImageSet:
        """Images in the list's order, the shorter side at most 256 pixels (bilinear), for augmentation."""
        arrays = self._cached(side, {"short_side": SHORT_SIDE}, self._write_ragged)
        return ImageSet(Ragged(arrays["pixels"], np.asarray(arrays["sizes"])), self.labels(side))

    def evaluated(self, side: str, transform: Transform, image_size: int) -> ImageSet:
        """Images in the list's order, resized and cropped to the network's size."""

        def write(side: str, folder: Path) -> None:
            self._write_ready(side, folder, transform, image_size)

        settings = {"resize": transform.resize, "interpolation": transform.interpolation}
        arrays = self._cached(side, {**settings, "image_size": image_size}, write)
        return ImageSet(arrays["images"], self.labels(side), ready=True)

    def labels(self, side: str) -> np.ndarray:
        """Labels in the list's order."""
        return np.array([label for _, label in self._split[side]], np.int64)

    def _cached(self, side: str, settings: dict, write: Callable[[str, Path], None]) -> dict[str, np.ndarray]:
        key = {"source": self.name, "manifest": self.manifest(), "side": side, **settings}
        return cached_files(key, lambda folder: write(side, folder))

    def _paths(self, side: str) -> list[str]:
        return [relative for relative, _ in self._split[side]]

    def _open(self, relative: str) -> Image.Image:
        """The image, after its bytes were found to be those that were prepared."""
        return as_published(self._base / relative, self._fingerprints.content(relative))

    def _write_ragged(self, side: str, folder: Path) -> None:
        paths, what = self._paths(side), f"{self.name} {side}"
        sizes = in_threads(lambda p: size(self._base / p), paths, f"measuring {what}")
        shapes = np.array([_stored(*found) for found in sizes])
        description = f"decoding {what} at a shorter side of {SHORT_SIDE}"
        images = in_threads(lambda p: _shortened(self._open(p)), paths, description)
        np.save(folder / "sizes.npy", shapes)
        stream_npy(folder / "pixels.npy", (int(shapes.prod(axis=1).sum()) * 3,), images)

    def _write_ready(self, side: str, folder: Path, transform: Transform, image_size: int) -> None:

        def evaluated(path: str) -> np.ndarray:
            return evaluation_image(self._open(path), transform, image_size)

        paths = self._paths(side)
        ready = in_threads(evaluated, paths, f"decoding {self.name} {side} at {image_size} px")
        stream_npy(folder / "images.npy", (len(paths), image_size, image_size, 3), ready)


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


def nonempty_lines(text: str) -> Iterator[str]:
    """The lines of a list that say something."""
    return (line.strip() for line in text.splitlines() if line.strip())
