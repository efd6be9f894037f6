"""What a table must say of its own rows: training that brings nothing, and bounds that are none."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from cl_bench.records import metrics
from cl_bench.records.metrics import Conventions
from cl_bench.records.record import RunRecord
from cl_bench.report import significance
from cl_bench.report.answers import Answered
from cl_bench.report.rows import Row

Asked = Callable[[RunRecord], Answered | None]


def unknown(record: RunRecord) -> None:
    """Where no predictions are at hand, and differences have no interval."""


@dataclass(frozen=True)
class Gap:
    """The accuracy of a row minus that of another, in points as they are printed.

    `interval` has 95 %, over test images; None without stored predictions. `over` says of what it is the mean
    where that is not all seeds of both rows, each with its partner.
    """

    other: str
    mean: float
    interval: tuple[float, float] | None
    over: str = ""

    @property
    def above(self) -> bool:
        """Whether the whole interval is above zero; without one, the difference."""
        return (self.interval[0] if self.interval else self.mean) > 0

    @property
    def level(self) -> bool:
        """Whether zero is in the interval; without one, whether it is the difference."""
        low, high = self.interval or (self.mean, self.mean)
        return low <= 0 <= high

    def __str__(self) -> str:
        span = ""
        if self.interval:
            low, high = self.interval
            span = f", 95 % interval over test images {low:+.2f} to {high:+.2f}"
        return f"{self.other} ({self.mean:+.2f}{self.over}{span})"


def of_column(
    rows: Sequence[Row], bounds: Collection[Row], conventions: Conventions, answers: Asked, where: str = ""
) -> list[str]:
    """A sentence for each row that trains nothing and is level with, or above, one that is trained.

    And one for each of the `bounds` that lies below a method. `where` is its column in a table of several.
    """
    ran = [row for row in rows if row.ran]
    methods, told = [row for row in ran if row not in bounds], []
    for row in ran:
        rivals = [other for other in methods if row in bounds or (other.trains and not row.trains)]
        gaps = [gap for other in rivals if (gap := _gap(row, other, conventions, answers))]
        if row in bounds:
            parts = {"is marked as a bound and lies below": [gap for gap in gaps if gap.mean < 0]}
        else:
            above, level = ([gap for gap in gaps if getattr(gap, kind)] for kind in ("above", "level"))
            parts = {"trains nothing and is above": above, "trains nothing and is level with": level}
        for what, found in parts.items():
            if found:
                told.append(f"{row.name} {what} {'; '.join(map(str, found))}{where}.")
    return told


def _gap(row: Row, other: Row, conventions: Conventions, answers: Asked) -> Gap | None:
    """Over pairs of runs with the same class order and seeds, or of the means.

    Of the means, as the table prints them, where there are no pairs, or where only some seeds have a partner
    and those say another order. None for rows on other images or with another backbone.
    """
    if row.spec.benchmark_id() != other.spec.benchmark_id():
        return None
    own, theirs = (metrics.mean_and_spread(one.values("accuracy", conventions))[0] for one in (row, other))
    means = _points(own) - _points(theirs)
    found = significance.compare(row, other, "accuracy", conventions, (answers, answers))
    if found:
        pairs, seeds = len(found.differences), [*dict.fromkeys((len(row.ran), len(other.ran)))]
        mean, complete = _points(found.mean), seeds == [pairs]
        if complete or mean * means > 0 or mean == means == 0:
            ends = found.interval and tuple(_points(end) for end in found.interval)
            over = "" if complete else f" over {pairs} of {' and '.join(map(str, seeds))} seeds"
            return Gap(other.name, mean, ends, over)
    return Gap(other.name, means, None, " of the means, not paired")


def _points(fraction: float) -> float:
    return float(metrics.percent(fraction))
