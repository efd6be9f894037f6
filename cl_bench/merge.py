"""Brings the runs of several results folders together, whole or compact, without ever replacing a result by another one."""

import io
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cl_bench import imported
from cl_bench.errors import InputError
from cl_bench.record import RunRecord
from cl_bench.store import UNREADABLE, Store, write_atomically

FILES = ("spec.json", "predictions.npz", "log.txt", "checkpoint-*.safetensors")  # of a run, copied before the record that vouches for them


@dataclass(frozen=True)
class Merged:
    """What happened: runs copied, runs the target had already (the same or further), and a line for each that was left out."""

    copied: int
    kept: int
    warnings: list[str]


def merge(target: Store, sources: list[Store], compact: bool) -> Merged:
    """Copy every run of the sources that the target lacks or has less of; imported matrices too.

    `compact` takes finished runs only, and of each its record, its last predictions and the true classes: all that reports need. Raises InputError,
    before anything is copied, when two folders hold different results of one run.
    """
    best: dict[str, tuple[RunRecord, Path]] = {}
    here = _runs(target, warnings := [])
    for store in sources:
        if not store.root.is_dir():
            raise InputError(f"there is no results folder {store.root}")
        for run_id, found in _runs(store, warnings).items():
            if compact and found[0].status != "done":
                warnings.append(f"left out: {found[1]} is not finished")
            elif run_id not in best or _further(found, best[run_id]):
                best[run_id] = found
    wanted = {run_id: found for run_id, found in best.items() if run_id not in here or _further(found, here[run_id])}
    others = [(record, store) for store in sources for record in imported.records(store.root)]
    for record, store in others:
        for root in (target.root, *(source.root for source in sources if source is not store)):
            imported.require_same(record, root)
    target.prepare()
    try:
        for record, folder in wanted.values():
            _copy(record, folder, target, compact, warnings)
        for record, _ in others:
            imported.save(record, target.root)
    except OSError as error:
        raise InputError(f"cannot write {target.root}: {error.strerror or error}; free space and repeat the command") from error
    return Merged(len(wanted), len(best) - len(wanted), warnings)


def _runs(store: Store, warnings: list[str]) -> dict[str, tuple[RunRecord, Path]]:
    found = {}
    for record in store.records():
        if isinstance(record, RunRecord):
            found[record.spec.run_id()] = (record, store.folder(record.spec))
        else:
            warnings.append(f"left out: {record[1]}")
    return found


def _further(found: tuple[RunRecord, Path], other: tuple[RunRecord, Path]) -> bool:
    """Whether a record goes beyond another one of the same run. Raises InputError when they contradict each other."""
    (record, folder), (known, place) = found, other
    both = min(len(record.tasks), len(known.tasks))
    if [task.correct for task in record.tasks[:both]] != [task.correct for task in known.tasks[:both]]:
        raise InputError(
            f"{folder} and {place} are the same run with different results (another machine or library version?); "
            "nothing was copied, report them from separate folders or remove one"
        )
    return (len(record.tasks), record.status == "done") > (len(known.tasks), known.status == "done")


def _copy(record: RunRecord, folder: Path, target: Store, compact: bool, warnings: list[str]) -> None:
    place = target.folder(record.spec)
    place.mkdir(parents=True, exist_ok=True)
    if compact:
        try:
            with np.load(folder / "predictions.npz") as arrays:
                last = f"task_{len(record.tasks):03d}"
                kept = {name: arrays[name] for name in (last, "truth") if name in arrays}
            content = io.BytesIO()
            np.savez_compressed(content, **kept)
            write_atomically(place / "predictions.npz", content.getvalue())
        except UNREADABLE as error:
            warnings.append(f"copied without predictions: {folder} ({error})")
    else:
        for pattern in FILES:
            for path in sorted(folder.glob(pattern)):
                shutil.copyfile(path, place / path.name)
    target.save(record)
