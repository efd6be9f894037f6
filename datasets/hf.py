"""Image data sets of the Hugging Face hub: `--dataset hf:OWNER/NAME`, or `hf:PATH` of one kept locally.

`hf:OWNER/NAME@REVISION` names a commit, tag or branch; only `cl-bench prepare` asks the hub, and the commit
that it found is part of every run id. A path is a folder that `DatasetDict.save_to_disk` or `to_parquet` has
written. Columns and splits are guessed, and said; options behind a question mark name them. Pixels are as a
person sees them, see `cl_bench.data.decode`.
"""

import importlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from cl_bench.datasets._hf_files import NEEDED, Table, cached_splits, local_splits

from cl_bench.config import unknown
from cl_bench.data.decoded import require_classes
from cl_bench.data.encoded import SIDES, Encoded
from cl_bench.data.fingerprints import Fingerprints
from cl_bench.data.options import argument_of, path_and_options
from cl_bench.data.source import named_path
from cl_bench.errors import InputError

SUMMARY = (
    "Hugging Face's: hf:OWNER/NAME[@REVISION] or hf:PATH (save_to_disk, parquet); also "
    "?image=COLUMN&label=COLUMN&train=SPLIT&test=SPLIT&config=NAME"
)
OPTIONS = {"image": "COLUMN", "label": "COLUMN", "train": "SPLIT", "test": "SPLIT", "config": "NAME"}
# what is guessed, first those that are taken before others
SPLITS = {"train": ("train", "training"), "test": ("test", "validation", "valid", "val", "dev")}
IMAGES = ("image", "img", "jpg", "png", "webp", "picture")
LABELS = ("label", "labels", "fine_label", "class", "target", "cls")


class HuggingFace(Encoded):
    """Classes are those that the label's column names, or its values in order."""

    name = "hf"
    TRANSFORM = {"augment": "crop", "resize": "short-crop"}

    def __init__(self, argument: str | None = None):
        if not argument:
            raise InputError("data set hf needs a name or path: --dataset hf:OWNER/NAME or hf:PATH")
        named, options = path_and_options(argument, self.name, OPTIONS)
        _require_pyarrow()
        splits, self._revision, named = _found(named, options)
        self.argument = argument_of(named, options)
        self._called = f"hf:{named}"
        self._splits = {side: _chosen_split(side, splits, options, self._called) for side in SIDES}
        self._tables = {side: Table(splits[split]) for side, split in self._splits.items()}
        self._columns, self._others = self._chosen_columns(options)
        self._labels, self.class_names = self._read_labels()
        require_classes(self._called, self._labels, self.class_names)
        self._fingerprints = Fingerprints(Path(os.path.commonpath([path.parent for path in self._files()])))
        self._digests = self._fingerprints.digests(self._relative())

    def _chosen_columns(self, options: dict[str, str]) -> tuple[dict[str, str], list[str]]:
        """The columns of images and labels, and others that labels might have been meant by."""
        features = self._tables["train"].features()
        kinds = {name: str(kind.get("_type")) for name, kind in features.items()}
        images = [name for name, kind in kinds.items() if kind == "Image"]
        images = [name for name in IMAGES if name in images] + [n for n in images if n not in IMAGES]
        images = images or [name for name in IMAGES if name in kinds]
        marked = [name for name, kind in kinds.items() if kind == "ClassLabel"]
        labels = [name for name in LABELS if name in marked] + [name for name in marked if name not in LABELS]
        labels = labels or [name for name in LABELS if name in kinds]
        chosen = {}
        for what, found in (("image", images), ("label", labels)):
            if (asked := options.get(what)) and asked not in kinds:
                raise unknown("column", asked, kinds, f"{self._called}?{what}={asked}")
            if not (asked or found):
                columns = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
                raise InputError(f"{self._called}: which column is the {what}? ?{what}= one of {columns}")
            chosen[what] = asked or found[0]
        return chosen, [name for name in labels if name != chosen["label"]]

    def _read_labels(self) -> tuple[dict[str, np.ndarray], list[str]]:
        column = self._columns["label"]
        values = {side: table.column(column) for side, table in self._tables.items()}
        for side, found in values.items():
            hidden = sum(value is None or value == -1 for value in found)
            if hidden:
                others = f"name a split that has them with ?{side}=SPLIT"
                raise InputError(f"{self._called}: {hidden} {side} images have no label; {others}")
        names = self._tables["train"].features()[column].get("names")
        if isinstance(names, list) and names:
            return {side: np.array(found, np.int64) for side, found in values.items()}, list(map(str, names))
        try:
            known = sorted(set(values["train"]) | set(values["test"]))
        except TypeError:
            raise InputError(f"{self._called}: the values of column {column!r} are no classes") from None
        place = {value: number for number, value in enumerate(known)}
        labels = {side: np.array([place[v] for v in found], np.int64) for side, found in values.items()}
        return labels, [str(value) for value in known]

    def _files(self) -> list[Path]:
        return list(dict.fromkeys(path for table in self._tables.values() for path in table.files))

    def _relative(self) -> list[str]:
        base = os.path.commonpath([path.parent for path in self._files()])
        return [os.path.relpath(path, base) for path in self._files()]

    def verify(self) -> None:
        """Read every file again."""
        self._digests = self._fingerprints.digests(self._relative(), verify=True)
        self.__dict__.pop("_index", None)

    def files_key(self) -> dict:
        """Digests of all files, and what of them is read."""
        return {"files": list(self._digests.values()), "columns": self._columns, "splits": self._splits}

    def manifest(self) -> dict:
        """That of the images, and the hub's revision."""
        return super().manifest() | ({"revision": self._revision} if self._revision else {})

    def count(self, side: str) -> int:
        """Rows of the split."""
        return len(self._tables[side])

    def content(self, side: str, row: int) -> bytes:
        """The image file that a row holds or names."""
        return self._tables[side].content(self._columns["image"], row)

    def place(self, side: str, row: int) -> str:
        """Such as "hf:owner/name, train row 7"."""
        return f"{self._called}, {self._splits[side]} row {row}"

    def labels(self, side: str) -> np.ndarray:
        """In the split's order."""
        return self._labels[side]

    def remarks(self) -> list[str]:
        """Which columns and splits are used, and of what revision."""
        told = f", not {', '.join(self._others)}" if self._others else ""
        columns = (
            f"images from column {self._columns['image']!r}, labels from {self._columns['label']!r}{told}"
        )
        sizes = [f"{side} is split {self._splits[side]!r} ({self.count(side):,} images)" for side in SIDES]
        of = f", revision {self._revision[:12]}" if self._revision else ""
        return [f"{self._called}: {columns}; {', '.join(sizes)}; {len(self.class_names)} classes{of}"]


