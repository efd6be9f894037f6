"""A run's own files: its checkpoint and predictions, and whether they are whole."""

import hashlib
import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from cl_bench.errors import CannotWrite
from cl_bench.files import write_atomically
from cl_bench.records.record import RunRecord
from cl_bench.records.sealed import DamagedRecord, content_of, is_missing
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import BROKEN_ARCHIVE, Store

Say = Callable[[str], None]
TRACKERS = "trackers"  # in a results folder: what experiment trackers keep in files
TRACKED = "trackers.json"  # in a run's folder: the last step that each of them was sent


def save(
    record: RunRecord, store: Store, tensors: bytes, predictions: dict[str, np.ndarray], truth: np.ndarray
) -> None:
    """Checkpoint and predictions (with the true classes) first, then the record that vouches for them.

    The older checkpoint goes last.
    """
    folder = store.folder(record.spec)
    try:
        write_atomically(checkpoint_path(folder, len(record.tasks)), tensors)
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {"truth": truth, **predictions}
        np.savez_compressed(buffer, **arrays)
        write_atomically(folder / "predictions.npz", buffer.getvalue())
        store.save(record)
    except OSError as error:
        raise cannot_write(folder, error) from error
    for path in folder.glob("checkpoint-*.safetensors"):
        if path != checkpoint_path(folder, len(record.tasks)):
            with suppress(OSError):  # one that stays takes space, no more
                path.unlink()


def cannot_write(folder: Path, error: OSError) -> CannotWrite:
    """The failure of a run that cannot save; what it saved before is kept."""
    what_to_do = "free space and repeat the command, finished tasks are kept"
    return CannotWrite(f"cannot write {folder}: {error.strerror}; {what_to_do}")


def checkpoint_path(folder: Path, tasks: int) -> Path:
    """The file that holds the method's state after `tasks` tasks."""
    return folder / f"checkpoint-{tasks:03d}.safetensors"


def existing(spec: RunSpec, store: Store, say: Say) -> RunRecord | None:
    """The run's record, where the same command goes on.

    What proves damaged is set aside, with a message, and the run starts again; a finished run stays as it is,
    whatever became of the files beside its record. Raises CannotRead, and nothing is changed, where something
    cannot be read.
    """
    folder = store.folder(spec)
    try:
        record = store.load(spec)
        if record and record.status == "done":
            return record
        found = orphans(folder) if record is None else damage(record, folder)
        if not found:
            return record
        wrong = "; ".join(found)
    except DamagedRecord as error:
        wrong = str(error)
    aside = store.set_aside(spec)
    say(f"warning: {wrong}; kept as {aside}, the run starts again")
    return None


def orphans(folder: Path) -> list[str]:
    """A line where a run's folder has what learning left but no record of it."""
    if is_missing(folder / "predictions.npz"):
        return []
    return [f"{folder} holds predictions but no record of what made them"]


def is_compact(record: RunRecord, folder: Path) -> bool:
    """Whether a finished run was kept without its checkpoint, for reports alone. Raises CannotRead."""
    return record.status == "done" and is_missing(checkpoint_path(folder, len(record.tasks)))


def damage(record: RunRecord, folder: Path, compact: bool | None = None) -> list[str]:
    """A line for each of the files beside a record that is not the one it vouches for. Raises CannotRead."""
    if not record.tasks:
        return []
    compact = is_compact(record, folder) if compact is None else compact
    last, found = len(record.tasks), []
    if not compact:
        named = record.tasks[-1].checkpoint_sha256
        path = checkpoint_path(folder, last)
        found += _unlike(path, lambda data: hashlib.sha256(data).hexdigest() == named)
    kept = range(last - 1, last) if compact else range(last)
    digests = [record.tasks[t].predictions_sha256 for t in kept]
    return found + _unlike(folder / "predictions.npz", lambda data: _digests(data, kept) == digests)


def _unlike(path: Path, is_named: Callable[[bytes], bool]) -> list[str]:
    data = content_of(path)
    if data is None:
        return [f"{path} is missing"]
    try:
        return [] if is_named(data) else [f"{path} is not what its record names: it was changed or cut short"]
    except BROKEN_ARCHIVE as error:
        return [f"{path} is damaged ({type(error).__name__}: {str(error)[:200]})"]


def _digests(data: bytes, tasks: range) -> list[str]:
    with np.load(io.BytesIO(data)) as arrays:
        return [hashlib.sha256(arrays[f"task_{t + 1:03d}"].tobytes()).hexdigest() for t in tasks]
