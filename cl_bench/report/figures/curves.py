"""What figures share, and those of curves and points: accuracy over the tasks, losses of the first tasks, cost against accuracy."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from cl_bench import environment
from cl_bench.records import metrics
from cl_bench.records.metrics import Conventions
from cl_bench.report.rows import Panel, Row
from cl_bench.text.escape import visible

# Okabe and Ito's palette, distinguishable with any colour vision; markers repeat out of step with it.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
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
LEGEND_LINE = 0.16  # inches; the height of a figure has room for two


@dataclass(frozen=True)
class Drawn:
    """A figure and the numbers in it, a heading first."""

    figure: Figure
    numbers: list[tuple]


def plain(text: str) -> str:
    """Text of which matplotlib makes no formula, and that it shows: a label that begins with a low line would be left out."""
    shown = visible(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def heading(text: str) -> str:
    """A title in lines that fit over a panel."""
    return textwrap.fill(plain(text), 48)


def percent(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation of fractions, in percent."""
    return metrics.mean_and_spread([100 * value for value in values])


def grid_of(down: int, across: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    """A figure of this size in inches with a grid of axes; nothing keeps it alive but its users."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(down, across, squeeze=False)


def panel_axes(count: int, height: float, width: float = COLUMN_INCHES) -> tuple[Figure, list]:
    """Up to two panels beside each other, a row for every two."""
    across, down = min(count, 2), -(-count // 2)
    figure, axes = grid_of(down, across, width * (1.0 if across == 1 else 1.45), height * down)
    flat = list(axes.flat)
    for unused in flat[count:]:
        unused.set_visible(False)
    return figure, flat[:count]


def line(
    axes,
    place: int,
    xs: Sequence[float],
    values: Sequence[tuple[float, float | None]],
    label: str,
    style: str = "-",
) -> None:
    """A curve with a band of one standard deviation where there are several seeds."""
    colour, means = COLOURS[place % len(COLOURS)], [mean for mean, _ in values]
    spreads = [spread or 0.0 for _, spread in values]
    few = len(xs) <= 20
    axes.plot(
        xs,
        means,
        style,
        color=colour,
        marker=MARKERS[place % len(MARKERS)] if few else None,
        markersize=3,
        linewidth=1.2,
        label=plain(label),
    )
    if any(spreads):
        low, high = (
            [mean + sign * spread for mean, spread in zip(means, spreads, strict=True)] for sign in (-1, 1)
        )
        axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)


def places_of(panels: Sequence[Panel]) -> dict[str, int]:
    """A number for every name, whose colour and marker are the same in all panels, whichever rows one of them lacks."""
    return {
        name: place
        for place, name in enumerate(dict.fromkeys(name for panel in panels for name, _ in panel.rows))
    }


def _over_tasks(axis, title: str) -> None:
    axis.set_title(heading(title))
    axis.set_xlabel("tasks learned")
    axis.xaxis.get_major_locator().set_params(integer=True)


def legend(figure: Figure, axes: Sequence) -> None:
    """One legend under all panels, for which the figure grows."""
    found = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found.update(zip(labels, handles, strict=True))
    if found:
        width, height = figure.get_size_inches()
        fitting = int(
            19 * width / (max(map(len, found)) + 8)
        )  # about 19 characters of this size fit an inch, a handle takes 8
        columns = max(1, min(fitting, len(found), 4))
        figure.set_size_inches(width, height + LEGEND_LINE * max(0, -(-len(found) // columns) - 2))
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns)


def accuracy(panels: Sequence[Panel], conventions: Conventions) -> Drawn | None:
    """A line a row over the tasks, a dashed level for upper bounds."""
    panels = [panel for panel in panels if any(row.finished for _, row in panel.rows)]
    if not panels:
        return None
    figure, axes = panel_axes(len(panels), 2.4)
    places = places_of(panels)
    numbers: list[tuple] = [("panel", "row", "task", "accuracy_mean", "accuracy_std", "n")]
    for axis, panel in zip(axes, panels, strict=True):
        for name, row in panel.rows:
            place = places[name]
            if not row.finished:
                continue
            curves = row.curves(conventions)
            values = [percent(found) for found in zip(*curves, strict=True)]
            if row.joint:
                axis.axhline(values[-1][0], color="0.4", linewidth=1, linestyle="--", label=plain(name))
            else:
                line(axis, place, range(1, len(values) + 1), values, name)
            numbers += [
                (panel.title, name, t, mean, spread, len(curves))
                for t, (mean, spread) in enumerate(values, 1)
            ]
        _over_tasks(axis, panel.title)
    axes[0].set_ylabel("accuracy on seen classes (%)")
    legend(figure, axes)
    return Drawn(figure, numbers)


def losses(panels: Sequence[Panel], conventions: Conventions) -> Drawn | None:
    """Full lines for task 1, dashed ones for task 2, from runs that followed their losses."""

    def followed(row: Row) -> list:
        return [record for record in row.ran if all(task.kept_losses for task in record.tasks)]

    panels = [panel for panel in panels if any(followed(row) for _, row in panel.rows)]
    if not panels:
        return None
    figure, axes = panel_axes(len(panels), 2.4)
    places = places_of(panels)
    numbers: list[tuple] = [("panel", "row", "task", "after_task", "loss_mean", "loss_std", "n")]
    for axis, panel in zip(axes, panels, strict=True):
        for name, row in panel.rows:
            place, found = places[name], followed(row)
            for task in (0, 1) if found else ():
                curves = [[step.kept_losses[task] for step in record.tasks[task:]] for record in found]
                values = [metrics.mean_and_spread(at) for at in zip(*curves, strict=True)]
                line(
                    axis,
                    place,
                    range(task + 1, task + 1 + len(values)),
                    values,
                    f"{name}, task {task + 1}",
                    "-" if task == 0 else "--",
                )
                numbers += [
                    (panel.title, name, task + 1, t, mean, spread, len(found))
                    for t, (mean, spread) in enumerate(values, task + 1)
                ]
        _over_tasks(axis, panel.title)
    axes[0].set_ylabel("training loss of the task")
    legend(figure, axes)
    return Drawn(figure, numbers)


def cost(panels: Sequence[Panel], conventions: Conventions) -> Drawn | None:
    """Seconds of learning all tasks (mean over seeds) against final accuracy; times of different machines do not belong in one panel."""
    panels = [panel for panel in panels if any(row.ran for _, row in panel.rows)]
    if not panels:
        return None
    figure, axes = panel_axes(len(panels), 2.4)
    places = places_of(panels)
    numbers: list[tuple] = [
        (
            "panel",
            "row",
            "learn_seconds_mean",
            "learn_seconds_std",
            "accuracy_mean",
            "accuracy_std",
            "n",
            "machines",
        )
    ]
    for axis, panel in zip(axes, panels, strict=True):
        machines = set()
        for name, row in panel.rows:
            place = places[name]
            if not row.ran:
                continue
            seconds = metrics.mean_and_spread(
                [sum(task.learn_seconds for task in record.tasks) for record in row.ran]
            )
            found = percent(row.values("accuracy", conventions))
            own = {environment.computer(place_) for record in row.ran for place_ in record.environments}
            machines |= own
            colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
            axis.errorbar(
                seconds[0],
                found[0],
                found[1],
                seconds[1],
                color=colour,
                marker=marker,
                markersize=4,
                linewidth=0.8,
                label=plain(name),
            )
            numbers.append((panel.title, name, *seconds, *found, len(row.ran), "; ".join(sorted(own))))
        axis.set_title(heading(panel.title + (f" ({len(machines)} machines)" if len(machines) > 1 else "")))
        axis.set_xlabel("training time (s)")
        axis.margins(0.1)
    axes[0].set_ylabel("accuracy (%)")
    legend(figure, axes)
    return Drawn(figure, numbers)
