"""A run's own files: its checkpoint and predictions, and whether they are whole."""

import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.torch import load as load_tensors

from cl_bench.errors import CannotWrite
from cl_bench.method import Method
from cl_bench.record import RunRecord, RunSpec
from cl_bench.store import UNREADABLE, DamagedRecord, Store, write_atomically
from cl_bench.stream import Stream

Say = Callable[[str], None]


def save(record: RunRecord, store: Store, tensors: bytes, predictions: dict[str, np.ndarray], truth: np.ndarray) -> None:
    """Checkpoint and predictions (with the true classes beside them) first, then the record that vouches for them, then the older checkpoint goes."""
    folder = store.folder(record.spec)
    try:
        write_atomically(checkpoint_path(folder, len(record.tasks)), tensors)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, truth=truth, **predictions)
        write_atomically(folder / "predictions.npz", buffer.getvalue())
        store.save(record)
    except OSError as error:
        raise cannot_write(folder, error) from error
    for path in folder.glob("checkpoint-*.safetensors"):
        if path != checkpoint_path(folder, len(record.tasks)):
            path.unlink()


def cannot_write(folder: Path, error: OSError) -> CannotWrite:
    """The failure of a run that cannot save; what it saved before is kept."""
    return CannotWrite(f"cannot write {folder}: {error.strerror}; free space and repeat the command, finished tasks are kept")


def checkpoint_path(folder: Path, tasks: int) -> Path:
    """The file that holds the method's state after `tasks` tasks."""
    return folder / f"checkpoint-{tasks:03d}.safetensors"


def restore(record: RunRecord, folder: Path, method: Method, stream: Stream, say: Say) -> dict[str, np.ndarray]:
    """Put the method where the record ends; returns the predictions so far."""
    if not record.tasks:
        return {}
    say(f"resuming after task {len(record.tasks)} of {stream.num_tasks}")
    for index in range(len(record.tasks)):
        method.grow(stream.info(index))
    method.load_state(load_tensors(checkpoint_path(folder, len(record.tasks)).read_bytes()))
    with np.load(folder / "predictions.npz") as arrays:
        return {name: arrays[name] for name in (f"task_{t + 1:03d}" for t in range(len(record.tasks)))}


def existing(spec: RunSpec, store: Store, say: Say) -> RunRecord | None:
    """The run's record if it and its files are whole; a damaged run is set aside, with a message, and started again."""
    folder = store.folder(spec)
    try:
        record = store.load(spec)
        if record and record.tasks:
            _verify_files(record, folder)
        return record
    except DamagedRecord as error:
        aside = store.set_aside(spec)
        say(f"warning: {error}; kept as {aside}, the run starts again")
        return None


def is_compact(record: RunRecord, folder: Path) -> bool:
    """Whether a finished run was kept without its checkpoint, for reports alone."""
    return record.status == "done" and not any(folder.glob("checkpoint-*.safetensors"))


def _verify_files(record: RunRecord, folder: Path) -> None:
    compact = is_compact(record, folder)
    kept = range(len(record.tasks) - 1, len(record.tasks)) if compact else range(len(record.tasks))
    try:
        tensors = b"" if compact else checkpoint_path(folder, len(record.tasks)).read_bytes()
        with np.load(folder / "predictions.npz") as arrays:
            digests = [hashlib.sha256(arrays[f"task_{t + 1:03d}"].tobytes()).hexdigest() for t in kept]
    except (OSError, *UNREADABLE) as error:
        raise DamagedRecord(f"checkpoint or predictions in {folder} cannot be read ({error})") from error
    if not compact and hashlib.sha256(tensors).hexdigest() != record.tasks[-1].checkpoint_sha256:
        raise DamagedRecord(f"the checkpoint in {folder} is not the one its record names")
    if digests != [record.tasks[t].predictions_sha256 for t in kept]:
        raise DamagedRecord(f"the predictions in {folder} are not those its record names")


def finished_tasks(store: Store, spec: RunSpec) -> int:
    """How many tasks the run has learned, by its record alone; a damaged one holds none."""
    try:
        record = store.load(spec)
    except DamagedRecord:
        return 0
    return len(record.tasks) if record else 0
