"""Classification sets of torchvision: `--dataset torchvision:NAME`, such as torchvision:Food101.

Names are torchvision's, in any spelling of case, hyphens and underscores. Both sides are the published ones:
where there is a part for validation it is learned, as `remarks` says. Files are looked for in
`$CL_BENCH_DATA/torchvision` or, with `torchvision:NAME?root=PATH`, where torchvision has put them already;
only `cl-bench prepare` downloads. Images are read as torchvision's own loader does: in RGB, EXIF ignored.
"""

import hashlib
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from cl_bench.datasets._torchvision_sets import NOT_HERE, SETS, labels_and_names, paths_of
from PIL import Image

from cl_bench.config import canonical_json, unknown
from cl_bench.data.cache import data_folder
from cl_bench.data.decode import as_published, size
from cl_bench.data.decoded import Decoded, require_classes
from cl_bench.data.fingerprints import Fingerprints
from cl_bench.data.options import argument_of, path_and_options
from cl_bench.data.source import named_path
from cl_bench.errors import InputError

SUMMARY = (
    "torchvision's: torchvision:NAME such as Food101, StanfordCars, FGVCAircraft, Flowers102, DTD, SVHN; "
    "also torchvision:NAME?root=PATH"
)
SIDES = ("train", "test")
OPTIONS = {"root": "PATH"}
DECODING = "as published, 1"  # raise it when the same files decode to other pixels
Key = str | tuple[str, int, int]


class Torchvision(Decoded):
    """Classes are in torchvision's order, under its names where it has them."""

    name = "torchvision"
    TRANSFORM = {"augment": "crop", "resize": "short-crop"}

    def __init__(self, argument: str | None = None):
        name, options = path_and_options(argument or "", self.name, OPTIONS)
        self._set_name = _set_name(name)
        self._set = SETS[self._set_name]
        self._root = _root(self._set.folder, options.get("root"))
        options |= {"root": str(self._root)} if "root" in options else {}
        self.argument = argument_of(self._set_name, options)
        parts = zip(SIDES, self._set.sides, strict=True)
        self._parts = {side: [self._part(arguments) for arguments in each] for side, each in parts}
        self._labels, self.class_names = labels_and_names(self._parts)
        require_classes(f"torchvision:{self._set_name}", self._labels, self.class_names)
        self._keys = {side: list(self._listed(side)) for side in SIDES}
        self._fingerprints = Fingerprints(self._root)
        self._digests = self._fingerprints.digests(self._files())

    def _part(self, arguments: dict) -> Any:
        """The torchvision data set of one part. Raises InputError where files are not there or damaged."""
        import torchvision.datasets

        try:
            if self._set_name == "ImageNet":  # it would unpack its archives where these are
                _require(self._root, ("meta.bin", "train", "val"))
            return getattr(torchvision.datasets, self._set_name)(str(self._root), **arguments)
        except Exception as error:  # each class raises what it likes
            reason = " ".join(str(error).split()) or type(error).__name__
            reason = reason.partition(" You can ")[0].rstrip(".")
            raise InputError(
                f"torchvision:{self._set_name} in {self._root}: {reason}; {self._advice()}"
            ) from error

    def _advice(self) -> str:
        """What to do where files are missing."""
        place = self._root / self._set.folder
        if self._set.by_hand:
            return f"torchvision cannot download it: place {self._set.by_hand} in {place}"
        root = "" if self._root == data_folder(self.name) else f" --root {self._root}"
        prepare = f"run `cl-bench prepare torchvision:{self._set_name}{root}`"
        holds = f"the folder that holds {self._set.folder or 'its files'}"
        return f"{prepare}, or name {holds} with torchvision:{self._set_name}?root=PATH"

    def _listed(self, side: str) -> Iterator[Key]:
        """The path below the root of every image, or its side, part and place where arrays hold images."""
        for number, part in enumerate(self._parts[side]):
            if self._set.files:
                yield from ((side, number, row) for row in range(len(part)))
            else:
                yield from (str(path.relative_to(self._root)) for path in paths_of(part))

    def _files(self) -> list[str]:
        """Paths below the root of all files that pixels come from."""
        place = self._root / self._set.folder
        found = chain.from_iterable(sorted(place.glob(pattern)) for pattern in self._set.files)
        held = [str(path.relative_to(self._root)) for path in found]
        return held or list(dict.fromkeys([*self._keys["train"], *self._keys["test"]]))

    def verify(self) -> None:
        """Read every file again."""
        self._digests = self._fingerprints.digests(self._files(), verify=True)

    def manifest(self) -> dict:
        """Digest of all files that images come from, in order and with labels, and how they are decoded."""
        content: dict[str, Any] = {"classes": self.class_names}
        if self._set.files:
            content["files"] = {Path(path).name: digest for path, digest in self._digests.items()}
        for side in SIDES:
            digests = [self._digests[key] for key in self._keys[side] if isinstance(key, str)]
            content[side] = [digests, self._labels[side].tolist()]
        files = hashlib.sha256(canonical_json(content).encode()).hexdigest()
        return {"torchvision": self._set_name, "files": files, "decoding": DECODING}

    def keys(self, side: str) -> Sequence[Key]:
        """A file's path, or the side, part and place of an image in arrays, in torchvision's order."""
        return self._keys[side]

    def labels(self, side: str) -> np.ndarray:
        """torchvision's, from 0 on."""
        return self._labels[side]

    def opened(self, key: Key) -> Image.Image:
        """The image in RGB."""
        if isinstance(key, str):
            return as_published(self._root / key, self._fingerprints.content(key))
        side, part, row = key
        return self._parts[side][part][row][0].convert("RGB")

    def size(self, key: Key) -> tuple[int, int]:
        """(width, height), from the header of a file."""
        return size(self._root / key) if isinstance(key, str) else self.opened(key).size

    def remarks(self) -> list[str]:
        """How many images each side has, and which of torchvision's parts it joins."""
        lines = []
        for side, parts in zip(SIDES, self._set.sides, strict=True):
            words = " and ".join(", ".join(f"{key}={value}" for key, value in each.items()) for each in parts)
            images = f"{len(self._keys[side]):,} images of {len(self.class_names)} classes"
            lines.append(f"torchvision:{self._set_name} {side}: {images} ({words})")
        return lines


