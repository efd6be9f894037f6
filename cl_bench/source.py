"""The contract of a data set: class names, a manifest that fixes every pixel, and uint8 images kept decoded on disk."""

import fcntl
import hashlib
import json
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import platformdirs

from cl_bench.config import Transform, canonical_json
from cl_bench.errors import InputError
from cl_bench.user_text import short

if TYPE_CHECKING:
    from cl_bench.resident import Frames, OnDevice


class Ragged:
    """uint8 images of differing sizes end to end in one memory-mapped array; image i is (h_i, w_i, 3)."""

    def __init__(self, pixels: np.ndarray, sizes: np.ndarray):
        self._pixels, self.sizes = pixels, sizes
        self._ends = np.cumsum(sizes.prod(axis=1) * 3)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, rows: int | np.ndarray) -> np.ndarray | list[np.ndarray]:
        if isinstance(rows, np.ndarray):
            return [self[int(row)] for row in rows]
        height, width = (int(length) for length in self.sizes[rows])
        end = int(self._ends[rows])
        return self._pixels[end - height * width * 3 : end].reshape(height, width, 3)


@dataclass(frozen=True)
class ImageSet:
    """One side of a data set: images (N, H, W, 3) uint8 or `Ragged`, often memory-mapped, and labels (n,), indices into `class_names`.

    For a run on a GPU the images may lie in its memory, see `cl_bench.resident`.
    `rows` chooses n of the N images, which stay where they are; None means all of them. `ready` images have been resized and cropped to the
    network's input already.
    """

    images: "np.ndarray | Ragged | OnDevice"
    labels: np.ndarray
    rows: np.ndarray | None = None
    ready: bool = False

    def __post_init__(self):
        equal = isinstance(self.images, np.ndarray)
        if equal and (self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[-1] != 3):
            raise ValueError(f"images must be (N, H, W, 3) uint8, got {self.images.shape} {self.images.dtype}")
        count = len(self.images if self.rows is None else self.rows)
        if self.labels.shape != (count,):
            raise ValueError(f"{count} images but labels of shape {self.labels.shape}")

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, chosen: np.ndarray) -> "ImageSet":
        """The chosen positions, in that order; no pixel is copied."""
        return replace(self, labels=self.labels[chosen], rows=chosen if self.rows is None else self.rows[chosen])

    def pixels(self, chosen: np.ndarray) -> "np.ndarray | list[np.ndarray] | Frames":
        """The images at these positions: (B, H, W, 3), or a list of (h, w, 3) where sizes differ, or `Frames` where they are on a device."""
        rows = chosen if self.rows is None else self.rows[chosen]
        found = self.images[rows]
        return np.asarray(found) if isinstance(found, np.ndarray) else found


class Source(ABC):
    """A data set plugin: a file in `datasets/` that sets `SOURCE` to a subclass of this."""

    name: ClassVar[str]
    smoke: ClassVar[bool] = False  # a smoke benchmark's numbers never stand beside published ones as if comparable
    TRANSFORM: ClassVar[dict] = {}  # augmentation of its training images, where it differs from none
    PRESET: ClassVar[dict[str, dict]] = {}  # training settings by pattern of method names, such as {"vpt-*": {"passes": 15}}
    TEMPLATES: ClassVar[tuple[str, ...]] = ("a photo of a {}.",)  # sentences for text towers, {} is the class
    class_names: list[str]
    argument: str | None = None  # what names the data on this machine, such as an absolute path; not part of any run id

    @abstractmethod
    def __init__(self, argument: str | None = None):
        """`argument` is what stands behind the colon in `--dataset NAME:ARGUMENT`."""

    @abstractmethod
    def manifest(self) -> dict:
        """JSON values that change whenever any pixel, label or split changes; its digest is part of every run id."""

    @abstractmethod
    def images(self, side: str) -> ImageSet:
        """The "train" or "test" side."""

    def verify(self) -> None:  # noqa: B027 - most data is fixed
        """Read every file again, whatever its time stamps say. Raises InputError for one that is not what it must be."""

    def remarks(self) -> list[str]:
        """Lines to say before the images are used: how many there are, what is left out, what was done to them."""
        return []

    def evaluated(self, side: str, transform: Transform, image_size: int) -> ImageSet:
        """The side's images for evaluation, in the order of `images`: the same ones or, where those differ in size, resized and `ready`."""
        return self.images(side)

    def labels(self, side: str) -> np.ndarray:
        """The side's labels, without its pixels where they are not at hand."""
        return self.images(side).labels

    def text_names(self) -> list[str]:
        """What the classes are called in a sentence."""
        return [name.replace("_", " ") for name in self.class_names]

    def text_digest(self) -> str:
        """sha256 of what a text tower reads: class names and sentences."""
        return hashlib.sha256(canonical_json([self.text_names(), self.TEMPLATES]).encode()).hexdigest()

    @classmethod
    def preset(cls, method: str) -> dict:
        """The data set's own training settings for a method."""
        return {key: value for pattern, values in cls.PRESET.items() if fnmatchcase(method, pattern) for key, value in values.items()}

    def default_backbone(self) -> str | None:
        """Name of the backbone used when the user names none."""
        return None

    def manifest_digest(self) -> str:
        """sha256 of the canonical JSON of the manifest."""
        return hashlib.sha256(canonical_json(self.manifest()).encode()).hexdigest()


