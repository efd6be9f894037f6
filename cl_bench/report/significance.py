"""Whether one row differs from another: exact tests over seeds with the same class order, intervals over the same test images."""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from cl_bench.errors import CannotRead
from cl_bench.records.metrics import Conventions
from cl_bench.records.record import RunRecord
from cl_bench.records.sealed import is_missing
from cl_bench.records.store import BROKEN_ARCHIVE, LeftOut, Store
from cl_bench.report.rows import Row

LEVEL = 0.05
RESAMPLES = 2_000  # for a 95 % interval; as many more as a level is stricter
EXACT_PAIRS = 20
HEADER = 128  # bytes before the numbers in a .npy file of a vector
MOST_CLASSES = 1 << 20  # a larger one among true classes is no class


@dataclass(frozen=True)
class Comparison:
    """A row minus a baseline as fractions, over the pairs of runs that learned the same classes in the same order from the same seeds."""

    differences: tuple[float, ...]
    p: (
        float | None
    )  # exact two-sided permutation test; None where no outcome of so few pairs could be significant
    interval: (
        tuple[float, float] | None
    )  # of the mean difference over these seeds, over test images; None without stored predictions

    @property
    def mean(self) -> float:
        """Mean difference."""
        return sum(self.differences) / len(self.differences)


def pairs(row: Row, baseline: Row) -> list[tuple[RunRecord, RunRecord]]:
    """Finished runs of both rows on the same benchmark with the same class order and seeds."""
    return [(record, baseline.paired[key]) for key, record in row.paired.items() if key in baseline.paired]


def compare(
    row: Row,
    baseline: Row,
    metric: str,
    conventions: Conventions,
    answers: tuple["Answers", "Answers"],
    level: float = LEVEL,
) -> Comparison | None:
    """None where no two runs can be paired, or the metric does not exist for them; `level` is what the interval leaves out."""
    found = pairs(row, baseline)
    values = [
        (row.value(own, metric, conventions), baseline.value(other, metric, conventions))
        for own, other in found
    ]
    differences = tuple(own - other for own, other in values if own is not None and other is not None)
    if not differences:
        return None
    interval = image_interval(found, answers, conventions, level) if metric == "accuracy" else None
    return Comparison(differences, permutation_p(differences), interval)


