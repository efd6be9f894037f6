"""A table before it is rendered: lines of cells under grouped headings, with ranks, marks and footnotes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cl_bench.console import size
from cl_bench.records import diagnosis, metrics
from cl_bench.records.metrics import Conventions
from cl_bench.report.rows import Row
from cl_bench.report.significance import LEVEL

COLUMNS = {
    "accuracy": ("Acc.", True),
    "forgetting": ("Forgetting", False),
    "incremental": ("Avg. inc. acc.", True),
    "transfer": ("BWT", True),
}
# what stands in a table where it is asked for, and is never ranked
COST_COLUMNS = {
    "passes": "Passes",
    "trained": "Trained values",
    "stored": "Stored values",
    "stored_per_task": "Stored per task",
    "stored_per_class": "Stored per class",
    "images": "Images",
    "seconds": "Seconds",
    "memory": "Peak memory",
    "keeps": "Keeps",  # words
}
MISSING = "–"


@dataclass
class Cell:
    """A number with its spread as text, a metric's in percent; or words.

    `value` is what it is ranked and sorted by, None where there is no number.
    """

    text: str = MISSING
    value: float | None = None
    rank: str = ""  # "best" or "second" of its column
    marks: str = ""  # letters of footnotes, or a star
    row: Row | None = None  # the runs behind it
    metric: str = ""
    count: int = 0  # of them, that the number is the mean of


@dataclass
class Line:
    """A row of a table.

    `quiet` ones (published numbers) stand under the row they belong to and are never ranked.
    """

    title: str
    cells: list[Cell]
    labels: Sequence[str] = ()
    rule: bool = False  # a line above it
    bound: bool = False  # an upper bound, never ranked
    quiet: bool = False


DIFFERENCE_HEADS = ("Row", "Benchmark", "Metric", "Difference", "95 % interval", "p (Holm)")
DIFFERENCE_WORDS = 3  # columns of words, before those of numbers


@dataclass
class Difference:
    """A row against the baseline of its table, on one benchmark: what `significance` found, in percent."""

    row: str
    column: str
    metric: str
    mean: float
    pairs: int
    p: float | None  # adjusted over the table; None where there are too few pairs
    interval: tuple[float, float] | None  # 95 %, over test images; None without stored predictions

    @classmethod
    def of(cls, row: str, column: str, metric: str, found) -> "Difference":
        """A `significance.Comparison` in percentage points; its p is adjusted later."""
        interval = found.interval and (100 * found.interval[0], 100 * found.interval[1])
        return cls(row, column, metric, 100 * found.mean, len(found.differences), None, interval)

    @property
    def span(self) -> str:
        """The interval as text."""
        if self.interval is None:
            return MISSING
        low, high = (metrics.signed_percent(end / 100) for end in self.interval)
        return f"[{low}, {high}]"

    @property
    def verdict(self) -> str:
        """The p value, or why there is none; one below the level has as many digits as show it."""
        if self.p is None:
            return "n too small"
        digits = 3
        while self.p < LEVEL <= float(f"{self.p:.{digits}f}"):
            digits += 1
        return f"{self.p:.{digits}f}" if self.p >= 0.0005 else "< 0.001"

    @property
    def words(self) -> list[str]:
        """A line under `DIFFERENCE_HEADS`."""
        mean = f"{metrics.signed_percent(self.mean / 100)} (n = {self.pairs})"
        return [self.row, self.column, self.metric, mean, self.span, self.verdict]


@dataclass
class Table:
    """Headings, lines and footnotes.

    `groups` are (title, metrics) over the number columns, `labels` headings of extra columns before them.
    """

    name: str
    title: str
    groups: list[tuple[str, list[str]]]
    lines: list[Line]
    notes: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    method_column: bool = True
    counted: bool = False  # a last column with the number of seeds
    baseline: str = ""  # the title of the row that others are compared with, unless they name another
    differences: list[Difference] = field(default_factory=list)

    @property
    def differences_title(self) -> str:
        """What stands above the differences."""
        base = f" to {self.baseline}" if self.baseline else ""
        return f"Differences{base} in percentage points"

    @property
    def heads(self) -> list[str]:
        """Headings of all columns, such as "Acc. ↑", under their benchmark's where there are several."""
        numbers = []
        for title, found in self.groups:
            above = f"{title} " if title and len(self.groups) > 1 else ""
            numbers += [above + heading(metric) for metric in found]
        return [*self.word_heads, *numbers, *(["n"] if self.counted else [])]

    @property
    def plain_heads(self) -> list[str]:
        """As `heads`, for renderings that print the benchmarks above."""
        numbers = [heading(metric) for _, found in self.groups for metric in found]
        return [*self.word_heads, *numbers, *(["n"] if self.counted else [])]

    @property
    def word_heads(self) -> list[str]:
        """Headings of the columns before the numbers."""
        return [*(["Method"] if self.method_column else []), *self.labels]

    def count(self, line: Line) -> list[str]:
        """The number of seeds of a line, where a column is for it."""
        return [str(len(line.cells[0].row.finished))] if self.counted else []

    def words(self, line: Line) -> list[str]:
        """What stands in the columns before the numbers."""
        first = [line.title] if self.method_column else []
        labels = list(line.labels) + [""] * (len(self.labels) - len(line.labels))
        if line.quiet and not self.method_column and labels:
            labels[0] = line.title
        return first + labels


