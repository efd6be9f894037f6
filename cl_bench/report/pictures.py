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

PROCESSES = 4  # at most, and not more than there are processors
QUEUE = 3  # figures that wait for a process before another is started: starting one takes as long as drawing two
MOST_ROWS, MOST_SWEEPS = 12, 3  # in a figure that nobody chose the rows of
NEEDS = {
    "losses": "no run has followed its losses from its first task on (`cl-bench run --losses`, before it is finished)",
    "tradeoff": "fewer than two values of the option were run",
    "pretraining": "no backbone has both rows",
}
_BEGUN: list[Future] = []  # and not finished


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


def _begin(kind: str, option: str, shown: Sequence[Panel], conventions: Conventions, path: Path) -> Callable[[], list[Path]]:
    begun = _submit(kind, option, shown, conventions, path.absolute())  # the process may have been started in another folder
    return lambda: [path.with_name(drawn.name) for drawn in _result(begun)]


def _submit(*arguments) -> Future:
    _BEGUN[:] = [begun for begun in _BEGUN if not begun.done()]
    place = min(len(_BEGUN) // QUEUE, PROCESSES - 1, (os.cpu_count() or 1) - 1)
    try:
        begun = _process(place).submit(_draw, *arguments)
    except BrokenProcessPool:  # it was ended from outside since
        _process.cache_clear()
        begun = _process(place).submit(_draw, *arguments)
    _BEGUN.append(begun)
    return begun


def _draw(*arguments) -> list[Path]:
    from cl_bench.report import draw

    return draw.files(*arguments) if arguments else []


def _result(begun: Future) -> list[Path]:
    try:
        return begun.result()
    except BrokenProcessPool as error:
        _process.cache_clear()
        raise RunFailed(
            "the process that draws the figures ended early: too little memory, or a script without `if __name__ == '__main__':`"
        ) from error


@cache
def _process(place: int) -> ProcessPoolExecutor:
    """One that draws, kept for the next report of this process; Ctrl-C is for the process that waits."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
