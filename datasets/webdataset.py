"""Images in tar shards: `--dataset webdataset:PATH` with train-*.tar and test-*.tar in it.

A sample is what has one name up to the first dot: NAME.jpg (or .jpeg, .png, .webp) and NAME.cls, a number. A
classes.txt in the folder names the classes, a line each from 0 on; without it they are called by number.
`webdataset:PATH?train=GLOB&test=GLOB` takes other shards. They are read where they lie, nothing is unpacked;
pixels are as a person sees them, see `cl_bench.data.decode`.
"""

import tarfile
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from cl_bench.config import whole_number
from cl_bench.console import bar
from cl_bench.data.cache import cached_files
from cl_bench.data.decoded import require_classes
from cl_bench.data.encoded import SIDES, Encoded
from cl_bench.data.fingerprints import Fingerprints
from cl_bench.data.options import argument_of, path_and_options
from cl_bench.data.source import named_path
from cl_bench.errors import InputError
from cl_bench.text.user_text import composed, read

SUMMARY = (
    "tar shards: webdataset:PATH with train-*.tar and test-*.tar; also webdataset:PATH?train=GLOB&test=GLOB"
)
OPTIONS = {"train": "GLOB", "test": "GLOB"}
IMAGES = ("jpg", "jpeg", "png", "webp")
NAMES = "classes.txt"
FORMAT = 1  # of the kept list of samples


class WebDataset(Encoded):
    """Classes are the numbers in .cls files, under the names of classes.txt."""

    name = "webdataset"
    TRANSFORM = {"augment": "crop", "resize": "short-crop"}

    def __init__(self, argument: str | None = None):
        if argument is None:
            needed = "--dataset webdataset:PATH, with train-*.tar and test-*.tar in it"
            raise InputError(f"data set webdataset needs a path: {needed}")
        path, options = path_and_options(argument, self.name, OPTIONS)
        self._root = named_path(path)
        self.argument = argument_of(str(self._root), options)
        self._shards = {side: self._found(side, options.get(side, f"{side}-*.tar")) for side in SIDES}
        if both := sorted(set(self._shards["train"]) & set(self._shards["test"])):
            raise InputError(
                f"{self._root / both[0]} is a shard of both sides; give ?train= and ?test= apart"
            )
        self._fingerprints = Fingerprints(self._root)
        self._digests = self._fingerprints.digests(self._paths())
        self._labels, self.class_names = self._named()
        require_classes(f"webdataset:{self._root}", self._labels, self.class_names)

    def _found(self, side: str, pattern: str) -> list[str]:
        """Paths below the root of a side's shards, in alphabetical order."""
        try:
            found = sorted(str(path.relative_to(self._root)) for path in self._root.glob(pattern))
        except (NotImplementedError, ValueError):  # an absolute pattern, or one that leaves the folder
            found = []
        if not found:
            expected = f"name the {side} side's with ?{side}=GLOB"
            raise InputError(f"{self._root} holds no shards {pattern}; {expected}")
        return found

    def _paths(self) -> list[str]:
        return [*self._shards["train"], *self._shards["test"]]

    def _named(self) -> tuple[dict[str, np.ndarray], list[str]]:
        """Labels of both sides from 0 on, and the classes' names."""
        own = {side: np.asarray(self._samples[f"{side}_labels"]) for side in SIDES}
        path = self._root / NAMES
        if not path.exists():
            numbers = np.unique(np.concatenate(list(own.values())))
            labels = {side: np.searchsorted(numbers, found) for side, found in own.items()}
            return labels, [str(number) for number in numbers]
        names = [line.strip() for line in composed(read(path, "the class names in ")).splitlines()]
        names = names[:-1] if names and not names[-1] else names
        largest = max(int(found.max(initial=0)) for found in own.values())
        if largest >= len(names):
            raise InputError(
                f"{path} names {len(names)} classes, and a sample has class {largest}; add its line"
            )
        if "" in names or len(set(names)) < len(names):
            raise InputError(f"{path}: expected a line a class, none empty and none twice")
        return own, names

    @cached_property
    def _samples(self) -> dict[str, np.ndarray]:
        """Of every sample of both sides: its name, class, shard, and where in that its image lies."""
        key = {"source": self.name, "format": FORMAT, "shards": self._contents()}
        return cached_files(key, self._write_samples)

    def _contents(self) -> dict[str, list[str]]:
        """The digests of the shards of each side."""
        return {side: [self._digests[path] for path in self._shards[side]] for side in SIDES}

    def _write_samples(self, folder: Path) -> None:
        for side, shards in self._shards.items():
            rows, names = [], []
            with bar(f"indexing {self._root.name} {side}", len(shards)) as advance:
                for number, path in enumerate(shards):
                    for name, label, offset, size in _samples_of(self._root / path):
                        rows.append((label, number, offset, size))
                        names.append(name)
                    advance(1)
            table = np.array(rows, np.int64).reshape(-1, 4)
            np.save(folder / f"{side}_labels.npy", table[:, 0])
            np.save(folder / f"{side}_places.npy", table[:, 1:])
            np.save(folder / f"{side}_names.npy", np.array(names, np.str_))

    def verify(self) -> None:
        """Read every shard again."""
        self._digests = self._fingerprints.digests(self._paths(), verify=True)
        for kept in ("_samples", "_index"):
            self.__dict__.pop(kept, None)
        self._labels, self.class_names = self._named()

    def files_key(self) -> dict:
        """Digests of all shards."""
        return {"shards": self._contents()}

    def count(self, side: str) -> int:
        """Samples of a side."""
        return len(self._labels[side])

    def labels(self, side: str) -> np.ndarray:
        """In the order of the shards."""
        return self._labels[side]

    def content(self, side: str, row: int) -> bytes:
        """The bytes of a sample's image."""
        shard, offset, size = map(int, self._samples[f"{side}_places"][row])
        path = self._root / self._shards[side][shard]
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                return file.read(size)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}; put it back or mend it") from error

    def place(self, side: str, row: int) -> str:
        """Such as "/data/train-000.tar, image of pets/07"."""
        shard = int(self._samples[f"{side}_places"][row, 0])
        return f"{self._root / self._shards[side][shard]}, image of {self._samples[f'{side}_names'][row]}"

    def remarks(self) -> list[str]:
        """How many samples and shards each side has."""
        name = f"webdataset:{self._root.name}"
        classes = f"{len(self.class_names)} classes"
        return [f"{name} {side}: {self.count(side):,} images of {classes} in {len(self._shards[side])} shards"
                for side in SIDES]  # fmt: skip


