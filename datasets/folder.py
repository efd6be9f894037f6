"""Images in folders: `--dataset folder:PATH` with `train/<class>/*` and `test/<class>/*`.

Formats and sizes are any that Pillow reads. Images of one common size are kept at that size; of differing
sizes, each is squashed to 256 x 256 (bicubic, antialiased). Both sides are decoded once, as
`cl_bench.data.decode.as_seen` says, and kept in the user's cache folder under the digests of the files'
contents. `folder:PATH?nested` also takes images from folders below a class's; `folder:PATH?names=FILE` gives
the classes names for sentences.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from cl_bench.config import canonical_json
from cl_bench.data.cache import cached_files
from cl_bench.data.decode import CONVENTION, DEEP, FEATURES, Measure, as_seen, in_threads, measure, stream_npy
from cl_bench.data.fingerprints import Fingerprints
from cl_bench.data.folders import pairing, scan
from cl_bench.data.images import ImageSet
from cl_bench.data.names import read_names
from cl_bench.data.options import argument_of, path_and_options
from cl_bench.data.source import Source, named_path
from cl_bench.errors import InputError

SUMMARY = (
    "your own images: folder:PATH with train/<class>/* and test/<class>/*; also folder:PATH?nested&names=FILE"
)
COMMON_SIZE = 256  # pixels; images of differing sizes are brought to this
SIDES = ("train", "test")
OPTIONS = {"nested": None, "names": "FILE"}  # behind a question mark; what the value of each is


class Folder(Source):
    """Classes are the folder names under train/, in alphabetical order."""

    name = "folder"
    TRANSFORM = {"augment": "crop"}

    def __init__(self, argument: str | None = None):
        if argument is None:
            needed = "--dataset folder:PATH, with train/<class>/* and test/<class>/* in it"
            raise InputError(f"data set folder needs a path: {needed}")
        path, options = path_and_options(argument, self.name, OPTIONS)
        self._root = named_path(path)
        self._sides = {side: scan(self._root / side, "nested" in options) for side in SIDES}
        pairing(self._sides)
        self.class_names = sorted(self._sides["train"].files)
        if (count := len(self.class_names)) < 2:
            raise InputError(f"{self._root}: found {count} class under train/, expected at least 2")
        self._text_names = None
        if options.get("names"):
            path = named_path(options["names"])
            options["names"], self._text_names = str(path), read_names(path, self.class_names)
        self.argument = argument_of(str(self._root), options)
        self._files = {side: self._listed(side) for side in SIDES}
        self._fingerprints, self._digests = Fingerprints(self._root), {}

    def _listed(self, side: str) -> list[tuple[int, str]]:
        """(class, path below the root) of every image of a side."""
        found = []
        for c, name in enumerate(self.class_names):
            found += [(c, str(path.relative_to(self._root))) for path in self._sides[side].files[name]]
        return found

    def verify(self) -> None:
        """Read every file again."""
        self._digests = self._fingerprints.digests(self._relative(), verify=True)
        self.__dict__.pop("_arrays", None)

    def manifest(self) -> dict:
        """Digest of all decoded pixels and labels of both sides, and by what convention they were decoded."""
        digests = [str(self._arrays[f"{side}_digest"]) for side in SIDES]
        pixels = hashlib.sha256(canonical_json([self.class_names, digests]).encode()).hexdigest()
        return {"pixels": pixels, "classes": len(self.class_names), "decoding": CONVENTION}

    def images(self, side: str) -> ImageSet:
        """All images of train/ or test/, class after class, files in alphabetical order."""
        return ImageSet(self._arrays[f"{side}_images"], np.asarray(self._arrays[f"{side}_labels"]))

    def text_names(self) -> list[str]:
        """Those of the file of names, or the folders'."""
        return self._text_names or super().text_names()

    def remarks(self) -> list[str]:
        """What is used of each side, what is not and why, and what was done to images to see them right."""
        lines, deep, name = [], False, f"{self.name}:{self._root.name}"
        for side in SIDES:
            found = np.asarray(self._arrays[f"{side}_features"])
            done = {feature: int((found >> place & 1).sum()) for place, feature in enumerate(FEATURES)}
            told = "".join(f"; {count} {feature}" for feature, count in done.items() if count)
            lines.append(f"{name} {self._sides[side].sentence()}{told}")
            deep |= bool((found & DEEP).any())
        if deep:
            bits = f"{int(self._arrays['bits'])} bits, the most that one has"
            lines.append(f"{name} gray values of more than 8 bits are read as {bits}")
        return lines

    def _relative(self) -> list[str]:
        return [path for side in SIDES for _, path in self._files[side]]

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        """Pixels, labels, digest and features of both sides, and the depth of deep gray values."""
        digests = self._digests or self._fingerprints.digests(self._relative())
        contents = {side: [[c, digests[path]] for c, path in self._files[side]] for side in SIDES}
        key = {
            "source": self.name,
            "decoding": CONVENTION,
            "files": hashlib.sha256(canonical_json(contents).encode()).hexdigest(),
        }
        return cached_files(key, self._write)

    def _write(self, folder: Path) -> None:
        measured = self._measured()
        bits = max(found.bits for found in measured)
        sizes = {found.size for found in measured}
        width, height = sizes.pop() if len(sizes) == 1 else (COMMON_SIZE, COMMON_SIZE)
        np.save(folder / "bits.npy", np.array(bits))
        for side in SIDES:
            paths = [path for _, path in self._files[side]]
            shape = (len(paths), height, width, 3)
            digest, features = hashlib.sha256(str(shape).encode()), []
            decoded = in_threads(self._pixels(bits, (width, height)), paths, f"decoding {self._root / side}")
            stream_npy(folder / f"{side}_images.npy", shape, _noted(decoded, digest, features))
            labels = np.array([c for c, _ in self._files[side]], np.int64)
            digest.update(labels.data)
            np.save(folder / f"{side}_labels.npy", labels)
            np.save(folder / f"{side}_features.npy", np.array(features, np.uint8))
            np.save(folder / f"{side}_digest.npy", np.array(digest.hexdigest()))

    def _measured(self) -> list[Measure]:
        paths = self._relative()
        return list(in_threads(lambda path: measure(self._root / path), paths, f"measuring {self._root}"))

    def _pixels(self, bits: int, size: tuple[int, int]) -> Callable[[str], tuple[np.ndarray, int]]:
        """The function from a file to its image (h, w, 3) at this (width, height), and its features."""

        def pixels(path: str) -> tuple[np.ndarray, int]:
            image, done = as_seen(self._root / path, self._fingerprints.content(path), bits)
            if image.size != size:
                image = image.resize(size, Image.Resampling.BICUBIC)
            return np.asarray(image), done

        return pixels


def _noted(decoded: Iterable[tuple[np.ndarray, int]], digest, features: list[int]) -> Iterator[np.ndarray]:
    for array, done in decoded:
        digest.update(np.ascontiguousarray(array).data)
        features.append(done)
        yield array


def prepare(root: Path | None, say: Callable[[str], None]) -> None:
    """Read, check and decode every image below `root`, and say what is used."""
    source = Folder(None if root is None else str(root))
    source.verify()
    for line in source.remarks():
        say(line)
    say(f"{source.argument} is complete; digest {source.manifest()['pixels'][:12]}")


SOURCE = Folder
PREPARE = prepare
