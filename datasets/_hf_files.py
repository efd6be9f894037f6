"""Tables of image data sets as Hugging Face keeps them: its cache, save_to_disk folders, parquet files."""

import json
import os
import re
import threading
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from cl_bench.data.source import named_path
from cl_bench.errors import InputError

NEEDED = 'hf needs pyarrow and, to download, datasets: pip install "cl-bench[hf]"'
SHARD = re.compile(r"-\d{5}-of-\d{5}(-[0-9a-f]+)?$")  # at the end of a file's name
ROW_GROUPS = 4  # of parquet files that are held in memory at once
REVISION = re.compile(r"[0-9a-f]{7,40}")


class Table:
    """The rows of one split, in arrow or parquet files; images are read one at a time."""

    def __init__(self, files: list[Path]):
        import pyarrow.parquet

        self.files, self._lock = files, threading.Lock()
        self._whole, counts = [], []
        for path in files:
            try:
                if path.suffix == ".parquet":
                    opened = pyarrow.parquet.ParquetFile(path)
                    groups = range(opened.metadata.num_row_groups)
                    counts += [opened.metadata.row_group(group).num_rows for group in groups]
                    self._whole += [(opened, group) for group in groups]
                    self.schema = opened.schema_arrow
                else:
                    whole = pyarrow.ipc.open_stream(pyarrow.memory_map(str(path))).read_all()
                    counts.append(whole.num_rows)
                    self._whole.append((whole, None))
                    self.schema = whole.schema
            except (OSError, pyarrow.ArrowException) as error:
                reason = " ".join(str(error).split())
                raise InputError(f"cannot read {path}: {reason}; put it back or prepare it again") from error
        self._ends = np.cumsum(counts)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def column(self, name: str) -> list:
        """All values of a column."""
        found = []
        for number in range(len(self._whole)):
            found += self._part(number, name).to_pylist()
        return found

    def content(self, name: str, row: int) -> bytes:
        """The bytes of an image file. Raises InputError where they lie nowhere."""
        number = int(np.searchsorted(self._ends, row, side="right"))
        start = int(self._ends[number - 1]) if number else 0
        value = self._images(number, name)[row - start].as_py()
        if isinstance(value, dict) and value.get("bytes") is None and value.get("path"):
            try:
                return Path(value["path"]).read_bytes()
            except OSError as error:
                raise InputError(
                    f"cannot read {value['path']}: {error.strerror}; prepare it again"
                ) from error
        found = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(found, bytes):
            raise InputError(f"row {row} of column {name!r} holds no image file")
        return found

    def _part(self, number: int, name: str):
        whole, group = self._whole[number]
        return (whole if group is None else whole.read_row_group(group, columns=[name])).column(name)

    @cached_property
    def _images(self) -> Callable:
        """The column of one part; parts of parquet files are read once while neighbours are asked for."""
        cached = lru_cache(ROW_GROUPS)(self._part)

        def locked(number: int, name: str):
            with self._lock:
                return cached(number, name)

        return locked

    def features(self) -> dict[str, dict]:
        """What Hugging Face notes of each column: {"_type": "ClassLabel", "names": [...]} and such."""
        try:
            noted = json.loads((self.schema.metadata or {})[b"huggingface"])["info"]["features"]
        except (KeyError, ValueError, TypeError):
            noted = {}
        return {
            name: noted.get(name) or {"_type": str(self.schema.field(name).type)}
            for name in self.schema.names
        }


def local_splits(root: Path) -> dict[str, list[Path]]:
    """Files of each split in a save_to_disk folder, or of parquet files below a folder. Raises InputError."""
    if (root / "dataset_dict.json").is_file():
        names = _json(root / "dataset_dict.json")["splits"]
        return {name: _saved(root / name) for name in names}
    if (root / "state.json").is_file():
        needed = "save a DatasetDict with a training and a test split"
        raise InputError(f"{root} holds one split that was saved alone; {needed}")
    splits: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*.parquet")):
        name = SHARD.sub("", path.stem)
        splits.setdefault(path.parent.name if name.isdigit() else name, []).append(path)
    if not splits:
        expected = "expected what save_to_disk or to_parquet write: dataset_dict.json or train*.parquet"
        raise InputError(f"{root} holds no data set that hf reads; {expected}")
    return splits


def _saved(folder: Path) -> list[Path]:
    state = _json(folder / "state.json")
    if state.get("_indices_data_files"):
        raise InputError(f"{folder} was saved with indices; save it with flatten_indices()")
    return [folder / Path(item["filename"]).name for item in state["_data_files"]]


def _json(path: Path) -> dict:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path} ({type(error).__name__}); save the data set again") from error


def cached_splits(name: str, revision: str | None, config: str | None) -> tuple[dict[str, list[Path]], str]:
    """Files of each split of a hub data set in Hugging Face's cache, and the revision that they are of.

    Without a revision it is the one last resolved for "main", or else the newest that is there. Raises
    InputError where there is none, and for several configurations none of which is named.
    """
    parts = name.split("/")
    folder = "___".join([*parts[:-1], _snake(parts[-1])])
    # <config>/<version>/<revision>
    held = [path.parent for path in _hf_datasets_cache().glob(f"{folder}/*/*/*/dataset_info.json")]
    wanted = revision if revision and REVISION.fullmatch(revision) else _resolved(name, revision or "main")
    if wanted:
        held = [path for path in held if path.name.startswith(wanted)]
    elif revision:
        held = []
    if config:
        held = [path for path in held if path.parent.parent.name == config]
    configs = sorted({path.parent.parent.name for path in held})
    if len(configs) > 1 and "default" in configs:
        held, configs = [path for path in held if path.parent.parent.name == "default"], ["default"]
    if len(configs) > 1:
        several = f"has several configurations ({', '.join(configs)})"
        raise InputError(f"hf:{name} {several}; name one with ?config=NAME")
    if not held:
        asked = name + (f"@{revision}" if revision else "") + (f"?config={config}" if config else "")
        offline = f"it is not in Hugging Face's cache {_hf_datasets_cache()}"
        raise InputError(f"hf:{asked}: {offline}; run `cl-bench prepare hf:{asked}`, or name a local folder")
    newest = max(held, key=lambda path: (path / "dataset_info.json").stat().st_mtime)
    splits = _json(newest / "dataset_info.json").get("splits") or {}
    return {split: _arrow_files(newest, split) for split in splits}, newest.name


def _arrow_files(folder: Path, split: str) -> list[Path]:
    found = [
        path for path in sorted(folder.glob("*.arrow")) if SHARD.sub("", path.stem).endswith(f"-{split}")
    ]
    if not found:
        raise InputError(f"{folder} lacks the files of its split {split!r}; remove it and prepare it again")
    return found


def _resolved(name: str, revision: str) -> str | None:
    """The commit that a branch or tag was when it was last asked for, as the hub's client notes it."""
    from huggingface_hub.constants import HF_HUB_CACHE

    path = Path(HF_HUB_CACHE) / f"datasets--{name.replace('/', '--')}" / "refs" / revision
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError):
        return None


def _hf_datasets_cache() -> Path:
    """Hugging Face's own folder of data sets that were prepared."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return named_path(os.environ.get("HF_DATASETS_CACHE") or str(Path(home) / "datasets"))


def _snake(name: str) -> str:
    """A data set's name as Hugging Face's cache spells it."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z\d])([A-Z])", r"\1_\2", name).lower()