def _require_pyarrow() -> None:
    try:
        import pyarrow.ipc  # noqa: F401
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise InputError(NEEDED) from None


def _is_path(named: str) -> bool:
    return named.startswith((".", "/", "~")) or os.path.isdir(named)


def _found(named: str, options: dict[str, str]) -> tuple[dict[str, list[Path]], str | None, str]:
    """Files by split, the hub's revision, and the name or absolute path."""
    if _is_path(named):
        root = named_path(named)
        if "config" in options:
            raise InputError(f"hf:{named} is a folder, which has no configurations; leave out ?config=")
        return local_splits(root), None, str(root)
    name, _, revision = named.partition("@")
    return *cached_splits(name, revision or None, options.get("config")), named


def _chosen_split(side: str, splits: Iterable[str], options: dict[str, str], called: str) -> str:
    asked, splits = options.get(side), list(splits)
    if asked:
        if asked not in splits:
            raise unknown("split", asked, splits, called)
        return asked
    found = next((name for name in SPLITS[side] if name in splits), None)
    if found is None:
        there = ", ".join(splits) or "none"
        raise InputError(f"{called}: which split is the {side} side? ?{side}= one of {there}")
    return found


def prepare(argument: str, root: Path | None, say: Callable[[str], None]) -> None:
    """Bring a data set of the hub into Hugging Face's cache; read and verify all of it, or of a local one."""
    if root is not None:
        raise InputError("hf data sets go to Hugging Face's own cache ($HF_HOME); leave out --root")
    named, options = path_and_options(argument, "hf", OPTIONS)
    if named and not _is_path(named):
        name, _, revision = named.partition("@")
        library = importlib.import_module("datasets")
        if not hasattr(library, "load_dataset"):  # a folder of that name
            raise InputError(NEEDED)
        try:
            library.load_dataset(name, options.get("config"), revision=revision or None)
        except Exception as error:  # it raises whatever its hub client does
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"cannot prepare hf:{named}: {reason}") from error
    source = HuggingFace(argument)
    source.verify()
    for line in source.remarks():
        say(line)
    say(f"hf:{source.argument} is complete; digest {source.manifest()['content'][:12]}")


SOURCE = HuggingFace
PREPARE_NAMED = prepare
