"""Data sets of image files named by published split lists: prepared and hashed once, verified when decoded, decoded once.

Training images are kept at their own shape with the shorter side at most 256 pixels, from which they are augmented. Evaluation images are resized
and cropped from the original pixels by Pillow, as published code does, and kept at the network's size. What published code does with the files
is kept too: `Image.open(path).convert("RGB")`, without regard for EXIF or transparency.
"""

import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

from cl_bench.config import Transform, canonical_json
from cl_bench.data.cache import cached_files, data_folder
from cl_bench.data.decode import as_published, in_threads, size, stream_npy
from cl_bench.data.fingerprints import Fingerprints
from cl_bench.data.images import ImageSet, Ragged
from cl_bench.data.preprocess import central, evaluation_size
from cl_bench.data.source import Source, named_path
from cl_bench.errors import InputError
from cl_bench.files import write_atomically

SHORT_SIDE = 256  # pixels, of stored training images
DECODING = "as published, 1"  # raise it when the same files decode to other pixels


@dataclass(frozen=True)
class Published:
    """A file of the data set's split: where it is published and its sha256."""

    url: str
    sha256: str


@dataclass(frozen=True)
class Archive:
    """An archive of images: where it is published, the folder it holds and, where the authors publish one, its digest ("md5:...")."""

    url: str
    folder: str
    digest: str | None = None


class ListedImages(Source):
    """A source whose files and split are given by lists; subclasses say where they are and how a line reads."""

    LISTS: ClassVar[dict[str, Published]]  # "train", "test", and what else `name_classes` reads
    ARCHIVES: ClassVar[tuple[Archive, ...]]

    def __init__(self, argument: str | None = None):
        root = data_folder(self.name) if argument is None else named_path(argument)
        self.argument = None if argument is None else str(root)
        again = f"run `cl-bench prepare {self.name}{'' if argument is None else f' --root {root}'}`"
        lists = {side: _list_path(self.name, published) for side, published in self.LISTS.items()}
        notes = _notes_path(self.name, root)
        if not notes.exists() or not all(path.exists() for path in lists.values()):
            raise InputError(f"{self.name} in {root} has not been prepared; {again}")
        for key, path in lists.items():
            if hashlib.sha256(path.read_bytes()).hexdigest() != self.LISTS[key].sha256:
                raise InputError(
                    f"{path} is not the published list (its sha256 differs); move it away and {again}"
                )
        facts = _read_notes(notes)
        self._files, self._base, self._digest, self._again = (
            facts["files"],
            Path(facts["base"]),
            facts["digest"],
            again,
        )
        texts = {key: path.read_text(encoding="utf-8") for key, path in lists.items()}
        self._split, self.class_names = self.split(texts), self.name_classes(texts)
        if not self._files.keys() >= {relative for side in self._split.values() for relative, _ in side}:
            raise InputError(f"{self.name} in {root} was prepared for other lists; {again}")
        for relative, (length, _) in self._files.items():
            try:
                found = os.stat(self._base / relative).st_size
            except OSError:
                raise InputError(f"{self._base / relative} is missing; put it back or {again}") from None
            if found != length:
                raise InputError(
                    f"{self._base / relative} has {found} bytes, {length} when it was prepared; put it back or {again}"
                )
        self._fingerprints = Fingerprints(self._base)
        self._require_prepared(verify=False)

    def verify(self) -> None:
        """Read every listed file again."""
        self._require_prepared(verify=True)

    def _require_prepared(self, verify: bool) -> None:
        found = self._fingerprints.digests(list(self._files), verify)
        changed = [relative for relative, (_, digest) in self._files.items() if found[relative] != digest]
        if changed:
            more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise InputError(
                f"{self._base / changed[0]} has changed since it was prepared{more}; put it back or {self._again}"
            )

    @classmethod
    @abstractmethod
    def split(cls, texts: dict[str, str]) -> dict[str, list[tuple[str, int]]]:
        """(path, beginning with its archive's folder, and class) of every image of "train" and "test", from the lists' texts."""

    @abstractmethod
    def name_classes(self, texts: dict[str, str]) -> list[str]:
        """Class names in the order of the labels, from the lists' texts."""

    def manifest(self) -> dict:
        """Digests of the split lists and of every listed file's bytes, and by what convention they are decoded."""
        return {
            "lists": {side: published.sha256 for side, published in self.LISTS.items()},
            "files": self._digest,
            "decoding": DECODING,
        }

    def images(self, side: str) -> ImageSet:
        """Images in the list's order, the shorter side at most 256 pixels (bilinear, antialiased), for augmentation."""
        arrays = self._cached(side, {"short_side": SHORT_SIDE}, self._write_ragged)
        return ImageSet(Ragged(arrays["pixels"], np.asarray(arrays["sizes"])), self.labels(side))

    def evaluated(self, side: str, transform: Transform, image_size: int) -> ImageSet:
        """Images in the list's order, resized and cropped to the network's size."""
        settings = {
            "resize": transform.resize,
            "interpolation": transform.interpolation,
            "image_size": image_size,
        }
        arrays = self._cached(
            side, settings, lambda side, folder: self._write_ready(side, folder, transform, image_size)
        )
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
        paths = self._paths(side)
        shapes = np.array(
            [
                _stored(*found)
                for found in in_threads(
                    lambda p: size(self._base / p), paths, f"measuring {self.name} {side}"
                )
            ]
        )
        images = in_threads(
            lambda p: _shortened(self._open(p)),
            paths,
            f"decoding {self.name} {side} at a shorter side of {SHORT_SIDE}",
        )
        np.save(folder / "sizes.npy", shapes)
        stream_npy(folder / "pixels.npy", (int(shapes.prod(axis=1).sum()) * 3,), images)

    def _write_ready(self, side: str, folder: Path, transform: Transform, image_size: int) -> None:
        paths = self._paths(side)
        ready = in_threads(
            lambda p: evaluation_image(self._open(p), transform, image_size),
            paths,
            f"decoding {self.name} {side} at {image_size} px",
        )
        stream_npy(folder / "images.npy", (len(paths), image_size, image_size, 3), ready)