def _samples_of(shard: Path) -> Iterator[tuple[str, int, int, int]]:
    """(name, class, offset and bytes of the image) of every sample of a shard, in its order.

    Raises InputError for damaged shards, members that would lie outside, and samples that lack something.
    """
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(shard, "r:") as tar:
            for item in tar:
                tarfile.data_filter(item, "/destination")
                if item.isdir():
                    continue
                folder, _, file = item.name.rpartition("/")
                stem, _, suffix = file.partition(".")
                name, suffix = f"{folder}/{stem}" if folder else stem, suffix.lower()
                if suffix in IMAGES or suffix == "cls":
                    known = images if suffix in IMAGES else labels
                    if not item.isreg() or item.issparse():
                        raise InputError(f"{shard}: {item.name} is no plain file; pack it anew")
                    if name in known:
                        what = "images" if suffix in IMAGES else "classes"
                        raise InputError(f"{shard}: sample {name} has two {what}; expected one")
                    if suffix == "cls":
                        labels[name] = _class_of(shard, item.name, tar.extractfile(item).read(32))
                    else:
                        images[name] = item.offset_data, item.size
    except tarfile.FilterError as error:
        raise InputError(f"{shard} holds an unsafe member and is not used: {error}") from error
    except (tarfile.TarError, OSError, EOFError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        advice = "expected a whole tar without compression"
        raise InputError(f"cannot read {shard}: {reason}; {advice}") from error
    for missing, there, what in ((labels, images, "class (.cls)"), (images, labels, "image")):
        if lone := next((name for name in there if name not in missing), None):
            raise InputError(f"{shard}: sample {lone} has no {what}; expected NAME.jpg and NAME.cls")
    return ((name, labels[name], *place) for name, place in images.items())


def _class_of(shard: Path, member: str, content: bytes) -> int:
    number = whole_number(content.decode("ascii", "replace").strip())
    if number is None:
        raise InputError(f"{shard}: {member} holds no class; expected a whole number from 0 on")
    return number


def prepare(argument: str, root: Path | None, say: Callable[[str], None]) -> None:
    """Read and check every shard, and say what is used."""
    source = WebDataset(argument or (None if root is None else str(root)))
    source.verify()
    for line in source.remarks():
        say(line)
    say(f"webdataset:{source.argument} is complete; digest {source.manifest()['content'][:12]}")


SOURCE = WebDataset
PREPARE_NAMED = prepare