def named_path(text: str) -> Path:
    """The path that a data set's argument names, absolute. Raises InputError."""
    try:
        path = Path(text).expanduser().resolve()
        path.exists()
        return path
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{short(text)} is no path that can be used: {reason}") from error


def data_folder(name: str) -> Path:
    """Where a data set's own files go: $CL_BENCH_DATA/NAME, else in the user's data folder."""
    return Path(os.environ.get("CL_BENCH_DATA") or platformdirs.user_data_dir("cl-bench")) / name


def cache_folder() -> Path:
    """Where decoded images are kept: $CL_BENCH_CACHE, else the user's cache folder."""
    return Path(os.environ.get("CL_BENCH_CACHE") or platformdirs.user_cache_dir("cl-bench"))


def cached_arrays(key: dict, build: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays `build` returns, memory-mapped from the cache; built once per `key`. See `cached_files`."""

    def write(folder: Path) -> None:
        for name, array in build().items():
            with open(folder / f"{name}.npy", "wb") as file:
                np.save(file, array)
                file.flush()
                os.fsync(file.fileno())

    return cached_files(key, write)


def cached_files(key: dict, build: Callable[[Path], None]) -> dict[str, np.ndarray]:
    """The .npy files `build` writes into the folder it is given, memory-mapped by name.

    Built once per `key` by one process while others wait, and moved into place whole or not at all. Raises InputError when the cache folder
    cannot be written.
    """
    folder = cache_folder() / hashlib.sha256(canonical_json(key).encode()).hexdigest()[:24]
    try:
        if not _is_whole(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with open(folder.with_suffix(".lock"), "a", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not _is_whole(folder):
                    _write(folder, key, build)
    except OSError as error:
        raise InputError(
            f"cannot write the image cache {folder.parent}: {error.strerror or error}; set CL_BENCH_CACHE to a writable folder with enough space"
        ) from error
    return _loaded(folder)


def _loaded(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of a folder. Raises InputError for one that is no array any more."""
    try:
        return {path.stem: np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))}
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"the image cache {folder} is damaged ({' '.join(str(error).split())}); remove it and repeat") from error


def _is_whole(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / "key.json").read_text(encoding="utf-8"))["sizes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


def _write(folder: Path, key: dict, build: Callable[[Path], None]) -> None:
    """Build beside `folder` and rename; the lock is held, so whatever lies beside it is what a killed process left."""
    for left in folder.parent.glob(f"{folder.name}.*.partial"):
        shutil.rmtree(left, ignore_errors=True)
    partial = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}.partial")
    partial.mkdir()
    try:
        build(partial)
        sizes = {path.name: path.stat().st_size for path in partial.glob("*.npy")}
        (partial / "key.json").write_text(json.dumps({"key": key, "sizes": sizes}, indent=1), encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
