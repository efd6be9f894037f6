"""Differences of a table's rows to its baseline, or to the row that a row names."""

from collections.abc import Sequence

from cl_bench.report import significance
from cl_bench.report.group_rows import standing
from cl_bench.report.lookup import Found
from cl_bench.report.rows import Row
from cl_bench.report.spec import TableLayout
from cl_bench.report.table import COLUMNS, Cell, Difference, Table, heading


def add(layout: TableLayout, grid: Sequence[Sequence[Row | None]], found: Found, made: Table) -> None:
    """Every row that has a baseline against it on every benchmark; a significant number gets a star.

    p values are adjusted over the whole table.
    """
    ours = [line for line in made.lines if not line.quiet]
    usual = standing(layout.rows, layout.baseline) if layout.baseline else None
    made.baseline = "" if usual is None else ours[usual].title
    compared: list[tuple[Cell, float | None, Difference]] = []
    for place, wanted in enumerate(layout.rows):
        base = standing(layout.rows, wanted.against, wanted.at) if wanted.against else usual
        if base is None or place == base or (ours[place].bound and not wanted.against):
            continue
        name = ours[place].title + (f", against {ours[base].title}" if wanted.against else "")
        for index, column in enumerate(layout.columns):
            row, baseline = grid[place][index], grid[base][index]
            if row is None or baseline is None:
                continue
            _warn_of_other_orders(layout.name, row, baseline, found)
            if row.ran and baseline.ran and not significance.pairs(row, baseline):
                names = f"{row.title} and {ours[base].title} on {column.heading}"
                found.warnings.append(f"{layout.name}: no two runs of {names} share order and seeds")
            cells = ours[place].cells[index * len(layout.metrics) :]
            for cell_, metric in zip(cells, layout.metrics, strict=False):
                if metric not in COLUMNS:
                    continue
                both = (found.answers, found.answers)
                result = significance.compare(row, baseline, metric, found.conventions, both)
                if result:
                    difference = Difference.of(name, column.heading, heading(metric), result)
                    compared.append((cell_, result.p, difference))
    made.differences += [difference for *_, difference in compared]
    tested = [(cell_, p, difference) for cell_, p, difference in compared if p is not None]
    for (cell_, _, difference), p in zip(tested, significance.holm([p for _, p, _ in tested]), strict=True):
        difference.p = p
        cell_.marks += "*" if p < significance.LEVEL else ""


def _warn_of_other_orders(where: str, row: Row, baseline: Row, found: Found) -> None:
    """One line where seeds of one name learned the classes in different orders, which cannot be paired."""
    others = {record.spec.seed_name(): record.spec.task_classes for record in baseline.ran}
    seeds = []
    for record in row.ran:
        name, classes = record.spec.seed_name(), record.spec.task_classes
        if others.get(name, classes) != classes:
            seeds.append(name)
    if seeds:
        rows = f"{', '.join(seeds)} of {row.title} and {baseline.title}"
        found.warnings.append(f"{where}: seeds {rows} have different class orders and are not paired")
