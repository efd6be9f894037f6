"""A table before it is rendered: lines of cells under grouped headings, with ranks, marks and footnotes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cl_bench.records import metrics
from cl_bench.records.metrics import Conventions
from cl_bench.report.rows import Row

COLUMNS = {
    "accuracy": ("Acc.", True),
    "forgetting": ("Forgetting", False),
    "incremental": ("Avg. inc. acc.", True),
    "transfer": ("BWT", True),
}
MISSING = "–"


@dataclass
class Cell:
    """A number with its spread in percent as text; `value` is what it is ranked and sorted by, None where there is no number."""

    text: str = MISSING
    value: float | None = None
    rank: str = ""  # "best" or "second" of its column
    marks: str = ""  # letters of footnotes, or a star
    row: Row | None = None  # the runs behind it
    metric: str = ""


@dataclass
class Line:
    """A row of a table; `quiet` ones (published numbers) stand under the row they belong to and are never ranked."""

    title: str
    cells: list[Cell]
    labels: Sequence[str] = ()
    rule: bool = False  # a line above it
    bound: bool = False  # an upper bound, never ranked
    quiet: bool = False


@dataclass
class Difference:
    """A row against the baseline of its table, on one benchmark: what `significance` found, as text and numbers in percentage points."""

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
        return "–" if self.interval is None else f"[{self.interval[0]:+.2f}, {self.interval[1]:+.2f}]"

    @property
    def verdict(self) -> str:
        """The p value, or why there is none."""
        return "n too small" if self.p is None else f"{self.p:.3f}" if self.p >= 0.0005 else "< 0.001"


@dataclass
class Table:
    """Headings, lines and footnotes; `groups` are (title, metrics) over the number columns, `labels` headings of extra columns before them."""

    name: str
    title: str
    groups: list[tuple[str, list[str]]]
    lines: list[Line]
    notes: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    method_column: bool = True
    counted: bool = False  # a last column with the number of seeds
    baseline: str = ""
    differences: list[Difference] = field(default_factory=list)

    @property
    def heads(self) -> list[str]:
        """Headings of all columns, such as "Acc. ↑"; the benchmark stands in them where there are several."""
        own = [*(["Method"] if self.method_column else []), *self.labels]
        for title, found in self.groups:
            own += [
                f"{title} {heading(metric)}" if title and len(self.groups) > 1 else heading(metric)
                for metric in found
            ]
        return [*own, *(["n"] if self.counted else [])]

    @property
    def plain_heads(self) -> list[str]:
        """As `heads`, for renderings that print the benchmarks above."""
        own = [
            *(["Method"] if self.method_column else []),
            *self.labels,
            *(heading(metric) for _, found in self.groups for metric in found),
        ]
        return [*own, *(["n"] if self.counted else [])]

    def words(self, line: Line) -> list[str]:
        """What stands in the columns before the numbers."""
        first = [line.title] if self.method_column else []
        labels = list(line.labels) + [""] * (len(self.labels) - len(line.labels))
        if line.quiet and not self.method_column and labels:
            labels[0] = line.title
        return first + labels


def heading(metric: str) -> str:
    """Such as "Acc. ↑"."""
    title, high = COLUMNS[metric]
    return f"{title} {'↑' if high else '↓'}"


def number(mean: float, spread: float | None) -> str:
    """Fractions as percent, such as "90.75 ± 0.63"."""
    return metrics.percent(mean) + (f" ± {metrics.percent(spread)}" if spread is not None else "")


def cell(row: Row | None, metric: str, conventions: Conventions) -> Cell:
    """Mean ± sample standard deviation over the finished seeds; no number where there is none."""
    values = row.values(metric, conventions) if row else []
    if not values:
        return Cell(row=row, metric=metric)
    mean, spread = metrics.mean_and_spread(values)
    return Cell(number(mean, spread), mean, row=row, metric=metric)


def rank(lines: Sequence[Line], decides: Callable[[Line], bool] = lambda line: True) -> None:
    """Mark best and second of every column by the printed mean; ties share a mark, and a column with one number has none."""
    taking_part = [line for line in lines if not line.quiet and not line.bound and decides(line)]
    for column in zip(*(line.cells for line in taking_part), strict=True):
        means = {
            id(found): float(metrics.percent(found.value)) for found in column if found.value is not None
        }
        if not means:
            continue
        high = COLUMNS[column[0].metric][1]
        ranked = sorted(set(means.values()), reverse=high)
        for found in column:
            if len(ranked) > 1 and id(found) in means and means[id(found)] in ranked[:2]:
                found.rank = "best" if means[id(found)] == ranked[0] else "second"
