"""Whether one row differs from another: exact tests over seeds with the same class order, intervals over the same test images."""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cl_bench.record import RunRecord
from cl_bench.report.select import MEASURES, Conventions, Row
from cl_bench.store import Store

LEVEL = 0.05
RESAMPLES = 10_000


@dataclass(frozen=True)
class Comparison:
    """A row minus a baseline as fractions, over the pairs of runs that learned the same classes in the same order from the same seeds."""

    differences: tuple[float, ...]
    p: float | None  # exact two-sided permutation test; None where no outcome of so few pairs could be significant
    interval: tuple[float, float] | None  # of the mean difference over these seeds, over test images; None without stored predictions

    @property
    def mean(self) -> float:
        """Mean difference."""
        return sum(self.differences) / len(self.differences)


def pairs(row: Row, baseline: Row) -> list[tuple[RunRecord, RunRecord]]:
    """Finished runs of both rows with the same class order and seeds."""
    others = {_pairing(record): record for record in baseline.ran}
    return [(record, others[_pairing(record)]) for record in row.ran if _pairing(record) in others]


def _pairing(record: RunRecord) -> tuple:
    spec = record.spec
    return spec.task_classes, spec.order_seed, spec.init_seed, spec.data_seed


def compare(
    row: Row, baseline: Row, metric: str, conventions: Conventions, answers: tuple["Answers", "Answers"], level: float = LEVEL
) -> Comparison | None:
    """None where no two runs can be paired, or the metric does not exist for them."""
    found = pairs(row, baseline)
    values = [(MEASURES[metric](own, conventions), MEASURES[metric](other, conventions)) for own, other in found]
    differences = tuple(own - other for own, other in values if own is not None and other is not None)
    if not differences:
        return None
    interval = image_interval(found, answers, conventions, level) if metric == "accuracy" else None
    return Comparison(differences, permutation_p(differences), interval)


def permutation_p(differences: Sequence[float]) -> float | None:
    """P(|mean| at least this large) when every difference is as likely to have the other sign, over all 2^n signs.

    None where even differences of one sign would not get below 0.05, that is for fewer than six pairs.
    """
    if 2.0 ** (1 - len(differences)) > LEVEL:
        return None
    from scipy.stats import permutation_test  # takes a while to import

    found = permutation_test(
        (np.array(differences), np.zeros(len(differences))),
        lambda own, other, axis: np.mean(own - other, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=2**16,  # all of them up to 16 pairs
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: the k-th smallest of m times (m - k + 1), never decreasing, at most 1."""
    order, adjusted, running = np.argsort(ps, kind="stable"), np.empty(len(ps)), 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, (len(ps) - place) * ps[index]))
        adjusted[index] = running
    return adjusted.tolist()


class Answers:
    """Predictions after the last task and true classes of the runs in a results folder, as far as they are stored."""

    def __init__(self, store: Store):
        self._store, self._known = store, {}

    def __call__(self, record: RunRecord) -> tuple[np.ndarray, np.ndarray] | None:
        """(right or wrong, true class) of every test image, (N,) each; None where that is not stored or is not what the counts say."""
        folder = self._store.folder(record.spec)
        if folder not in self._known:
            self._known[folder] = _read(folder / "predictions.npz", record)
        return self._known[folder]


def _read(path: Path, record: RunRecord) -> tuple[np.ndarray, np.ndarray] | None:
    try:
        with np.load(path) as arrays:
            answers, truth = arrays[max(name for name in arrays if name.startswith("task_"))], arrays["truth"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    if answers.shape != truth.shape:
        return None
    tasks, right = tasks_of(truth, record), answers == truth
    counts = np.bincount(tasks[right & (tasks >= 0)], minlength=len(record.test_sizes))
    return (right, truth) if counts.tolist() == list(record.correct[-1]) else None


def tasks_of(truth: np.ndarray, record: RunRecord) -> np.ndarray:
    """The task of every test image, (N,); -1 for classes that the run does not learn."""
    found = np.full(int(max(truth.max(), *map(max, record.spec.task_classes))) + 1, -1)
    for index, classes in enumerate(record.spec.task_classes):
        found[list(classes)] = index
    return found[truth]


def image_interval(
    found: Sequence[tuple[RunRecord, RunRecord]], answers: tuple[Answers, Answers], conventions: Conventions, level: float = LEVEL
) -> tuple[float, float] | None:
    """Percentile interval of the mean difference in final accuracy when the test images are drawn anew with replacement.

    Both runs of a pair, and all pairs, see the same drawn images; as many are drawn of every task as it has where all pairs have the same tasks,
    else of all tasks together. Drawing n of n images and summing their differences is drawing multinomial counts of the few values that a
    difference can have, which is what is done. None where predictions or true classes are not stored.
    """
    both = [(answers[0](own), answers[1](other)) for own, other in found]
    if any(side is None for pair in both for side in pair):
        return None
    truth = both[0][0][1]
    if any(not np.array_equal(side[1], truth) for pair in both for side in pair):
        return None
    tasks = np.stack([tasks_of(truth, own) for own, _ in found])  # (pairs, N)
    difference = np.stack([own[0].astype(np.int64) - other[0] for own, other in both])  # (pairs, N)
    per_image = (difference * _weights(tasks, conventions.accuracy)).sum(0) / len(found)
    if (tasks == tasks[0]).all():
        strata = [np.flatnonzero(tasks[0] == task) for task in range(tasks[0].max() + 1)]
    else:
        strata = [np.flatnonzero((tasks >= 0).all(0))]
    generator, total = np.random.default_rng(0), np.zeros(RESAMPLES)
    for stratum in strata:
        values, counts = np.unique(np.round(per_image[stratum], 15), return_counts=True)
        total += generator.multinomial(len(stratum), counts / len(stratum), RESAMPLES) @ values
    low, high = np.quantile(total, [level / 2, 1 - level / 2])
    return float(low), float(high)


def _weights(tasks: np.ndarray, convention: str) -> np.ndarray:
    """What an image counts in the accuracy: 1 / (tasks x images of its task) for the mean over tasks, 1 / images for all alike; 0 outside tasks."""
    weights = np.zeros(tasks.shape)
    for place, own in enumerate(tasks):
        known = own >= 0
        sizes = np.bincount(own[known])
        weights[place, known] = 1 / (len(sizes) * sizes[own[known]]) if convention == "task_mean" else 1 / known.sum()
    return weights
