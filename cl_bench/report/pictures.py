"""Figures are drawn in other processes while the tables are made: importing matplotlib and drawing is half the time of a report."""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from cl_bench import metrics
from cl_bench.errors import RunFailed
from cl_bench.report.found import Found
from cl_bench.report.layout import FigureLayout
from cl_bench.report.select import Benchmark, Conventions, Panel, sweep_rows

PROCESSES = 4  # at most
MOST_ROWS, MOST_SWEEPS = 12, 3  # in a figure that nobody chose the rows of
NEEDS = {
    "losses": "no run has followed its losses from its first task on (`cl-bench run --losses`, before it is finished)",
    "tradeoff": "fewer than two values of the option were run",
    "pretraining": "no backbone has both rows",
}


def prepare() -> None:
    """Let a process import what drawing needs, while this one reads the records."""
    _submit()


def panels(layout: FigureLayout, found: Found) -> list[Panel]:
    """The rows that each part of a figure shows. Raises InputError as `Found.grid`."""
    rows, made = found.grid(layout), []
    for place, column in enumerate(layout.columns):
        named = [(wanted.title or line[place].title, line[place]) for wanted, line in zip(layout.rows, rows, strict=True) if line[place]]
        if named:
            swept = found.places(column) if layout.kind == "tradeoff" else ()
            others = [row for benchmark in swept for row in benchmark.rows]
            made.append(Panel(column.heading, named, others))
    return made


def of_layout(layout: FigureLayout, shown: Sequence[Panel], found: Found, folder: Path) -> Callable[[], list[Path]]:
    """Begin to draw a figure that was asked for. What is returned waits for its files: none, with a warning, where no run has what it shows."""
    wait = _begin(layout.kind, layout.sweep, shown, found.conventions, folder / layout.name)

    def drawn() -> list[Path]:
        paths = wait()
        if not paths:
            found.warnings.append(f"{layout.name}: {NEEDS.get(layout.kind, 'no finished run to draw')}, not drawn")
        return paths

    return drawn


def of_benchmark(benchmark: Benchmark, conventions: Conventions, folder: Path) -> list[Callable[[], list[Path]]]:
    """Begin to draw accuracy over the tasks, trade-offs over eta, and cost, of all rows of a benchmark; each that is returned waits for its files."""
    rows, title = benchmark.finished_rows, benchmark.name
    if not rows:
        return []
    if len(rows) > MOST_ROWS:
        by_accuracy = sorted(rows, key=lambda row: -metrics.mean_and_spread(row.values("accuracy", conventions))[0])
        rows, title = by_accuracy[:MOST_ROWS], f"{title}: the {MOST_ROWS} most accurate of {len(rows)}"
    named, starts, swept = [(row.title, row) for row in rows], [], {}
    for row in rows:
        found = [] if row.imported or row.joint or len(starts) == MOST_SWEEPS or id(row) in swept else sweep_rows(row, benchmark.rows, "eta")
        if len(found) > 1:
            swept |= {id(other): other for other in found}
            starts.append((row.display, row))
    parts = {"accuracy": Panel(title, named), "tradeoff": Panel(title, starts, list(swept.values())), "cost": Panel(title, named)}
    return [_begin(kind, "eta", [panel], conventions, folder / kind) for kind, panel in parts.items() if panel.rows]


def _begin(*arguments) -> Callable[[], list[Path]]:
    begun = _submit(*arguments)
    return lambda: _result(begun)


def _submit(*arguments) -> Future:
    try:
        return _pool().submit(_draw, *arguments)
    except BrokenProcessPool:  # its process was ended from outside since; a new pool starts a new one
        _pool.cache_clear()
        return _pool().submit(_draw, *arguments)


def _draw(*arguments) -> list[Path]:
    from cl_bench.report import draw

    return draw.files(*arguments) if arguments else []


def _result(begun: Future) -> list[Path]:
    try:
        return begun.result()
    except BrokenProcessPool as error:
        _pool.cache_clear()
        raise RunFailed(
            "the process that draws the figures ended early: too little memory, or a script without `if __name__ == '__main__':`"
        ) from error


@cache
def _pool() -> ProcessPoolExecutor:
    """Kept for the next report of this process; Ctrl-C is for the process that waits."""
    count = max(1, min(PROCESSES, (os.cpu_count() or 2) - 1))
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