def _set_name(asked: str) -> str:
    """torchvision's name of a set in any spelling. Raises InputError."""
    if not asked:
        raise InputError(f"data set torchvision needs a name, one of: {', '.join(SETS)}")
    for known, reason in NOT_HERE.items():
        if _plain(asked) == _plain(known):
            raise InputError(f"torchvision:{known} cannot be used: {reason}")
    names = {_plain(known): known for known in SETS}
    if _plain(asked) not in names:
        raise unknown("set of torchvision", asked, SETS)
    return names[_plain(asked)]


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


def _root(folder: str, asked: str | None) -> Path:
    """The folder that torchvision calls root; the set's own folder may be named too."""
    if asked is None:
        return data_folder("torchvision")
    path, parts = named_path(asked), Path(folder).parts
    inside = parts and path.parts[-len(parts) :] == parts and not (path / folder).exists()
    return path.parents[len(parts) - 1] if inside else path


def _require(root: Path, names: Sequence[str]) -> None:
    missing = [name for name in names if not (root / name).exists()]
    if missing:
        raise FileNotFoundError(f"{missing[0]} is missing")


@contextmanager
def _checked_archives() -> Iterator[None]:
    """Lets no member of a tar leave the folder that it is unpacked into; zipfile does not anyway."""
    before = getattr(tarfile.TarFile, "extraction_filter", None)
    tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
    try:
        yield
    finally:
        tarfile.TarFile.extraction_filter = before


def prepare(argument: str, root: Path | None, say: Callable[[str], None]) -> None:
    """Have torchvision download and unpack what is missing below a root, then read all files once.

    Raises InputError for what cannot be had, and for sets that one has to place there oneself.
    """
    import torchvision.datasets

    name, options = path_and_options(argument, "torchvision", OPTIONS)
    if root is not None and "root" in options:
        raise InputError(f"prepare torchvision:{argument} names a root already; leave out --root")
    name, asked = _set_name(name), options.get("root") or (None if root is None else str(root))
    here = SETS[name]
    if not here.by_hand:
        place = _root(here.folder, asked)
        place.mkdir(parents=True, exist_ok=True)
        try:
            with _checked_archives():
                for arguments in chain.from_iterable(here.sides):
                    getattr(torchvision.datasets, name)(str(place), download=True, **arguments)
        except Exception as error:  # each class raises what it likes
            reason = " ".join(str(error).split()) or type(error).__name__
            what_to_do = f"repeat, or place torchvision's files in {place} yourself"
            raise InputError(f"cannot prepare torchvision:{name} ({reason}); {what_to_do}") from error
    source = Torchvision(argument_of(name, {"root": asked} if asked else {}))
    source.verify()
    for line in source.remarks():
        say(line)
    say(f"torchvision:{source.argument} is complete; digest {source.manifest()['files'][:12]}")


SOURCE = Torchvision
PREPARE_NAMED = prepare