def permutation_p(differences: Sequence[float]) -> float | None:
    """P(|mean| at least this large) when every difference is as likely to have the other sign: over all 2^n signs up to 20 pairs, above over 2^20.

    None where even differences of one sign would not get below 0.05, that is for fewer than six pairs.
    """
    if 2.0 ** (1 - len(differences)) > LEVEL:
        return None
    sums, generator = np.zeros(1), np.random.default_rng(0)
    for place, difference in enumerate(differences):
        if place < EXACT_PAIRS:
            sums = np.concatenate([sums + difference, sums - difference])
        else:
            sums = sums + difference * generator.choice((-1, 1), len(sums))
    extreme = np.abs(sums) >= abs(sum(differences)) * (1 - 1e-9)
    if len(differences) <= EXACT_PAIRS:
        return float(extreme.mean())
    return float((extreme.sum() + 1) / (len(sums) + 1))  # the signs that came about are one of those drawn


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: the k-th smallest of m times (m - k + 1), never decreasing, at most 1."""
    order, adjusted, running = np.argsort(ps, kind="stable"), np.empty(len(ps)), 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, (len(ps) - place) * ps[index]))
        adjusted[index] = running
    return adjusted.tolist()


@dataclass(frozen=True)
class Answered:
    """A run's answers after its last task for every test image, (N,) each: right or wrong, the image's task (-1: none), its true class."""

    right: np.ndarray
    tasks: np.ndarray
    truth: np.ndarray
    _shares: dict = field(default_factory=dict)

    def weighted(self, convention: str) -> np.ndarray:
        """What each image adds to the final accuracy: a right one 1 / (tasks x images of its task) of the mean over tasks, or 1 / images."""
        if convention not in self._shares:
            self._shares[convention] = self._weighted(convention)
        return self._shares[convention]

    def _weighted(self, convention: str) -> np.ndarray:
        known = self.tasks >= 0
        sizes = np.bincount(self.tasks[known])
        weights = (
            1 / (len(sizes) * sizes) if convention == "task_mean" else np.full(len(sizes), 1 / known.sum())
        )
        return np.where(known & self.right, weights[self.tasks], 0.0)


class Answers:
    """The answers of the runs in a results folder, as far as they are stored; true classes that are the same are one array."""

    def __init__(self, store: Store):
        self._store, self._known, self._truths, self._tasks = store, {}, {}, {}
        self.left_out: list[LeftOut] = []  # predictions without which intervals are missing

    def __call__(self, record: RunRecord) -> Answered | None:
        """None where predictions or true classes are not stored, or are not what the counts say."""
        if id(record) not in self._known:
            answered = self._read(self._store.folder(record.spec) / "predictions.npz", record)
            self._known[id(record)] = (
                record,
                answered,
            )  # the record is kept, so that no other one gets its id
        return self._known[id(record)][1]

    def _read(self, path: Path, record: RunRecord) -> Answered | None:
        try:
            with (
                open(path, "rb") as file,
                zipfile.ZipFile(file) as arrays,
            ):  # what numpy.load reads, without its search for the kind of each file
                names = [name for name in arrays.namelist() if name.startswith("task_")]
                if "truth.npy" not in arrays.namelist():
                    return None
                answers, truth = _array(arrays, max(names)), self._truth(arrays)
        except OSError as error:
            return self._without(path, record, error)
        except BROKEN_ARCHIVE as error:
            return self._leave_out(
                LeftOut(
                    path,
                    "damaged",
                    f"{path} is damaged ({type(error).__name__}: {str(error)[:200]})",
                    record.spec,
                )
            )
        if (
            answers.shape != truth.shape
            or not truth.size
            or not 0 <= truth.min() <= truth.max() < MOST_CLASSES
        ):
            return self._leave_out(
                LeftOut(
                    path,
                    "damaged",
                    f"{path} has {answers.shape} answers to {truth.shape} images",
                    record.spec,
                )
            )
        key = (id(truth), record.spec.task_classes)
        if key not in self._tasks:
            self._tasks[key] = tasks_of(truth, record)
        tasks, right = self._tasks[key], answers == truth
        counts = np.bincount(tasks[right & (tasks >= 0)], minlength=len(record.test_sizes))
        if counts.tolist() != list(record.tasks[-1].correct):
            return self._leave_out(
                LeftOut(
                    path, "damaged", f"{path} does not hold the answers that its record counts", record.spec
                )
            )
        return Answered(right, tasks, truth)

    def _without(self, path: Path, record: RunRecord, error: OSError) -> None:
        """Predictions that were never kept lack nowhere; those that cannot be read do."""
        try:
            if isinstance(error, FileNotFoundError) and is_missing(path):
                return None
            raise CannotRead(path, error)
        except CannotRead as unread:
            return self._leave_out(LeftOut(path, "unreadable", str(unread), record.spec))

    def _leave_out(self, found: LeftOut) -> None:
        self.left_out.append(found)

    def _truth(self, arrays: zipfile.ZipFile) -> np.ndarray:
        """The true classes in a file; most runs share them, and the same checksum and size are the same array (the counts are checked with it)."""
        member = arrays.getinfo("truth.npy")
        key = (member.CRC, member.file_size)
        if key not in self._truths:
            self._truths[key] = _array(arrays, member.filename)
        return self._truths[key]


def _array(arrays: zipfile.ZipFile, name: str) -> np.ndarray:
    content = arrays.read(name)
    shape, dtype = _header(content[:HEADER])
    return np.frombuffer(content, dtype, offset=HEADER).reshape(shape)


@lru_cache(
    maxsize=64
)  # most files have the same one, which takes longer to understand than the numbers behind it
def _header(start: bytes) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of a vector of numbers from the first `HEADER` bytes of its .npy file. Raises ValueError for anything else."""
    file = io.BytesIO(start)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("not a .npy file of version 1.0")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if file.tell() != HEADER or dtype.kind not in "iu" or len(shape) != 1:
        raise ValueError("not a vector of integers")
    return shape, dtype


def tasks_of(truth: np.ndarray, record: RunRecord) -> np.ndarray:
    """The task of every test image, (N,); -1 for classes that the run does not learn."""
    found = np.full(int(max(truth.max(), *map(max, record.spec.task_classes))) + 1, -1)
    for index, classes in enumerate(record.spec.task_classes):
        found[list(classes)] = index
    return found[truth]


def image_interval(
    found: Sequence[tuple[RunRecord, RunRecord]],
    answers: tuple[Answers, Answers],
    conventions: Conventions,
    level: float = LEVEL,
) -> tuple[float, float] | None:
    """Percentile interval of the mean difference in final accuracy when the test images are drawn anew with replacement.

    Both runs of a pair, and all pairs, see the same drawn images; as many are drawn of every task as it has where all pairs have the same tasks,
    else of all tasks together. Drawing n of n images and summing their differences is drawing multinomial counts of the few values that a
    difference can have, which is what is done. None where predictions or true classes are not stored.
    """
    both = [(answers[0](own), answers[1](other)) for own, other in found]
    if any(side is None for pair in both for side in pair):
        return None
    first = both[0][0]
    if not all(
        side.truth is first.truth or np.array_equal(side.truth, first.truth) for pair in both for side in pair
    ):
        return None
    per_image = sum(
        own.weighted(conventions.accuracy) - other.weighted(conventions.accuracy) for own, other in both
    ) / len(found)
    if all(np.array_equal(own.tasks, first.tasks) for own, _ in both):
        strata = [per_image[first.tasks == task] for task in range(first.tasks.max() + 1)]
    else:
        strata = [per_image[np.all([own.tasks >= 0 for own, _ in both], axis=0)]]
    resamples = min(50_000, round(RESAMPLES * max(1.0, LEVEL / level)))
    generator, total = np.random.default_rng(0), np.zeros(resamples)
    for stratum in strata:
        values, counts = np.unique(np.round(stratum, 15), return_counts=True)
        total += generator.multinomial(len(stratum), counts / len(stratum), resamples) @ values
    low, high = np.quantile(total, [level / 2, 1 - level / 2])
    return float(low), float(high)
