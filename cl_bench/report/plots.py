"""Figures from run records: accuracy after each task, and the stability-plasticity trade-off over eta."""

import io
import os
import textwrap
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt

from cl_bench import metrics
from cl_bench.report.select import Benchmark, Conventions, Row
from cl_bench.store import write_atomically

# Okabe and Ito's palette, distinguishable with any colour vision; markers repeat out of step with it.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP"
STYLE = {
    "font.size": 8,
    "pdf.fonttype": 42,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}


def accuracy(benchmark: Benchmark, conventions: Conventions, folder: Path) -> list[Path]:
    """accuracy.png and .pdf: accuracy on seen classes after each task, a line a row, band of one standard deviation over seeds."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(3.6, 3.1), layout="constrained")
        longest = 1
        for i, row in enumerate(row for row in benchmark.finished_rows if not row.joint):
            curves = [
                [100 * metrics.accuracy_after(r.correct, r.test_sizes, t, conventions.accuracy) for t in range(len(r.tasks))] for r in row.finished
            ]
            means, spreads = zip(*(metrics.mean_and_spread(values) for values in zip(*curves, strict=True)), strict=True)
            tasks = range(1, len(means) + 1)
            colour = COLOURS[i % len(COLOURS)]
            axes.plot(tasks, means, color=colour, marker=MARKERS[i % len(MARKERS)], markersize=3, linewidth=1.2, label=row.title)
            if spreads[0] is not None:
                axes.fill_between(
                    tasks, [m - s for m, s in zip(means, spreads, strict=True)], [m + s for m, s in zip(means, spreads, strict=True)],
                    color=colour, alpha=0.15, linewidth=0,
                )  # fmt: skip
            longest = max(longest, len(means))
        for row in benchmark.finished_rows:
            if row.joint:
                mean = 100 * metrics.mean_and_spread(row.values("accuracy", conventions))[0]
                axes.axhline(mean, color="0.4", linewidth=1, linestyle="--", label=row.title)
        axes.set_xticks(range(1, longest + 1, max(1, longest // 10)))
        axes.set_xlabel("tasks learned")
        axes.set_ylabel("accuracy on seen classes (%)")
        axes.set_title(textwrap.fill(benchmark.name, 62), fontsize=7)
        figure.legend(fontsize=6, loc="outside lower center", ncols=1 if len(benchmark.finished_rows) < 4 else 2)
        return _save(figure, folder / "accuracy")


def tradeoff(benchmark: Benchmark, conventions: Conventions, folder: Path) -> list[Path]:
    """tradeoff.png and .pdf: accuracy and forgetting against eta for rows that differ in eta alone; none with fewer than two values."""
    series = _eta_series(benchmark)
    if not series:
        return []
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(5.2, 2.7), layout="constrained")
        for i, (title, rows) in enumerate(series.items()):
            for axis, metric in zip(axes, ("accuracy", "forgetting"), strict=True):
                etas = [row.finished[0].spec.options["eta"] for row in rows]
                means, spreads = zip(*(metrics.mean_and_spread([100 * v for v in row.values(metric, conventions)]) for row in rows), strict=True)
                axis.errorbar(
                    etas,
                    means,
                    [s or 0 for s in spreads],
                    color=COLOURS[i % len(COLOURS)],
                    marker=MARKERS[i % len(MARKERS)],
                    markersize=3,
                    linewidth=1.2,
                    label=title,
                )
        axes[0].set_ylabel("accuracy (%)")
        axes[1].set_ylabel("forgetting (%)")
        for axis in axes:
            axis.set_xlabel("$\\eta_1 = \\eta_2$")
        figure.legend(*axes[0].get_legend_handles_labels(), fontsize=6, loc="outside lower center", ncols=2)
        figure.suptitle(textwrap.fill(benchmark.name, 90), fontsize=7)
        return _save(figure, folder / "tradeoff")


def _eta_series(benchmark: Benchmark) -> dict[str, list[Row]]:
    """Rows that share everything but eta, ascending in it, where there are at least two with a forgetting value."""
    series: dict[tuple, list[Row]] = {}
    for row in benchmark.finished_rows:
        spec = row.finished[0].spec
        if "eta" in spec.options and spec.num_tasks > 1 and not spec.joint:
            rest = tuple(sorted((key, str(value)) for key, value in spec.options.items() if key != "eta"))
            series.setdefault((spec.display, spec.precision, spec.transform, rest), []).append(row)
    found = {}
    for rows in series.values():
        if len(rows) > 1:
            options = [option for option in rows[0].options if option not in rows[0].shared_options and not option.startswith("eta=")]
            found[rows[0].display + (f" [{', '.join(options)}]" if options else "")] = sorted(
                rows, key=lambda row: row.finished[0].spec.options["eta"]
            )
    return found


def _save(figure, stem: Path) -> list[Path]:
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".pdf")]
    for path in paths:
        metadata = {"CreationDate": None} if path.suffix == ".pdf" else None
        content = io.BytesIO()
        figure.savefig(content, format=path.suffix[1:], dpi=200, metadata=metadata)
        write_atomically(path, content.getvalue())
    plt.close(figure)
    return paths
