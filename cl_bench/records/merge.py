"""Brings the runs of several results folders together, whole or compact, never replacing one by another."""

import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cl_bench.errors import Busy, CannotRead, InputError
from cl_bench.files import write_atomically
from cl_bench.records import imported, locks
from cl_bench.records.record import RunRecord
from cl_bench.records.sealed import DamagedRecord, content_of, entries, is_missing
from cl_bench.records.store import BROKEN_ARCHIVE, LeftOut, Store

# of a run, copied before the record that vouches for them
FILES = ("spec.json", "predictions.npz", "log.txt", "checkpoint-*.safetensors")


@dataclass
class Merged:
    """What happened: numbers of runs, and lines about some of them."""

    copied: int = 0
    kept: int = 0  # which the target had already, the same or further
    warnings: list[str] = field(default_factory=list)  # left out, or lost something on the way
    # may be lacking in the target: could not be read or believed, or are being worked on
    lacking: list[str] = field(default_factory=list)


def merge(target: Store, sources: list[Store], compact: bool) -> Merged:
    """Copy every run of the sources that the target lacks or has less of; imported matrices too.

    `compact` takes finished runs only, and of each its record, its last predictions and the true classes: all
    that reports need. Raises InputError, before anything is copied, when two folders hold different results
    of one run.
    """
    here, left_here = _runs(target)
    best: dict[str, tuple[RunRecord, Path]] = {}
    left_out, done = [], Merged()
    for store in sources:
        store.require_folder()
        if is_missing(store.root):
            raise InputError(f"there is no results folder {store.root}")
        runs, left = _runs(store)
        left_out += left
        for run_id, found in runs.items():
            if compact and found[0].status != "done":
                done.warnings.append(f"left out: {found[1]} is not finished")
            elif run_id not in best or _further(found, best[run_id]):
                best[run_id] = found
    wanted = {}
    for run_id, found in best.items():
        if run_id not in here or _further(found, here[run_id]):
            wanted[run_id] = found
    others = [(record, store) for store in sources for record in imported.records(store.root)]
    for matrix, store in others:
        for root in (target.root, *(source.root for source in sources if source is not store)):
            imported.require_same(matrix, root)
    target.prepare()
    done.kept = len(best) - len(wanted)
    unread = {found.folder for found in left_here if found.kind == "unreadable"}
    try:
        for record, folder in wanted.values():
            _bring(record, folder, target, compact, unread, done)
        for matrix, _ in others:
            imported.save(matrix, target.root)
    except OSError as error:
        reason = f"{error.strerror or error}; free space and repeat the command"
        raise InputError(f"cannot write {target.root}: {reason}") from error
    _say_left_out([*left_here, *left_out], target, done)
    return done


Found = tuple[RunRecord, Path]


def _runs(store: Store) -> tuple[dict[str, Found], list[LeftOut]]:
    """The runs of a results folder by id, and the records that cannot be read or believed."""
    found, left_out = {}, []
    for record in store.records():
        if isinstance(record, RunRecord):
            found[record.spec.run_id()] = (record, store.folder(record.spec))
        else:
            left_out.append(record)
    return found, left_out


def _bring(
    record: RunRecord, folder: Path, target: Store, compact: bool, unread: set[str], done: Merged
) -> None:
    """Copy a run, unless what the target has of it cannot be read or is being worked on."""
    place = target.folder(record.spec)
    if place.name in unread:
        done.lacking.append(f"not copied: {folder}, since what the target has of it cannot be read")
        return
    try:
        with locks.sole_owner(target, record.spec, lambda line: None, wait=False):
            _copy(record, folder, target, compact, done)
        done.copied += 1
    except Busy:
        done.lacking.append(f"not copied: {folder}, since a process is working on {place}")
    except CannotRead as error:
        done.lacking.append(f"not copied: {error}")


def _say_left_out(left_out: list[LeftOut], target: Store, done: Merged) -> None:
    """A line for each record not read or not believed: a warning where the target has the whole run."""
    for found in left_out:
        there = target.in_folder(target.root / "runs" / found.folder)
        whole = not found.lacking or (isinstance(there, RunRecord) and there.status == "done")
        (done.warnings if whole else done.lacking).append(f"left out: {found.reason}")


def _further(found: tuple[RunRecord, Path], other: tuple[RunRecord, Path]) -> bool:
    """Whether a record goes beyond another one of the same run. Raises InputError for contradictions."""
    (record, folder), (known, place) = found, other
    both = min(len(record.tasks), len(known.tasks))
    if [task.correct for task in record.tasks[:both]] != [task.correct for task in known.tasks[:both]]:
        same = "the same run with different results (another machine or library version?)"
        what_to_do = "nothing was copied, report them from separate folders or remove one"
        raise InputError(f"{folder} and {place} are {same}; {what_to_do}")
    return (len(record.tasks), record.status == "done") > (len(known.tasks), known.status == "done")


def _copy(record: RunRecord, folder: Path, target: Store, compact: bool, done: Merged) -> None:
    """Bring a run over, the record last.

    What the target has of it under a damaged record is set aside before. Raises CannotRead.
    """
    place = target.folder(record.spec)
    try:
        target.load(record.spec)
    except DamagedRecord as error:
        done.warnings.append(f"{error}; kept as {target.set_aside(record.spec)}")
    if compact:
        try:
            content = _last(content_of(folder / "predictions.npz") or b"", record)
            write_atomically(place / "predictions.npz", content)
        except BROKEN_ARCHIVE as error:
            done.warnings.append(f"copied without predictions: {folder} ({error})")
    else:
        for path in entries(folder, *FILES):
            write_atomically(place / path.name, content_of(path) or b"")
    target.save(record)


def _last(predictions: bytes, record: RunRecord) -> bytes:
    """Of a file of predictions those after the last task, and the true classes."""
    with np.load(io.BytesIO(predictions)) as arrays:
        last = f"task_{len(record.tasks):03d}"
        kept = {name: arrays[name] for name in (last, "truth") if name in arrays}
    content = io.BytesIO()
    np.savez_compressed(content, **kept)
    return content.getvalue()
