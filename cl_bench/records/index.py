"""An index of a results folder: what listings say of every run, read again only where its record has changed.

The records are the truth: the index may be deleted or broken at any time, and an entry counts only while the
record file is the one it was made from.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from cl_bench.config import Strict
from cl_bench.files import write_atomically
from cl_bench.records.metrics import final_accuracy
from cl_bench.records.record import RunRecord
from cl_bench.records.store import LeftOut, Store

VERSION: Literal[2] = 2
MORE_THAN_A_FILE = ("unreadable", "misplaced")  # states that depend on more than the record's file


@dataclass(frozen=True)
class Summary:
    """One run as a line of a listing."""

    folder: str
    run_id: str
    status: str  # what its record says: done, running, failed; or damaged, unreadable, misplaced
    tasks: int
    of: int  # tasks to learn; 0 where that is not known
    accuracy: float | None  # mean over tasks, after the last task learned
    label: str
    benchmark: str
    seed: str
    failure: str | None
    twin: str = ""  # the same for runs that are equal but for versions, precision and options


class _Entry(Strict):
    stamp: tuple[int, ...]
    summary: Summary


class _Index(Strict):
    version: Literal[2]
    runs: dict[str, _Entry]


_INDEX = TypeAdapter(_Index)


def summaries(store: Store) -> list[Summary]:
    """Every run with a record, by folder name.

    One whose record cannot be believed or read has that for its status, and the reason. Raises InputError
    where the results folder is none, CannotRead where it cannot be listed.
    """
    path = store.root / "index.json"
    known, found, summed = _read(path), {}, []
    for folder in store.folders():
        stamp = _stamp(folder / "record.json")
        old = known.get(folder.name)
        if old and stamp and old.stamp == stamp:
            found[folder.name] = old
        elif summary := _summary(store, folder):
            if stamp is None or summary.status in MORE_THAN_A_FILE:
                summed.append(summary)
                continue
            found[folder.name] = _Entry(stamp=stamp, summary=summary)
        else:
            continue
        summed.append(found[folder.name].summary)
    if found != known:
        with suppress(OSError):  # the next listing reads the records again
            write_atomically(path, _INDEX.dump_json(_Index(version=VERSION, runs=found)))
    return summed


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes with a file's content, or with who may read it."""
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return (facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino, facts.st_dev)


def _read(path: Path) -> dict[str, _Entry]:
    """The index, empty where there is none of this version."""
    try:
        return _INDEX.validate_json(path.read_bytes()).runs
    except (OSError, ValidationError):
        return {}


def _summary(store: Store, folder: Path) -> Summary | None:
    found = store.in_folder(folder)
    if found is None:
        return None
    if isinstance(found, LeftOut):
        return _left_out(found)
    spec = found.spec
    return Summary(
        folder=folder.name,
        run_id=spec.run_id(),
        status=found.status,
        tasks=len(found.tasks),
        of=spec.num_learned,
        accuracy=_accuracy(found),
        label=spec.label,
        benchmark=spec.benchmark_name(),
        seed=spec.seed_name(),
        failure=found.failure,
        twin=spec.twin_id(),
    )


def _accuracy(record: RunRecord) -> float | None:
    return final_accuracy(record.correct, record.test_sizes) if record.tasks else None


def _left_out(found: LeftOut) -> Summary:
    """What is known of a run whose record is not believed: its folder's name, and the specification in it."""
    method, _, run_id = found.folder.rpartition("-")
    spec, status = found.spec, "misplaced" if found.kind == "copy" else found.kind
    told = (spec.label, spec.benchmark_name(), spec.seed_name()) if spec else (method, "", "")
    of = spec.num_learned if spec else 0
    return Summary(found.folder, run_id, status, 0, of, None, *told, found.reason)