def heading(metric: str) -> str:
    """Such as "Acc. ↑"; a cost and what a diagnosis measures have no arrow."""
    if metric in diagnosis.MEASURES:
        return metric.replace("_", " ")
    if metric in COST_COLUMNS:
        return COST_COLUMNS[metric]
    title, high = COLUMNS[metric]
    return f"{title} {'↑' if high else '↓'}"


def number(mean: float, spread: float | None) -> str:
    """Fractions as percent, such as "90.75 ± 0.63"."""
    return metrics.percent(mean) + (f" ± {metrics.percent(spread)}" if spread is not None else "")


def cost(metric: str, mean: float, spread: float | None) -> str:
    """Such as "12,345", "81.5 ± 0.3" or "919.13 MB"; where no run differs the spread is left out."""
    return " ± ".join(_cost(metric, value) for value in ([mean, spread] if spread else [mean]))


def _cost(metric: str, value: float) -> str:
    if metric == "memory":
        return size(value)
    return f"{value:,.1f}" if metric == "seconds" or value % 1 else f"{value:,.0f}"


def measure(mean: float, spread: float | None) -> str:
    """Three digits of what a diagnosis measures, such as "0.0123 ± 0.0004"."""
    if not mean:
        return "0"
    decimals = 2 - math.floor(math.log10(abs(mean)))
    digits = f",.{max(decimals, 0)}f" if -3 <= decimals <= 6 else ".1e"
    return " ± ".join(format(value, digits) for value in (mean, spread) if value is not None)


def cell(row: Row | None, metric: str, conventions: Conventions) -> Cell:
    """Mean ± sample standard deviation over the finished seeds; no number where there is none."""
    if metric == "keeps":
        return Cell((row and row.kept) or MISSING, row=row, metric=metric)
    values = row.values(metric, conventions) if row else []
    if not values:
        return Cell(row=row, metric=metric)
    mean, spread = metrics.mean_and_spread(values)
    if metric in diagnosis.MEASURES:
        text = measure(mean, spread)
    elif metric in COST_COLUMNS:
        text = cost(metric, mean, spread)
    else:
        text = number(mean, spread)
    return Cell(text, mean, row=row, metric=metric, count=len(values))


def rank(lines: Sequence[Line], decides: Callable[[Line], bool] = lambda line: True) -> None:
    """Mark best and second of every column by the printed mean; ties share a mark.

    A column with one number has none, and costs and what a diagnosis measures have none.
    """
    taking_part = [line for line in lines if not line.quiet and not line.bound and decides(line)]
    for column in zip(*(line.cells for line in taking_part), strict=True):
        cells = [found for found in column if found.value is not None and found.metric in COLUMNS]
        means = [float(metrics.percent(found.value)) for found in cells]
        if len(set(means)) < 2:
            continue
        ranked = sorted(set(means), reverse=COLUMNS[cells[0].metric][1])
        for found, mean in zip(cells, means, strict=True):
            found.rank = {ranked[0]: "best", ranked[1]: "second"}.get(mean, found.rank)
