"""Which figures a report has and what each of them shows; they are drawn while the tables are made."""

from collections.abc import Callable, Sequence
from pathlib import Path

from cl_bench.config import unknown
from cl_bench.errors import pointing_at
from cl_bench.records import metrics
from cl_bench.records.metrics import Conventions
from cl_bench.report.figures import workers
from cl_bench.report.lookup import Found
from cl_bench.report.rows import Benchmark, Panel, Row, is_number, sweep_rows
from cl_bench.report.spec import FigureLayout

MOST_ROWS, MOST_SWEEPS = 12, 3  # in a figure that nobody chose the rows of
LOSSES = "`cl-bench run --losses`, before it is finished"
NEEDS = {
    "losses": f"no run has followed its losses from its first task on ({LOSSES})",
    "diagnosis": "no run has measured this from its first task on (`cl-bench run --diagnose`)",
    "tradeoff": "fewer than two values of the option were run",
    "pretraining": "no backbone has both rows",
}


def panels(layout: FigureLayout, found: Found) -> list[Panel]:
    """The rows that each part of a figure shows.

    Raises InputError as `Found.grid`, and for a sweep over an option that no row has.
    """
    rows, made = found.grid(layout), []
    for place, column in enumerate(layout.columns):
        cells = [(wanted.title, line[place]) for wanted, line in zip(layout.rows, rows, strict=True)]
        named = [(title or row.title, row) for title, row in cells if row]
        if named:
            swept = found.places(column) if layout.kind == "tradeoff" else ()
            others = [row for benchmark in swept for row in benchmark.rows]
            made.append(Panel(column.heading, named, others))
    if layout.kind == "tradeoff":
        run_here = [row for panel in made for _, row in panel.rows if not row.imported]
        options = {key for row in run_here for key in row.spec.options}
        if options and layout.sweep not in options:
            raise unknown("option", layout.sweep, options, f"{layout.at}, sweep")
    return made


def of_layout(
    layout: FigureLayout, shown: Sequence[Panel], found: Found, folder: Path
) -> Callable[[], list[Path]]:
    """Begin to draw a figure that was asked for; what is returned waits for its files.

    There are none, with a warning, where no run has what it shows.
    """
    wait = _begin(layout.kind, layout.along, shown, found.conventions, folder / layout.name)

    def drawn() -> list[Path]:
        with pointing_at(layout.at):
            paths = wait()
        if not paths:
            reason = NEEDS.get(layout.kind, "no finished run to draw")
            found.warnings.append(f"{layout.name}: {reason}, not drawn")
        return paths

    return drawn


def of_benchmark(
    benchmark: Benchmark, conventions: Conventions, folder: Path
) -> list[Callable[[], list[Path]]]:
    """Begin to draw accuracy over the tasks, trade-offs over eta, and cost, of all rows of a benchmark.

    Each that is returned waits for its files.
    """
    rows, title = benchmark.finished_rows, benchmark.name
    if not rows:
        return []
    if len(rows) > MOST_ROWS:

        def accuracy(row: Row) -> float:
            values = row.values("accuracy", conventions)
            return metrics.mean_and_spread(values)[0] if values else -1.0  # not known

        title = f"{title}: the {MOST_ROWS} most accurate of {len(rows)}"
        rows = sorted(rows, key=accuracy, reverse=True)[:MOST_ROWS]
    named = [(row.title, row) for row in rows]
    starts, swept = _sweeps(rows, benchmark.rows)
    parts = {
        "accuracy": Panel(title, named),
        "tradeoff": Panel(title, starts, swept),
        "cost": Panel(title, named),
    }
    along = {"tradeoff": "eta", "cost": "seconds"}
    return [
        _begin(kind, along.get(kind, ""), [panel], conventions, folder / kind)
        for kind, panel in parts.items()
        if panel.rows
    ]


def _sweeps(rows: Sequence[Row], others: Sequence[Row]) -> tuple[list[tuple[str, Row]], list[Row]]:
    """The first rows that differ from others in eta alone, named, one a sweep; and all rows of the sweeps."""
    numeric = [row for row in others if not row.imported and is_number(row.spec.options.get("eta"))]
    starts, swept = [], {}
    for row in rows:
        if row in numeric and row not in swept and not row.joint and len(starts) < MOST_SWEEPS:
            found = sweep_rows(row, numeric, "eta")
            if len(found) > 1:
                swept |= dict.fromkeys(found)
                starts.append((row.display, row))
    return starts, list(swept)


def _begin(
    kind: str, along: str, shown: Sequence[Panel], conventions: Conventions, path: Path
) -> Callable[[], list[Path]]:
    # the process may have been started in another folder
    begun = workers.submit(kind, along, shown, conventions, path.absolute())
    return lambda: [path.with_name(drawn.name) for drawn in workers.result(begun)]
