"""Removes from a results folder what a user names, and nothing that a process works on."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cl_bench import locks
from cl_bench.errors import InputError
from cl_bench.index import summaries
from cl_bench.status import state_of
from cl_bench.store import Store


@dataclass(frozen=True)
class Unwanted:
    """A folder to be removed, and what it is."""

    path: Path
    what: str

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())


def unwanted(store: Store, runs: Sequence[str], failed: bool, damaged: bool, first_tasks: bool) -> list[Unwanted]:
    """The runs named, all failed ones, what damage was set aside, stored first tasks. Raises InputError for a run that is not there or in use."""
    found = []
    for run in runs:
        folder = store.folder(store.find(run))
        if locks.is_held_by_name(store, folder.name):
            raise InputError(f"a process is working on the run {run!r}; stop it first")
        found.append(Unwanted(folder, "run"))
    for summary in summaries(store) if failed or damaged else ():
        state = state_of(store, summary)
        if (failed and state == "failed") or (damaged and state == "damaged"):
            found.append(Unwanted(store.root / "runs" / summary.folder, f"{state} run {summary.label} {summary.benchmark} seed {summary.seed}"))
    if damaged:
        found += [Unwanted(path, "set aside") for path in sorted((store.root / "runs").glob("*.damaged-*"))]
    if first_tasks:
        found += [Unwanted(path, "shared first task") for path in sorted((store.root / "first-tasks").glob("*")) if path.is_dir()]
    return list({item.path: item for item in found}.values())


def remove(items: Sequence[Unwanted]) -> None:
    """Remove the folders. Raises InputError when one cannot be."""
    for item in items:
        try:
            shutil.rmtree(item.path)
        except OSError as error:
            raise InputError(f"cannot remove {item.path}: {error.strerror or error}") from error
