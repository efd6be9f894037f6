"""What figures share: style, colors, axes, and the legend below them."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from cl_bench.records import metrics
from cl_bench.report.rows import Panel
from cl_bench.text.escape import visible

# Okabe and Ito's palette, distinguishable with any color vision; markers repeat out of step with it.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP"
STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "pdf.fonttype": 42,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
}
COLUMN_INCHES = 3.4  # the width of one column of most papers
MOST_CURVES = 8  # in a panel
NEARLY_ZERO = 0.25  # of a range, below which it may as well begin at 0
LEGEND_LINE = 0.16  # inches; the height of a figure has room for two


@dataclass(frozen=True)
class Drawn:
    """A figure and the numbers in it, a heading first."""

    figure: Figure
    numbers: list[tuple]


def plain(text: str) -> str:
    """Text of which matplotlib makes no formula, and that it shows.

    A label that begins with a low line would be left out.
    """
    shown = visible(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def heading(text: str, width: int = 48) -> str:
    """A title in lines of at most so many characters; by default those that fit over a panel."""
    return textwrap.fill(plain(text), width)


def percent(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation of fractions, in percent."""
    return metrics.mean_and_spread([100 * value for value in values])


def grid_of(down: int, across: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    """A figure of this size in inches with a grid of axes; nothing keeps it alive but its users."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(down, across, squeeze=False)


def look_of(place: int) -> dict[str, str]:
    """Color and marker of the row with this number."""
    return {"color": COLORS[place % len(COLORS)], "marker": MARKERS[place % len(MARKERS)]}


def panel_axes(count: int, height: float, width: float = COLUMN_INCHES) -> tuple[Figure, list]:
    """Up to two panels beside each other, a row for every two."""
    across, down = min(count, 2), -(-count // 2)
    figure, axes = grid_of(down, across, width * (1.0 if across == 1 else 1.45), height * down)
    flat = list(axes.flat)
    for unused in flat[count:]:
        unused.set_visible(False)
    return figure, flat[:count]


def of_few_curves(panels: Sequence[Panel]) -> list[tuple[str, Panel]]:
    """Panels and what stands over them; those of many curves in parts of about as many, in the same order.

    Bounds, which are levels, stand in every part.
    """
    made = []
    for panel in panels:
        levels = [(name, row) for name, row in panel.rows if row.joint]
        curves = [(name, row) for name, row in panel.rows if not row.joint]
        parts = max(1, -(-len(curves) // MOST_CURVES))
        for part in range(parts):
            start, end = (len(curves) * place // parts for place in (part, part + 1))
            over = panel.title if parts == 1 else f"{panel.title}, {part + 1} of {parts}"
            made.append((over, replace(panel, rows=[*curves[start:end], *levels])))
    return made


def alike(axes: Sequence) -> None:
    """The same vertical range in all panels, whose first label says so where it does not begin at 0."""
    lows, highs = zip(*(axis.get_ylim() for axis in axes), strict=True)
    low = max(0.0, min(lows))
    low = 0.0 if low < NEARLY_ZERO * max(highs) else low
    for axis in axes:
        axis.set_ylim(low, max(highs))
    if low > 0:
        axes[0].set_ylabel(f"{axes[0].get_ylabel()}\n(axis begins at {low:.0f})")


def places_of(panels: Sequence[Panel]) -> dict[str, int]:
    """A number for every name: its color and marker are the same in all panels, whichever rows one lacks."""
    names = dict.fromkeys(name for panel in panels for name, _ in panel.rows)
    return {name: place for place, name in enumerate(names)}


def legend(figure: Figure, axes: Sequence) -> None:
    """One legend under all panels, for which the figure grows."""
    found = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found.update(zip(labels, handles, strict=True))
    if found:
        width, height = figure.get_size_inches()
        # about 19 characters of this size fit an inch, a handle takes 8
        fitting = int(19 * width / (max(map(len, found)) + 8))
        columns = max(1, min(fitting, len(found), 4))
        figure.set_size_inches(width, height + LEGEND_LINE * max(0, -(-len(found) // columns) - 2))
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns)
