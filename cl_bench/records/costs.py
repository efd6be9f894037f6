"""What a run cost and what it keeps, as functions of its record; None where the record does not say."""

from collections.abc import Callable
from dataclasses import dataclass

from cl_bench.records.record import RunRecord


@dataclass(frozen=True)
class Cost:
    """One number of a finished run, and what it counts."""

    of: Callable[[RunRecord], float | None]
    meaning: str


def stored_per_task(record: RunRecord) -> float | None:
    """Values by which what is kept grows with a task: (s_T - s_1) / (T - 1), s_t those kept after task t.

    None for one task, or all classes learned at once.
    """
    return _growth(record) / (len(record.tasks) - 1) if len(record.tasks) > 1 else None


def stored_per_class(record: RunRecord) -> float | None:
    """The same growth over the classes of tasks 2 to T; None where `stored_per_task` is None."""
    classes = sum(len(task.classes) for task in record.tasks[1:])
    return _growth(record) / classes if classes else None


def _growth(record: RunRecord) -> int:
    return record.tasks[-1].stored_values - record.tasks[0].stored_values


COSTS = {
    "passes": Cost(
        lambda record: record.tasks[-1].prediction_passes,
        "forward passes of one image through the network at prediction after the last task, "
        "a query for its un-prompted features included; – where a run's record is older than this number",
    ),
    "trained": Cost(
        lambda record: record.tasks[-1].trainable_parameters, "parameters that are trained in the last task"
    ),
    "stored": Cost(
        lambda record: record.tasks[-1].stored_values, "numbers kept besides the backbone after the last task"
    ),
    "stored_per_task": Cost(
        stored_per_task, "growth of the stored values after the first task, over the tasks that follow it"
    ),
    "stored_per_class": Cost(
        stored_per_class, "growth of the stored values after the first task, over the classes that follow it"
    ),
    "images": Cost(
        lambda record: sum(task.images_seen for task in record.tasks),
        "images that pass through the network while all tasks are learned, each as often as it passes",
    ),
    "seconds": Cost(lambda record: sum(task.learn_seconds for task in record.tasks), "of learning all tasks"),
    "memory": Cost(
        lambda record: max(task.peak_memory_bytes for task in record.tasks), "the largest over the tasks"
    ),
}
