"""Brings the runs of several results folders together, whole or compact, never replacing one by another."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cl_bench.errors import Busy, CannotRead, InputError
from cl_bench.files import write_atomically
from cl_bench.records import imported, locks
from cl_bench.records.copies import Copy, require_same
from cl_bench.records.gather import PREDICTIONS, Gathered, archive, gather, needed
from cl_bench.records.record import RunRecord
from cl_bench.records.sealed import DamagedRecord, content_of, entries, is_missing
from cl_bench.records.store import BROKEN_ARCHIVE, LeftOut, Store

# of a run, copied before the record that vouches for them
FILES = ("spec.json", PREDICTIONS, "log.txt", "checkpoint-*.safetensors")


@dataclass
class Merged:
    """What happened: numbers of runs, and lines about some of them."""

    copied: int = 0
    kept: int = 0  # which the target had already, the same or further
    added: list[str] = field(default_factory=list)  # of these, a line for each that lacked something
    warnings: list[str] = field(default_factory=list)  # left out, or lost something on the way
    # may be lacking in the target: could not be read or believed, or are being worked on
    lacking: list[str] = field(default_factory=list)


def merge(target: Store, sources: list[Store], compact: bool) -> Merged:
    """Copy every run of the sources that the target lacks or has less of; imported matrices too.

    A run ends with all that any folder has of it: what one copy lacks, another adds, in whatever order the
    sources are named. `compact` takes finished runs only, and of each its record, its last predictions and
    the true classes: all that reports need. Raises InputError, before anything is copied, when two folders
    hold different results of one run.
    """
    here, left_here = _runs(target)
    done = Merged()
    offered, left_out = _offered(sources, compact, done)
    for run_id, copies in offered.items():
        require_same([*copies, *([here[run_id]] if run_id in here else [])])
    others = [(record, store) for store in sources for record in imported.records(store.root)]
    for matrix, store in others:
        for root in (target.root, *(source.root for source in sources if source is not store)):
            imported.require_same(matrix, root)
    target.prepare()
    unread = {found.folder for found in left_here if found.kind == "unreadable"}
    try:
        for run_id, copies in offered.items():
            known = here.get(run_id)
            if known is None or copies[0].progress() > known.progress():
                _bring(known, copies, target, compact, unread, done)
            else:
                done.kept += 1
                _complete(known, copies, target, compact, done)
        for matrix, _ in others:
            imported.save(matrix, target.root)
    except OSError as error:
        reason = f"{error.strerror or error}; free space and repeat the command"
        raise InputError(f"cannot write {target.root}: {reason}") from error
    _say_left_out([*left_here, *left_out], target, done)
    return done


def _runs(store: Store) -> tuple[dict[str, Copy], list[LeftOut]]:
    """The runs of a results folder by id, and the records that cannot be read or believed."""
    found, left_out = {}, []
    for record in store.records():
        if isinstance(record, RunRecord):
            found[record.spec.run_id()] = Copy(record, store.folder(record.spec))
        else:
            left_out.append(record)
    return found, left_out


def _offered(
    sources: list[Store], compact: bool, done: Merged
) -> tuple[dict[str, list[Copy]], list[LeftOut]]:
    """The copies of each run in the sources by its id, the preferred one first; and what is left out."""
    offered: dict[str, list[Copy]] = {}
    left_out = []
    for store in sources:
        store.require_folder()
        if is_missing(store.root):
            raise InputError(f"there is no results folder {store.root}")
        runs, left = _runs(store)
        left_out += left
        for run_id, found in runs.items():
            if compact and found.record.status != "done":
                done.warnings.append(f"left out: {found.folder} is not finished")
            else:
                offered.setdefault(run_id, []).append(found)
    for copies in offered.values():
        if len(copies) > 1:
            copies.sort(key=Copy.rank, reverse=True)
    return offered, left_out


def _bring(
    known: Copy | None, copies: Sequence[Copy], target: Store, compact: bool, unread: set[str], done: Merged
) -> None:
    """Copy a run, unless what the target has of it cannot be read or is being worked on."""
    best, *others = copies
    place = target.folder(best.record.spec)
    if place.name in unread:
        done.lacking.append(f"not copied: {best.folder}, since what the target has of it cannot be read")
        return
    try:
        with locks.sole_owner(target, best.record.spec, lambda line: None, wait=False):
            found = gather(best, [*([known] if known else []), *others], place, compact)
            _copy(best, found, target, compact, done)
        done.copied += 1
    except Busy:
        done.lacking.append(f"not copied: {best.folder}, since a process is working on {place}")
    except CannotRead as error:
        done.lacking.append(f"not copied: {error}")


def _complete(known: Copy, copies: Sequence[Copy], target: Store, compact: bool, done: Merged) -> None:
    """Add to a run of the target what it lacks and the copies have; nothing that it has is replaced."""
    try:
        found = gather(known, copies, known.folder, compact)
        done.warnings += found.warnings
        if not found.added:
            return
        with locks.sole_owner(target, known.record.spec, lambda line: None, wait=False):
            if target.in_folder(known.folder) != known.record:
                raise Busy("another process has worked on this run")
            for name, content in found.files.items():
                write_atomically(known.folder / name, content)
            if found.record != known.record:
                target.save(found.record)
        done.added.append(f"added to {known.folder}: {', '.join(found.added)}")
    except Busy:
        done.lacking.append(f"not completed: {known.folder}, since a process is working on it")
    except CannotRead as error:
        finished = known.record.status == "done"
        (done.warnings if finished else done.lacking).append(f"not completed: {error}")


def _say_left_out(left_out: list[LeftOut], target: Store, done: Merged) -> None:
    """A line for each record not read or not believed: a warning where the target has the whole run."""
    for found in left_out:
        there = target.in_folder(target.root / "runs" / found.folder)
        whole = not found.lacking or (isinstance(there, RunRecord) and there.status == "done")
        (done.warnings if whole else done.lacking).append(f"left out: {found.reason}")


def _copy(best: Copy, found: Gathered, target: Store, compact: bool, done: Merged) -> None:
    """Bring a run over with what was gathered for it, the record last.

    What the target has of it under a damaged record is set aside before. Raises CannotRead.
    """
    place = target.folder(best.record.spec)
    try:
        target.load(best.record.spec)
    except DamagedRecord as error:
        done.warnings.append(f"{error}; kept as {target.set_aside(best.record.spec)}")
    done.warnings += found.warnings
    if not compact:
        for path in entries(best.folder, *FILES):
            if path.name not in found.files:
                write_atomically(place / path.name, content_of(path) or b"")
    elif PREDICTIONS not in found.files:
        try:
            content = _last(content_of(best.folder / PREDICTIONS) or b"", best.record)
            write_atomically(place / PREDICTIONS, content)
        except BROKEN_ARCHIVE as error:
            done.warnings.append(f"copied without predictions: {best.folder} ({error})")
    for name, content in found.files.items():
        write_atomically(place / name, content)
    target.save(found.record)


def _last(predictions: bytes, record: RunRecord) -> bytes:
    """Of a file of predictions those after the last task, and the true classes."""
    with np.load(io.BytesIO(predictions)) as arrays:
        return archive({name: arrays[name] for name in needed(record) if name in arrays})
