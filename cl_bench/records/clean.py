"""Removes from a results folder what a user names.

Nothing that a process works on, that could go on, or that cannot be read is removed along with it.
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from cl_bench.errors import Busy, CannotRead, InputError
from cl_bench.records import file_lock, first_task_files, locks
from cl_bench.records.index import Summary, summaries
from cl_bench.records.sealed import DamagedRecord, content_of, entries, is_missing, read_record
from cl_bench.records.states import state_of_summary
from cl_bench.records.store import ASIDE, Store


@dataclass(frozen=True)
class Unwanted:
    """A folder to be removed, what it is, its size, and its record as it was then."""

    path: Path
    what: str
    size_bytes: int
    record: bytes | None = None


@dataclass
class Choice:
    """What is to be removed, and a line for each thing that is not though it was asked for."""

    unwanted: dict[Path, Unwanted] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)  # those that cannot be read

    def add(self, path: Path, what: str) -> None:
        """Put a folder on the list, or say that it cannot be read."""
        try:
            self.unwanted[path] = Unwanted(path, what, _size_bytes(path), content_of(path / "record.json"))
        except CannotRead as error:
            self.unreadable.append(str(error))


def choose(store: Store, runs: Sequence[str], failed: bool, damaged: bool, first_tasks: bool) -> Choice:
    """The runs named, failed ones without a finished task, what is damaged or set aside, stored first tasks.

    Raises InputError for a run that is not there or in use.
    """
    made = Choice()
    for run in runs:
        folder = store.find(run)
        if locks.is_held_by_name(store, folder.name):
            raise InputError(f"a process is working on the run {run!r}; stop it first")
        made.add(folder, f"run, {_finished_tasks(folder)}")
    for summary in summaries(store) if failed or damaged else ():
        _add_summary(made, store, summary, failed, damaged)
    if damaged:
        for path in entries(store.root / "runs", f"[!.]*{ASIDE}*"):
            made.add(path, f"set aside, {_finished_tasks(path)}")
    if first_tasks:
        for path in first_task_files.folders(store):
            if file_lock.is_taken(path / locks.WHOLE_FOLDER):
                made.kept.append(f"{path} is in use by a run")
            else:
                made.add(path, "shared first task")
    return made


def _add_summary(made: Choice, store: Store, summary: Summary, failed: bool, damaged: bool) -> None:
    state, reason = state_of_summary(store, summary)
    folder = store.root / "runs" / summary.folder
    what = f"{state} run {summary.label} {summary.benchmark} seed {summary.seed}".replace("  ", " ")
    if state == "unreadable":
        made.unreadable.append(reason or str(folder))
    elif failed and state == "failed" and summary.tasks:
        done = f"{summary.tasks} of {summary.of} tasks are finished, and `cl-bench run` goes on after them"
        made.kept.append(f"{what}: {done}; name {summary.run_id} to remove it all the same")
    elif (failed and state == "failed") or (damaged and state == "damaged"):
        made.add(folder, f"{what}, {_finished_tasks(folder)}")


def _finished_tasks(folder: Path) -> str:
    """How much of a run is finished, by the record in a folder of whatever name."""
    path = folder / "record.json"
    try:
        if is_missing(path):
            return "without a record"
        record = read_record(path)
    except (DamagedRecord, CannotRead) as error:
        return f"finished tasks unknown ({error})"
    return f"{len(record.tasks)} of {record.spec.num_learned} tasks finished"


def remove(store: Store, items: Sequence[Unwanted]) -> None:
    """Remove the folders.

    Raises InputError when one cannot be removed, is in use by now or has another record than when it was
    listed.
    """
    rest = "it and what follows were not removed"
    for item in items:
        is_run = item.path.parent == store.root / "runs"
        lock = locks.held(store, item.path.name, lambda line: None, wait=False) if is_run else nullcontext()
        try:
            with lock:
                if content_of(item.path / "record.json") != item.record:
                    raise InputError(f"{item.path} has changed since it was listed; {rest}")
                shutil.rmtree(item.path)
        except Busy:
            raise InputError(f"a process is working on {item.path}; {rest}") from None
        except OSError as error:
            raise InputError(f"cannot remove {item.path}: {error.strerror or error}") from error


def _size_bytes(path: Path) -> int:
    """Of all files in a folder. Raises CannotRead."""

    def refuse(error: OSError) -> None:
        raise CannotRead(error.filename or path, error)

    found = 0
    for folder, _, files in os.walk(path, onerror=refuse):
        found += sum(os.lstat(os.path.join(folder, name)).st_size for name in files)
    return found
