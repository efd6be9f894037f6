"""What one copy of a run lacks, of its record and of the files beside it, gathered from other copies."""

import hashlib
import io
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cl_bench.errors import CannotRead
from cl_bench.records.copies import Copy, completed, number_of_tasks
from cl_bench.records.record import RunRecord
from cl_bench.records.run_files import checkpoint_path
from cl_bench.records.sealed import content_of, is_missing
from cl_bench.records.store import BROKEN_ARCHIVE

PREDICTIONS = "predictions.npz"
BESIDE = ("spec.json", "log.txt")  # brought where there is none


@dataclass
class Gathered:
    """A run's completed record, the files to write beside it by name, and lines about both."""

    record: RunRecord
    files: dict[str, bytes] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)  # what the copy lacked, in words
    warnings: list[str] = field(default_factory=list)


def gather(own: Copy, others: Sequence[Copy], place: Path, compact: bool) -> Gathered:
    """What a copy of a run lacks and others have; of predictions and checkpoints those that its record names.

    `place` is the run's folder in the target, whose files count whole; `compact` takes of other folders only
    the last predictions and the true classes. Raises CannotRead for files of the copy and of the target.
    """
    if not others:
        return Gathered(own.record)
    record, words = completed(own.record, [other.record for other in others])
    found = Gathered(record, added=words)
    for other in others:
        certificate = other.record.certificate
        if certificate is not None and certificate != record.certificate:
            what = f"the certificate of {other.folder} is another than that of {own.folder}"
            found.warnings.append(f"{what}, which is kept")
    files = _Files(own, place, compact)
    for other in others:
        try:
            files.take(other)
        except CannotRead as error:
            if other.folder == place:
                raise
            found.warnings.append(f"left out: {error}")
    found.files = files.found
    found.added += files.words()
    found.warnings += files.strangers()
    return found


class _Files:
    """The files beside one copy of a run, as others complete them."""

    def __init__(self, own: Copy, place: Path, compact: bool):
        self._own, self._place, self._compact = own, place, compact
        self._tasks = own.record.tasks
        self._named = {f"task_{t:03d}": task.predictions_sha256 for t, task in enumerate(self._tasks, 1)}
        self._checkpoint = checkpoint_path(own.folder, len(self._tasks))
        self._has_checkpoint = compact or not self._tasks or not is_missing(self._checkpoint)
        self._predictions = self._read(own)
        self._brought = 0
        self._seen: dict[Path, set[str]] = {}  # what other folders have, by the names of predictions and file
        self.found: dict[str, bytes] = {}

    def take(self, other: Copy) -> None:
        """Bring what is still lacking and this copy has. Raises CannotRead."""
        self._seen[other.folder] = set()
        if lacking := self._lacking():
            self._take_predictions(other, lacking)
        if not self._has_checkpoint and len(other.record.tasks) == len(self._tasks):
            self._take_checkpoint(other)
        for name in self._lacking_beside():
            if (content := content_of(other.folder / name)) is not None:
                self.found[name] = content

    def words(self) -> list[str]:
        """What was brought."""
        after = [f"predictions after {number_of_tasks(self._brought)}"] if self._brought else []
        checkpoint = ["checkpoint"] if self._checkpoint.name in self.found else []
        return after + checkpoint + [name for name in BESIDE if name in self.found]

    def strangers(self) -> list[str]:
        """A line for each folder with predictions or a checkpoint in place of lacking ones, not named."""
        lines, lacking = [], {*self._lacking(), *(() if self._has_checkpoint else (self._checkpoint.name,))}
        for folder, names in self._seen.items():
            if there := names & lacking:
                what = ["checkpoint"] if self._checkpoint.name in there else []
                what = (["predictions"] if there - {self._checkpoint.name} else []) + what
                unlike = f"those that the record in {self._own.folder} names"
                lines.append(f"left out: {' and '.join(what)} of {folder}, not {unlike}")
        return lines

    def _read(self, copy: Copy) -> dict[str, np.ndarray]:
        found = arrays(content_of(copy.folder / PREDICTIONS) or b"")
        if self._compact and copy.folder != self._place:
            return {name: values for name, values in found.items() if name in needed(self._own.record)}
        return found

    def _lacking(self) -> list[str]:
        """The names of predictions that the record names and that are not there."""
        return [name for name in self._named if not self._is_named(name, self._predictions)]

    def _lacking_beside(self) -> list[str]:
        if self._compact:
            return []
        return [name for name in BESIDE if name not in self.found and is_missing(self._own.folder / name)]

    def _is_named(self, name: str, found: dict[str, np.ndarray]) -> bool:
        return name in found and hashlib.sha256(found[name].tobytes()).hexdigest() == self._named[name]

    def _take_predictions(self, other: Copy, lacking: list[str]) -> None:
        found = self._read(other)
        self._seen[other.folder] |= set(found) - {"truth"}
        more = {name: found[name] for name in lacking if self._is_named(name, found)}
        if more:
            truth = {"truth": found["truth"]} if "truth" in found else {}
            self._predictions = {**truth, **self._predictions, **more}
            self._brought += len(more)
            self.found[PREDICTIONS] = archive(self._predictions)

    def _take_checkpoint(self, other: Copy) -> None:
        name, named = self._checkpoint.name, self._tasks[-1].checkpoint_sha256
        if is_missing(other.folder / name):
            return
        self._seen[other.folder].add(name)
        if other.record.tasks[-1].checkpoint_sha256 == named:
            content = content_of(other.folder / name) or b""
            if hashlib.sha256(content).hexdigest() == named:
                self.found[name], self._has_checkpoint = content, True


def needed(record: RunRecord) -> tuple[str, str]:
    """Names of the arrays of predictions that reports read: after the last task, and the true classes."""
    return f"task_{len(record.tasks):03d}", "truth"


def arrays(predictions: bytes) -> dict[str, np.ndarray]:
    """The arrays in a file of predictions by name, as far as they can be read."""
    found = {}
    with suppress(*BROKEN_ARCHIVE), np.load(io.BytesIO(predictions)) as file:
        for name in file.files:
            with suppress(*BROKEN_ARCHIVE):
                found[name] = file[name]
    return found


def archive(predictions: dict[str, np.ndarray]) -> bytes:
    """The content of a file of predictions; the same for the same arrays."""
    content = io.BytesIO()
    ordered: dict[str, Any] = dict(sorted(predictions.items()))
    np.savez_compressed(content, **ordered)
    return content.getvalue()
