"""Images in folders: `--dataset folder:PATH` with `train/<class>/*` and `test/<class>/*`, any format and size that Pillow reads.

Images of one common size are kept at that size; of differing sizes, each is squashed to 256 x 256 (bicubic, antialiased). Both sides are decoded
once and kept in the user's cache folder; a changed, added or removed file makes a new copy.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from cl_bench.config import canonical_json
from cl_bench.decode import in_threads, rgb, size, stream_npy
from cl_bench.errors import InputError
from cl_bench.source import ImageSet, Source, cached_files

SUMMARY = "your own images: folder:PATH with train/<class>/* and test/<class>/*"
COMMON_SIZE = 256  # pixels; images of differing sizes are brought to this
DECODER_VERSION = 1  # raise it when the same files decode to other pixels


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

        def build(folder: Path) -> None:
            width, height = self._common_size()
            shape = (len(files), height, width, 3)
            digest = hashlib.sha256(str(shape).encode())
            paths = [path for _, path in files]
            decoded = in_threads(lambda path: _pixels(path, (width, height)), paths, f"decoding {self._root / side}")
            stream_npy(folder / "images.npy", shape, _digested(decoded, digest))
            labels = np.array([c for c, _ in files], np.int64)
            digest.update(labels.data)
            np.save(folder / "labels.npy", labels)
            np.save(folder / "digest.npy", np.array(digest.hexdigest()))

        return cached_files(key, build)

    def _common_size(self) -> tuple[int, int]:
        """The one (width, height) of all images of both sides, or (256, 256)."""
        paths = [path for side in self._files.values() for _, path in side]
        sizes = set(in_threads(size, paths, f"measuring {self._root}"))
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


def _digested(arrays: Iterable[np.ndarray], digest) -> Iterator[np.ndarray]:
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
        yield array


def _pixels(path: Path, size: tuple[int, int]) -> np.ndarray:
    """The image (h, w, 3) at this (width, height)."""
    image = rgb(path)
    return np.asarray(image if image.size == size else image.resize(size, Image.Resampling.BICUBIC))


SOURCE = Folder
