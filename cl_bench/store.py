"""The folder that keeps specifications and records of runs."""

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import from_json

from cl_bench.config import canonical_json
from cl_bench.errors import UNREADABLE_ARCHIVE, InputError
from cl_bench.record import RunRecord, RunSpec

# what reading a file of predictions that is missing, cut short or broken raises
UNREADABLE = (FileNotFoundError, *UNREADABLE_ARCHIVE)


_WRITTEN = re.compile(rb'\{"digest": "(?P<digest>\w+)", "run_id": "(?P<run_id>\w+)", "record":\n(?P<content>.+)\n\}\n')


class DamagedRecord(Exception):
    """A record that is truncated, was edited by hand, or does not belong to its folder."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside `path`, fsync, rename: a reader sees the old content or the new, never a part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read_spec(path: Path) -> RunSpec:
    """A specification from its JSON file. Raises InputError."""
    try:
        return RunSpec.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a run specification: {str(error).splitlines()[0]}") from error


def write_spec(spec: RunSpec, folder: Path) -> Path:
    """Write spec.json into the run's folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "spec.json"
    write_atomically(path, json.dumps(spec.model_dump(mode="json"), indent=1).encode())
    return path


class Store:
    """A results folder: `runs/<method>-<run id>/` holds record.json, the newest checkpoint, predictions.npz, log.txt."""

    def __init__(self, root: Path):
        self.root = Path(root)
        self._known: dict[int, tuple[RunSpec, Path]] = {}  # the folders that `records` has read, by the specification object in memory

    def prepare(self) -> None:
        """Create the folder; raises InputError when it cannot be written."""
        try:
            (self.root / "runs").mkdir(parents=True, exist_ok=True)
            probe = self.root / "runs" / f".writable.{os.getpid()}-{threading.get_ident()}"
            write_atomically(probe, b"")
            probe.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot write the results folder {self.root}: {error.strerror or error}; free space or choose another with --results"
            ) from error

    def folder(self, spec: RunSpec) -> Path:
        """The run's own folder (it may not exist yet)."""
        known, folder = self._known.get(id(spec), (None, None))
        if known is spec:
            return folder
        return self.root / "runs" / f"{spec.method}-{spec.run_id()}"

    def holds(self, spec: RunSpec) -> bool:
        """Whether there is a record of the run, in whatever state."""
        return (self.folder(spec) / "record.json").exists()

    def load(self, spec: RunSpec) -> RunRecord | None:
        """The run's record, None if there is none. Raises DamagedRecord."""
        return read_record(self.folder(spec) / "record.json") if self.holds(spec) else None

    def save(self, record: RunRecord) -> None:
        """Write the record atomically, sealed with the digest of its content."""
        content = canonical_json(record.model_dump(mode="json"))
        seal = f'{{"digest": "{sha256(content.encode()).hexdigest()}", "run_id": "{record.spec.run_id()}", "record":'
        write_atomically(self.folder(record.spec) / "record.json", f"{seal}\n{content}\n}}\n".encode())

    def find(self, run: str) -> RunSpec:
        """The specification of the recorded run with this id, unique beginning of an id, or folder. Raises InputError."""
        name, ids = Path(run).name, {path.parent: path.parent.name.rpartition("-")[2] for path in sorted((self.root / "runs").glob("*/record.json"))}
        found = [folder for folder, run_id in ids.items() if name in (folder.name, run_id)]
        found = found or [folder for folder, run_id in ids.items() if name and run_id.startswith(name)]
        if len(found) != 1:
            what = f"{len(found)} runs begin with" if found else "no run is called"
            raise InputError(f"{what} {run!r} in {self.root}; `cl-bench ls runs` lists their ids")
        try:
            return read_record(found[0] / "record.json").spec
        except DamagedRecord as error:
            raise InputError(f"{error}; `cl-bench run` with its options starts it again") from error

    def set_aside(self, spec: RunSpec) -> Path:
        """Move record, checkpoints and predictions out of the run's folder into a new one beside it; returns that."""
        folder = self.folder(spec)
        aside = folder.with_name(f"{folder.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        aside.mkdir()
        for path in folder.iterdir():
            if path.name in ("record.json", "predictions.npz") or path.name.startswith("checkpoint-"):
                path.rename(aside / path.name)
        return aside

    def records(self) -> Iterator[RunRecord | tuple[Path, str]]:
        """Every record in the folder; for a damaged one its path and the reason."""
        for path in sorted((self.root / "runs").glob("*/record.json")):
            if ".damaged-" in path.parent.name:
                continue
            try:
                record, run_id = _read(path)
            except DamagedRecord as error:
                yield path, str(error)
                continue
            if path.parent.name == f"{record.spec.method}-{run_id}":
                self._known[id(record.spec)] = (record.spec, path.parent)
                yield record
            else:  # a copy must not count as another run
                yield path, f"{path.parent} is a copy of the run {run_id}; remove it, or merge results folders with `cl-bench merge`"


def read_record(path: Path) -> RunRecord:
    """The record in a file. Raises DamagedRecord when it is not exactly what `Store.save` wrote."""
    return _read(path)[0]


def _read(path: Path) -> tuple[RunRecord, str]:
    """A record and its run's id."""
    try:
        content, stated_id, unchanged = unsealed(path.read_bytes())
        record = RunRecord.model_validate_json(content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{error.error_count()} bad values" if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"
        raise DamagedRecord(f"{path} is truncated or not a record ({reason})") from error
    if not unchanged:
        raise DamagedRecord(f"{path} was changed after it was written (its content does not match its digest)")
    run_id = record.spec.run_id()
    if stated_id != run_id:
        raise DamagedRecord(f"{path} does not belong to its run id")
    return record, run_id


def unsealed(data: bytes) -> tuple[bytes, str, bool]:
    """From a record's file: the JSON of the record, the run id stated beside it, and whether its content is what the digest says.

    Raises ValueError, KeyError or TypeError for what is not such a file. White space and the order of keys may differ from what `Store.save`
    writes; as it writes them, the content need not be decoded to be believed.
    """
    written = _WRITTEN.fullmatch(data)
    if written and sha256(written["content"]).hexdigest() == written["digest"].decode():
        return written["content"], written["run_id"].decode(), True
    sealed = from_json(data)
    content = canonical_json(sealed["record"]).encode()
    return content, sealed["run_id"], sealed["digest"] == sha256(content).hexdigest()
