"""The contract of a data set: class names, a manifest that fixes every pixel, and uint8 images kept decoded on disk."""

import hashlib
import json
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import platformdirs

from cl_bench.config import canonical_json
from cl_bench.errors import InputError


@dataclass(frozen=True)
class ImageSet:
    """One side of a data set: images (N, H, W, 3) uint8, often memory-mapped, and labels (N,) int64, indices into `class_names`."""

    images: np.ndarray
    labels: np.ndarray

    def __post_init__(self):
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[-1] != 3:
            raise ValueError(f"images must be (N, H, W, 3) uint8, got {self.images.shape} {self.images.dtype}")
        if self.labels.shape != self.images.shape[:1]:
            raise ValueError(f"{len(self.images)} images but labels of shape {self.labels.shape}")


class Source(ABC):
    """A data set plugin: a file in `datasets/` that sets `SOURCE` to a subclass of this."""

    name: ClassVar[str]
    smoke: ClassVar[bool] = False  # a smoke benchmark's numbers never stand beside published ones as if comparable
    TRANSFORM: ClassVar[dict] = {}  # augmentation of its training images, where it differs from none
    PRESET: ClassVar[dict] = {}  # training settings for methods that have options of these names
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

    def default_backbone(self) -> str | None:
        """Name of the backbone used when the user names none."""
        return None

    def manifest_digest(self) -> str:
        """sha256 of the canonical JSON of the manifest."""
        return hashlib.sha256(canonical_json(self.manifest()).encode()).hexdigest()


def cache_folder() -> Path:
    """Where decoded images are kept: $CL_BENCH_CACHE, else the user's cache folder."""
    return Path(os.environ.get("CL_BENCH_CACHE") or platformdirs.user_cache_dir("cl-bench"))


def cached_arrays(key: dict, build: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays `build` returns, memory-mapped from the cache; built once per `key`, moved into place whole or not at all.

    Raises InputError when the cache folder cannot be written.
    """
    folder = cache_folder() / hashlib.sha256(canonical_json(key).encode()).hexdigest()[:24]
    try:
        if not _is_whole(folder):
            _write(folder, key, build())
    except OSError as error:
        raise InputError(
            f"cannot write the image cache {folder.parent}: {error.strerror or error}; set CL_BENCH_CACHE to a writable folder"
        ) from error
    return {path.stem: np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))}


def _is_whole(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / "key.json").read_text())["sizes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


def _write(folder: Path, key: dict, arrays: dict[str, np.ndarray]) -> None:
    partial = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}.partial")
    partial.mkdir(parents=True)
    try:
        for name, array in arrays.items():
            with open(partial / f"{name}.npy", "wb") as file:
                np.save(file, array)
                file.flush()
                os.fsync(file.fileno())
        sizes = {path.name: path.stat().st_size for path in partial.glob("*.npy")}
        (partial / "key.json").write_text(json.dumps({"key": key, "sizes": sizes}, indent=1))
        if folder.exists() and not _is_whole(folder):
            shutil.rmtree(folder)
        try:
            partial.rename(folder)
        except OSError:
            if not _is_whole(folder):  # unless another process has just put the same arrays there
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
