"""Accuracy and forgetting as pure functions of integer counts, each convention under its own name.

`correct[t][j]` is the number of right answers on task j's test images after learning task t, among all
classes seen so far, so row t has t + 1 entries. A method that learns all classes at once has one row with an
entry for every task. All results are fractions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import truediv

Counts = Sequence[Sequence[int]]

ACCURACY_CONVENTIONS = {
    "task_mean": "mean over tasks of the accuracy on each (the formula of most papers)",
    "sample": "all right answers divided by all test images (what most public code prints)",
}
FORGETTING_CONVENTIONS = {
    "chaudhry": "mean over all but the last task of "
    "(best accuracy after any earlier task - final accuracy); may be negative",
    "max_including_last": "as chaudhry, but the best may be the final accuracy itself; never negative",
    "diagonal": "mean over all but the last task of (accuracy right after learning it - final accuracy)",
}


def accuracy_matrix(correct: Counts, test_sizes: Sequence[int]) -> list[list[float]]:
    """Fractions R[t][j] = correct[t][j] / test_sizes[j].

    Raises ValueError for rows of the wrong length (a transposed or square matrix), empty tasks, and counts
    outside 0..size.
    """
    return [list(row) for row in _matrix(tuple(map(tuple, correct)), tuple(test_sizes))]


@lru_cache(maxsize=16)  # the metrics of a run are asked for one after the other
def _matrix(
    correct: tuple[tuple[int, ...], ...], test_sizes: tuple[int, ...]
) -> tuple[tuple[float, ...], ...]:
    if not correct:
        raise ValueError("the accuracy matrix is empty: no task has been evaluated")
    joint = len(correct) == 1 and len(correct[0]) == len(test_sizes)
    for t, row in enumerate(correct):
        if len(row) != t + 1 and not joint:
            expected = f"expected {t + 1} (one per task seen); is it transposed?"
            raise ValueError(f"row {t + 1} of the accuracy matrix has {len(row)} entries, {expected}")
    if len(correct[-1]) > len(test_sizes):
        raise ValueError(f"{len(correct[-1])} tasks evaluated but {len(test_sizes)} test sizes given")
    if any(size < 1 for size in test_sizes):
        raise ValueError(f"every task needs at least one test image, got sizes {list(test_sizes)}")
    for row in correct:
        for j, (count, size) in enumerate(zip(row, test_sizes, strict=False), 1):
            if not 0 <= count <= size:
                raise ValueError(f"{count} right answers out of {size} test images of task {j}")
    return tuple(tuple(map(truediv, row, test_sizes)) for row in correct)


def accuracy_curve(correct: Counts, test_sizes: Sequence[int], convention: str = "task_mean") -> list[float]:
    """Average accuracy over the tasks seen, after learning each."""
    matrix = accuracy_matrix(correct, test_sizes)
    _known(convention, ACCURACY_CONVENTIONS)
    if convention == "task_mean":
        return [sum(row) / len(row) for row in matrix]
    return [sum(row) / sum(test_sizes[: len(row)]) for row in correct]


def accuracy_after(
    correct: Counts, test_sizes: Sequence[int], task: int, convention: str = "task_mean"
) -> float:
    """Average accuracy over the tasks seen after learning `task` (0-based)."""
    return accuracy_curve(correct, test_sizes, convention)[task]


def final_accuracy(correct: Counts, test_sizes: Sequence[int], convention: str = "task_mean") -> float:
    """A_T: average accuracy after the last task."""
    return accuracy_after(correct, test_sizes, len(correct) - 1, convention)


def average_incremental_accuracy(
    correct: Counts, test_sizes: Sequence[int], convention: str = "task_mean"
) -> float:
    """Mean over t of the average accuracy after task t."""
    return sum(accuracy_curve(correct, test_sizes, convention)) / len(correct)


def forgetting(correct: Counts, test_sizes: Sequence[int], convention: str = "chaudhry") -> float | None:
    """Average forgetting after the last task; None for one task, or all classes learned at once."""
    matrix = accuracy_matrix(correct, test_sizes)
    _known(convention, FORGETTING_CONVENTIONS)
    last = len(matrix) - 1
    if last == 0:
        return None
    drops = []
    for j in range(last):
        end = {"chaudhry": last, "max_including_last": last + 1, "diagonal": j + 1}[convention]
        drops.append(max(matrix[t][j] for t in range(j, end)) - matrix[last][j])
    return sum(drops) / last


def backward_transfer(correct: Counts, test_sizes: Sequence[int]) -> float | None:
    """Mean over all but the last task of (final accuracy - accuracy right after learning it).

    None where `forgetting` is None.
    """
    drop = forgetting(correct, test_sizes, "diagonal")
    return None if drop is None else -drop


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1); None for the spread of a single value."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5


def percent(fraction: float) -> str:
    """With two decimals, ties rounded away from zero.

    A value of counts that lies on a tie is one, whatever the last bits of its sum.
    """
    text = f"{100 * fraction + math.copysign(1e-9, fraction):.2f}"
    return text.lstrip("-") if float(text) == 0 else text


def signed_percent(fraction: float) -> str:
    """As `percent`, with a plus where it is not negative: a difference such as "+0.13" or "+0.00"."""
    text = percent(fraction)
    return text if text.startswith("-") else f"+{text}"


def _known(convention: str, conventions: dict[str, str]) -> None:
    if convention not in conventions:
        raise ValueError(f"unknown convention {convention!r}, expected one of {', '.join(conventions)}")


@dataclass(frozen=True)
class Conventions:
    """Which definition of accuracy and of forgetting a report prints."""

    accuracy: str = "task_mean"
    forgetting: str = "chaudhry"


MEASURES = {
    "accuracy": lambda r, c: final_accuracy(r.correct, r.test_sizes, c.accuracy),
    "forgetting": lambda r, c: forgetting(r.correct, r.test_sizes, c.forgetting),
    "incremental": lambda r, c: (
        None if r.spec.joint else average_incremental_accuracy(r.correct, r.test_sizes, c.accuracy)
    ),
    "transfer": lambda r, c: backward_transfer(r.correct, r.test_sizes),
}
