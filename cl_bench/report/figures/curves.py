"""Figures of curves and points: accuracy over the tasks, losses of the first tasks, cost against accuracy."""

from collections.abc import Sequence

from cl_bench import environment
from cl_bench.records import metrics
from cl_bench.records.metrics import Conventions
from cl_bench.report.figures.style import (
    Drawn,
    heading,
    legend,
    look_of,
    panel_axes,
    percent,
    places_of,
    plain,
)
from cl_bench.report.rows import Panel, Row

MOST_MARKERS = 20  # points of a curve; more would hide the line


def line(
    axes, place: int, xs: Sequence[float], values: Sequence[tuple], label: str, style: str = "-"
) -> None:
    """A curve of `values`, a mean and a standard deviation or None each, with a band of one deviation."""
    look, means = look_of(place), [mean for mean, _ in values]
    spreads = [spread or 0.0 for _, spread in values]
    if len(xs) > MOST_MARKERS:
        look["marker"] = None
    axes.plot(xs, means, style, label=plain(label), markersize=3, linewidth=1.2, **look)
    if any(spreads):
        both = list(zip(means, spreads, strict=True))
        low, high = ([mean + sign * spread for mean, spread in both] for sign in (-1, 1))
        axes.fill_between(xs, low, high, color=look["color"], alpha=0.15, linewidth=0)


def _over_tasks(axis, title: str) -> None:
    axis.set_title(heading(title))
    axis.set_xlabel("tasks learned")
    axis.xaxis.get_major_locator().set_params(integer=True)


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
                after, style = range(task + 1, task + 1 + len(values)), "-" if task == 0 else "--"
                line(axis, place, after, values, f"{name}, task {task + 1}", style)
                numbers += [
                    (panel.title, name, task + 1, t, mean, spread, len(found))
                    for t, (mean, spread) in enumerate(values, task + 1)
                ]
        _over_tasks(axis, panel.title)
    axes[0].set_ylabel("training loss of the task")
    legend(figure, axes)
    return Drawn(figure, numbers)


def cost(panels: Sequence[Panel], conventions: Conventions) -> Drawn | None:
    """Seconds of learning all tasks (mean over seeds) against final accuracy.

    Times of different machines do not belong in one panel.
    """
    panels = [panel for panel in panels if any(row.ran for _, row in panel.rows)]
    if not panels:
        return None
    figure, axes = panel_axes(len(panels), 2.4)
    places = places_of(panels)
    heads = ["learn_seconds_mean", "learn_seconds_std", "accuracy_mean", "accuracy_std", "n", "machines"]
    numbers: list[tuple] = [("panel", "row", *heads)]
    for axis, panel in zip(axes, panels, strict=True):
        machines = set()
        for name, row in panel.rows:
            if not row.ran:
                continue
            place, times = places[name], row.values("seconds", conventions)
            seconds, found = metrics.mean_and_spread(times), percent(row.values("accuracy", conventions))
            own = {environment.computer(where) for record in row.ran for where in record.environments}
            machines |= own
            style = {**look_of(place), "markersize": 4, "linewidth": 0.8}
            axis.errorbar(seconds[0], found[0], found[1], seconds[1], label=plain(name), **style)
            numbers.append((panel.title, name, *seconds, *found, len(row.ran), "; ".join(sorted(own))))
        axis.set_title(heading(panel.title + (f" ({len(machines)} machines)" if len(machines) > 1 else "")))
        axis.set_xlabel("training time (s)")
        axis.margins(0.1)
    axes[0].set_ylabel("accuracy (%)")
    legend(figure, axes)
    return Drawn(figure, numbers)
