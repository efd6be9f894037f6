"""Draws the figures of a report and writes each as PNG and PDF, with its numbers as CSV."""

import csv
import functools
import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib

from cl_bench import metrics
from cl_bench.report import charts, figures
from cl_bench.report.figures import Drawn, Panel
from cl_bench.report.found import Found
from cl_bench.report.layout import FigureLayout
from cl_bench.report.select import Benchmark, Conventions
from cl_bench.store import write_atomically

KINDS = {
    "accuracy": figures.accuracy,  # on the classes seen after each task
    "losses": figures.losses,  # of tasks 1 and 2 after each later task
    "tradeoff": charts.tradeoff,  # accuracy and forgetting against one option
    "pretraining": charts.pretraining,  # two methods on several backbones
    "matrix": charts.matrix,  # how far each task is below its best, run by run
    "cost": figures.cost,  # training time against accuracy
}


def of_layout(layout: FigureLayout, found: Found, folder: Path) -> list[Path]:
    """The files of a figure that was asked for; none, with a warning, where no run has what it shows."""
    rows = found.grid(layout)
    panels = []
    for place, column in enumerate(layout.columns):
        named = [(_name(wanted, line[place]), line[place]) for wanted, line in zip(layout.rows, rows, strict=True) if line[place]]
        if named:
            others = [row for benchmark in found.places(column) for row in benchmark.rows]
            panels.append(Panel(column.heading, named, others))
    kind = functools.partial(charts.tradeoff, option=layout.sweep) if layout.kind == "tradeoff" else KINDS[layout.kind]
    written = _draw(kind, panels, found.conventions, folder / layout.name)
    if not written:
        found.warnings.append(f"{layout.name}: {NEEDS.get(layout.kind, 'no finished run to draw')}, not drawn")
    return written


MOST_ROWS = 12  # in a figure that nobody chose the rows of
NEEDS = {
    "losses": "no run has followed its losses from its first task on (`cl-bench run --losses`, before it is finished)",
    "tradeoff": "fewer than two values of the option were run",
    "pretraining": "no backbone has both rows",
}


def _name(wanted, row) -> str:
    return wanted.title or row.title


def of_benchmark(benchmark: Benchmark, conventions: Conventions, folder: Path) -> list[Path]:
    """Accuracy over the tasks, the trade-offs over eta, and cost, of all rows of a benchmark."""
    rows, title = benchmark.finished_rows, benchmark.name
    if len(rows) > MOST_ROWS:
        by_accuracy = sorted(rows, key=lambda row: -metrics.mean_and_spread(row.values("accuracy", conventions))[0])
        rows, title = by_accuracy[:MOST_ROWS], f"{title}: the {MOST_ROWS} most accurate of {len(rows)}"
    panel = Panel(title, [(row.title, row) for row in rows], benchmark.rows)
    starts, seen = [], set()
    for row in rows:
        swept = [] if row.imported or row.joint else charts.sweep_rows(row, benchmark.rows, "eta")
        if len(swept) > 1 and id(swept[0]) not in seen and len(starts) < 3:
            seen.add(id(swept[0]))
            starts.append((row.display, row))
    written = []
    for name, rows in {"accuracy": panel.rows, "tradeoff": starts, "cost": panel.rows}.items():
        written += _draw(KINDS[name], [Panel(panel.title, rows, benchmark.rows)], conventions, folder / name)
    return written


def _draw(kind, panels: Sequence[Panel], conventions: Conventions, stem: Path) -> list[Path]:
    with matplotlib.rc_context(figures.STYLE):
        drawn = kind(panels, conventions)
        return [] if drawn is None else _save(drawn, stem)


def _save(drawn: Drawn, stem: Path) -> list[Path]:
    drawn.figure.draw_without_rendering()
    drawn.figure.set_layout_engine("none")  # it is laid out, once for both formats
    paths = []
    for suffix, settings in {".png": {"dpi": 200}, ".pdf": {"metadata": {"CreationDate": None}}}.items():
        content = io.BytesIO()
        drawn.figure.savefig(content, format=suffix[1:], **settings)
        paths.append(stem.with_name(stem.name + suffix))
        write_atomically(paths[-1], content.getvalue())
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["" if value is None else value for value in line] for line in drawn.numbers])
    paths.append(stem.with_name(stem.name + ".csv"))
    write_atomically(paths[-1], text.getvalue().encode())
    return paths
