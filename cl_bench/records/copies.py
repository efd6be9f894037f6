"""One run as several results folders have it: whether they agree, and what one lacks that others have."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_bench.errors import InputError
from cl_bench.records.record import RunRecord
from cl_bench.records.run_files import checkpoint_path
from cl_bench.records.sealed import seal

# of a task, the same on every machine; losses and digests may differ in last bits between processors
MUST_AGREE = (
    "classes", "correct", "correct_within_task", "training_images", "images_seen", "trainable_parameters",
    "stored_values",
)  # fmt: skip
# what None stands for lacking, with what goes along, in words. Not the other optional values: times, memory
# and `micro_batch` are of one execution, whose other times stand beside them.
OF_TASKS = {
    ("kept_losses",): "training losses",
    ("diagnosis", "diagnose_seconds"): "diagnosis",
    ("prediction_passes",): "passes at prediction",
}
OF_RUN = {("certificate", "certificate_seconds"): "certificate", ("duplicates",): "count of duplicates"}


@dataclass(frozen=True)
class Copy:
    """A run's record, and the folder that has it."""

    record: RunRecord
    folder: Path

    def progress(self) -> tuple[int, bool]:
        """How far the run went: tasks, and whether it is finished."""
        return len(self.record.tasks), self.record.status == "done"

    def rank(self) -> tuple:
        """The larger is preferred: further, with more files, then whatever no order of folders changes."""
        files = (checkpoint_path(self.folder, len(self.record.tasks)), self.folder / "predictions.npz")
        return *self.progress(), sum(map(os.path.exists, files)), seal(self.record)


def require_same(copies: Sequence[Copy]) -> None:
    """Raise InputError where two of these copies of a run have different results of one task."""
    longest = max(copies, key=lambda copy: len(copy.record.tasks))
    for copy in copies:
        if differs := _difference(copy.record, longest.record):
            same = "the same run with different results"
            why = f"{differs}; another machine or library version?"
            what_to_do = "nothing was copied, report them from separate folders or remove one"
            raise InputError(f"{copy.folder} and {longest.folder} are {same} ({why}); {what_to_do}")


def _difference(record: RunRecord, other: RunRecord) -> str | None:
    """What of the tasks that both have differs, the first of it; None where all that must agree does."""
    if record.test_sizes != other.test_sizes:
        return "numbers of test images"
    for number, (task, known) in enumerate(zip(record.tasks, other.tasks, strict=False), 1):
        for name in MUST_AGREE:
            if getattr(task, name) != getattr(known, name):
                return f"{name} of task {number}"
    return None


def completed(record: RunRecord, others: Sequence[RunRecord]) -> tuple[RunRecord, list[str]]:
    """The record with what it lacks and the first of the others has; and what that is, in words.

    The others are of the same run, and their results agree.
    """
    told: Counter[str] = Counter()
    tasks = []
    for index, task in enumerate(record.tasks):
        known = [other.tasks[index] for other in others if index < len(other.tasks)]
        changes, named = _lacking(task, known, OF_TASKS)
        told.update(named)
        tasks.append(task.model_copy(update=changes) if changes else task)
    changes, words = _lacking(record, others if record.status == "done" else (), OF_RUN)
    words += [f"{name} of {number_of_tasks(count)}" for name, count in told.items()]
    return record.model_copy(update={**changes, "tasks": tuple(tasks)}), words


def _lacking(own, others: Sequence, groups: dict[tuple[str, ...], str]) -> tuple[dict, list[str]]:
    """Values of the groups whose first `own` lacks, from the first other that has it; and their words."""
    changes: dict[str, Any] = {}
    words = []
    for names, called in groups.items():
        found = next((other for other in others if getattr(other, names[0]) is not None), None)
        if found is not None and getattr(own, names[0]) is None:
            changes |= {name: getattr(found, name) for name in names}
            words.append(called)
    return changes, words


def number_of_tasks(count: int) -> str:
    """Such as "1 task" or "2 tasks"."""
    return f"{count} task" if count == 1 else f"{count} tasks"