def _stored(width: int, height: int) -> tuple[int, int]:
    """(height, width) of a training image as it is kept."""
    return (
        (height, width)
        if min(width, height) <= SHORT_SIDE
        else evaluation_size((height, width), SHORT_SIDE, "short-crop")
    )


def _shortened(image: Image.Image) -> np.ndarray:
    height, width = _stored(*image.size)
    return np.asarray(
        image if image.size == (width, height) else image.resize((width, height), Image.Resampling.BILINEAR)
    )


def evaluation_image(image: Image.Image, transform: Transform, image_size: int) -> np.ndarray:
    """The image (S, S, 3) as Pillow resizes and torchvision crops it: the reference of `Preprocess.plain`."""
    height, width = evaluation_size((image.height, image.width), image_size, transform.resize)
    pixels = np.asarray(image.resize((width, height), Image.Resampling[transform.interpolation.upper()]))
    return pixels[central(height, image_size), central(width, image_size)]


def _own_folder(name: str) -> Path:
    """Where split lists and notes are kept: apart from the images, whose root may be anywhere and read-only."""
    return data_folder(".prepared") / name


def _list_path(name: str, published: Published) -> Path:
    return _own_folder(name) / published.url.rsplit("/", 1)[1]


def _notes_path(name: str, root: Path) -> Path:
    """What was found at a root when it was prepared."""
    return _own_folder(name) / f"files-{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:12]}.json"


def _read_notes(path: Path) -> dict:
    """ "files": path -> [bytes, sha256], the "base" they lie below, and the "digest" of them all. Raises InputError."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return {
            "files": {str(name): [int(found[0]), str(found[1])] for name, found in facts["files"].items()}
        } | {key: str(facts[key]) for key in ("base", "digest")}
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path}, the notes of what was prepared, cannot be read ({type(error).__name__}); remove it and prepare again"
        ) from error


def prepare(source: type[ListedImages], root: Path | None, say: Callable[[str], None]) -> None:
    """Make every listed file present below `root` and record its size and sha256, or verify them where they are recorded.

    Files are looked for as the archives hold them, and without the archive's own folder; an archive is unpacked, and downloaded first, only when
    they are not there. Raises InputError for whatever is missing or has changed.
    """
    from cl_bench.data.download import (
        fetch,
        fetch_unpublished,
        remember,
        unpack,
    )  # requests takes a while to import

    root = (data_folder(source.name) if root is None else root).resolve()
    texts = {
        key: fetch(published.url, _list_path(source.name, published), f"sha256:{published.sha256}").read_text(
            encoding="utf-8"
        )
        for key, published in source.LISTS.items()
    }
    wanted = {relative: None for side in source.split(texts).values() for relative, _ in side}
    base = _base(root, source, wanted)
    if base is None:
        base = root
        for archive in source.ARCHIVES:
            members = [
                relative.removeprefix(f"{archive.folder}/")
                for relative in wanted
                if relative.startswith(f"{archive.folder}/")
            ]
            if all((root / archive.folder / member).is_file() for member in members):
                continue
            target, manifest = (
                root / archive.url.rsplit("/", 1)[1],
                _own_folder(source.name) / "archives.json",
            )
            if archive.digest:
                fetch(archive.url, target, archive.digest)
            else:
                fetch_unpublished(archive.url, target, manifest)
            unpack(target, archive.folder, root, members)
            remember(archive.url, target, manifest)
            say(f"{root / archive.folder} is unpacked; the archive {target} is no longer needed")
    digests = Fingerprints(base).digests(list(wanted), verify=True)
    files = {relative: [(base / relative).stat().st_size, digest] for relative, digest in digests.items()}
    notes = _notes_path(source.name, root)
    if notes.exists():
        known = _read_notes(notes)["files"]
        changed = [relative for relative, found in files.items() if known.get(relative) != found]
        if changed:
            more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
            problem = f"{base / changed[0]} is not what it was when {root} was first prepared{more}"
            raise InputError(f"{problem}; put it back, or remove {notes} to accept it")
    digest = hashlib.sha256(canonical_json(files).encode()).hexdigest()
    write_atomically(notes, json.dumps({"base": str(base), "digest": digest, "files": files}).encode())
    say(f"{base} holds all {len(files)} images of {source.name}; digest {digest[:12]}")


def _base(root: Path, source: type[ListedImages], wanted: dict[str, None]) -> Path | None:
    """The folder below which every listed file lies, if there is one: `root`, or its parent where `root` is the archive's own folder."""
    candidates = [root] + [root.parent for archive in source.ARCHIVES if root.name == archive.folder]
    return next(
        (base for base in candidates if all((base / relative).is_file() for relative in wanted)), None
    )


def nonempty_lines(text: str) -> Iterator[str]:
    """The lines of a list that say something."""
    return (line.strip() for line in text.splitlines() if line.strip())
