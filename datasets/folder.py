"""Images in folders: `--dataset folder:PATH` with `train/<class>/*` and `test/<class>/*`, any format and size that Pillow reads.

Images of one common size are kept at that size; of differing sizes, each is squashed to 256 x 256 (bicubic, antialiased). Both sides are decoded
once and kept in the user's cache folder; a changed, added or removed file makes a new copy.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from PIL import Image

from cl_bench.config import canonical_json
from cl_bench.errors import InputError
from cl_bench.source import ImageSet, Source, cached_arrays

SUMMARY = "your own images: folder:PATH with train/<class>/* and test/<class>/*"
COMMON_SIZE = 256  # pixels; images of differing sizes are brought to this
DECODER_VERSION = 1  # raise it when the same files decode to other pixels
Image.MAX_IMAGE_PIXELS = 200_000_000


class Folder(Source):
    """Classes are the folder names under train/, in alphabetical order."""

    name = "folder"
    TRANSFORM = {"augment": "crop"}

    def __init__(self, argument: str | None = None):
        if argument is None:
            raise InputError("data set folder needs a path: --dataset folder:PATH, with train/<class>/* and test/<class>/* in it")
        self._root = Path(argument).expanduser().resolve()
        self.argument = str(self._root)
        sides = {side: _listing(self._root / side) for side in ("train", "test")}
        for side, other in (("train", "test"), ("test", "train")):
            missing = sorted(set(sides[side]) - set(sides[other]))
            if missing:
                raise InputError(
                    f"{self._root}: class {missing[0]!r} is in {side}/ but not in {other}/"
                    + (f", and {len(missing) - 1} more" if len(missing) > 1 else "")
                )
        self.class_names = sorted(sides["train"])
        if len(self.class_names) < 2:
            raise InputError(f"{self._root}: found {len(self.class_names)} class under train/, expected at least 2")
        self._files = {side: [(c, path) for c, name in enumerate(self.class_names) for path in sides[side][name]] for side in sides}
        self._digest: str | None = None

    def manifest(self) -> dict:
        """Digest of all decoded pixels and labels of both sides."""
        if self._digest is None:
            digests = [str(self._arrays(side)["digest"]) for side in ("train", "test")]
            self._digest = hashlib.sha256(canonical_json([self.class_names, digests]).encode()).hexdigest()
        return {"pixels": self._digest, "classes": len(self.class_names)}

    def images(self, side: str) -> ImageSet:
        """All images of train/ or test/, class after class, files in alphabetical order."""
        arrays = self._arrays(side)
        return ImageSet(arrays["images"], np.asarray(arrays["labels"]))

    def _arrays(self, side: str) -> dict[str, np.ndarray]:
        files = self._files[side]
        listing = [[c, str(path.relative_to(self._root)), *_stamp(path)] for c, path in files]
        other = [_stamp(path) for _, path in self._files["train" if side == "test" else "test"]]
        key = {
            "source": self.name,
            "root": str(self._root),
            "side": side,
            "files": hashlib.sha256(canonical_json([listing, other]).encode()).hexdigest(),
        }

        def build() -> dict[str, np.ndarray]:
            width, height = self._common_size()
            images = np.empty((len(files), height, width, 3), np.uint8)
            _in_threads(lambda item: _decode_into(images, *item), enumerate(path for _, path in files))
            labels = np.array([c for c, _ in files], np.int64)
            digest = hashlib.sha256(str(images.shape).encode())
            digest.update(images.data)
            digest.update(labels.data)
            return {"images": images, "labels": labels, "digest": np.array(digest.hexdigest())}

        return cached_arrays(key, build)

    def _common_size(self) -> tuple[int, int]:
        """The one (width, height) of all images of both sides, or (256, 256)."""
        sizes = set(_in_threads(_size, (path for side in self._files.values() for _, path in side)))
        return sizes.pop() if len(sizes) == 1 else (COMMON_SIZE, COMMON_SIZE)


def _listing(side: Path) -> dict[str, list[Path]]:
    try:
        folders = sorted(entry for entry in side.iterdir() if entry.is_dir() and not entry.name.startswith("."))
        files = {folder.name: sorted(f for f in folder.iterdir() if f.is_file() and not f.name.startswith(".")) for folder in folders}
    except OSError as error:
        raise InputError(f"cannot read {error.filename or side}: {error.strerror}; expected {side}/<class>/* with images") from error
    for name, found in files.items():
        if not found:
            raise InputError(f"class {side / name} is empty; expected at least one image")
    return files


def _stamp(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _in_threads(function: Callable, items: Iterable) -> list:
    return Parallel(n_jobs=-1, backend="threading", batch_size=64)(delayed(function)(item) for item in items)


def _size(path: Path) -> tuple[int, int]:
    with _readable(path), Image.open(path) as image:
        return image.size


def _decode_into(images: np.ndarray, row: int, path: Path) -> None:
    """Put the image, as RGB and at the size of the array, into its row."""
    size = (images.shape[2], images.shape[1])
    with _readable(path), Image.open(path) as image:
        if image.mode.startswith("I;16"):  # Pillow would clip 16-bit grey to white
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        rgb = image.convert("RGB")
    images[row] = np.asarray(rgb if rgb.size == size else rgb.resize(size, Image.Resampling.BICUBIC))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Pillow's readers raise what they like on damaged files
        raise InputError(f"cannot read image {path}: {' '.join(str(error).split())}; repair or remove it") from error


SOURCE = Folder
