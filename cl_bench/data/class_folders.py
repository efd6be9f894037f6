"""Published data sets that come as folders: train/<class>/* and test/<class>/*, known by their counts.

Images are read as the code that they were published with does, `Image.open(path).convert("RGB")`. Archives
are their authors' to hand out, so that nothing is downloaded here.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

from cl_bench.config import canonical_json
from cl_bench.data.cache import data_folder
from cl_bench.data.decode import as_published, size
from cl_bench.data.decoded import Decoded
from cl_bench.data.fingerprints import Fingerprints
from cl_bench.data.folders import pairing, scan
from cl_bench.data.names import read_names
from cl_bench.data.options import argument_of, path_and_options
from cl_bench.data.source import named_path
from cl_bench.errors import InputError

SIDES = ("train", "test")
DECODING = "as published, 1"  # raise it when the same files decode to other pixels
OPTIONS = {"names": "FILE"}
# whose READMEs say where the archives are
SPLITS = "github.com/sun-hailong/LAMDA-PILOT and github.com/zhoudw-zdw/RevisitingCIL"


class ClassFolders(Decoded):
    """Classes are the folder names under train/, in alphabetical order; subclasses say how many there are.

    The transform is that of the suites which share these splits (PILOT and Aper's code).
    """

    CLASSES: ClassVar[int]
    IMAGES: ClassVar[tuple[int, int] | None] = None  # of each side, where that is known
    FOLDER: ClassVar[str]  # that the archive holds, with train/ and test/ in it
    # those suites' `build_transform`
    TRANSFORM = {
        "augment": "crop-flip",
        "crop_scale": 0.05,
        "resize": "short-margin-crop",
        "interpolation": "bicubic",
    }

    def __init__(self, argument: str | None = None):
        path, options = path_and_options(argument or "", self.name, OPTIONS)
        root = named_path(path) if path else data_folder(self.name)
        self._root = self._holding(root)
        self._sides = {side: scan(self._root / side, nested=False) for side in SIDES}
        pairing(self._sides)
        self.class_names = sorted(self._sides["train"].files)
        if "names" in options:
            names = named_path(options["names"])
            options["names"], self._text_names = str(names), read_names(names, self.class_names)
        else:
            self._text_names = super().text_names()
        self.argument = argument_of(str(root) if path else "", options) or None
        self._files = {side: self._listed(side) for side in SIDES}
        self._require_counts()
        self._fingerprints = Fingerprints(self._root)
        self._digests = self._fingerprints.digests(self._relative())

    @classmethod
    def _holding(cls, root: Path) -> Path:
        """The folder with train/ and test/: the root, or the archive's own in it. Raises InputError."""
        for place in (root, root / cls.FOLDER):
            if all((place / side).is_dir() for side in SIDES):
                return place
        expected = f"expected train/<class>/* and test/<class>/* there or in {cls.FOLDER}/"
        origin = f"its archive is the one that {SPLITS} name"
        use = f"unpack it there, or name its folder with --dataset {cls.name}:PATH"
        raise InputError(f"{cls.name} is not in {root}: {expected}; {origin}; {use}")

    def _listed(self, side: str) -> list[tuple[int, str]]:
        """(class, path below the root) of every image of a side."""
        found = []
        for c, name in enumerate(self.class_names):
            found += [(c, str(path.relative_to(self._root))) for path in self._sides[side].files[name]]
        return found

    def _require_counts(self) -> None:
        other = "this is another split, which folder:PATH reads under its own name"
        if (classes := len(self.class_names)) != self.CLASSES:
            raise InputError(f"{self._root} has {classes} classes, {self.name} has {self.CLASSES}; {other}")
        found = tuple(len(self._files[side]) for side in SIDES)
        if self.IMAGES and found != self.IMAGES:
            images, expected = (f"{train:,} / {test:,}" for train, test in (found, self.IMAGES))
            counts = f"{images} training and test images, {self.name} has {expected}"
            raise InputError(f"{self._root} has {counts}; {other}")

    def _relative(self) -> list[str]:
        return [path for side in SIDES for _, path in self._files[side]]

    def verify(self) -> None:
        """Read every file again."""
        self._digests = self._fingerprints.digests(self._relative(), verify=True)

    def manifest(self) -> dict:
        """Digest of all files with their classes in order, and how they are decoded."""
        content = {side: [[c, self._digests[path]] for c, path in self._files[side]] for side in SIDES}
        files = hashlib.sha256(canonical_json([self.class_names, content]).encode()).hexdigest()
        return {"files": files, "decoding": DECODING}

    def keys(self, side: str) -> list[str]:
        """Paths, class after class, files in alphabetical order."""
        return [path for _, path in self._files[side]]

    def labels(self, side: str) -> np.ndarray:
        """In the same order."""
        return np.array([c for c, _ in self._files[side]], np.int64)

    def opened(self, key: str) -> Image.Image:
        """The image, after its bytes were found to be those of the manifest."""
        return as_published(self._root / key, self._fingerprints.content(key))

    def size(self, key: str) -> tuple[int, int]:
        """(width, height) from the file's header."""
        return size(self._root / key)

    def text_names(self) -> list[str]:
        """Those of the file of names, or the folders'."""
        return self._text_names

    def remarks(self) -> list[str]:
        """What is used of each side, and what is not and why."""
        return [f"{self.name} {self._sides[side].sentence()}" for side in SIDES]


def prepare(source: type[ClassFolders], root: Path | None, say: Callable[[str], None]) -> None:
    """Read and check every image below a root, and say what is used."""
    found = source(None if root is None else str(root))
    found.verify()
    for line in found.remarks():
        say(line)
    say(f"{source.name} is complete; digest {found.manifest()['files'][:12]}")
