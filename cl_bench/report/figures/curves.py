"""Figures of curves and points: accuracy over the tasks, losses of first tasks, costs against accuracy."""

from collections.abc import Sequence

from cl_bench import environment
from cl_bench.records import metrics
from cl_bench.records.diagnosis import MEASURES
from cl_bench.records.metrics import Conventions
from cl_bench.report.figures.pareto import pareto
from cl_bench.report.figures.style import (
    COLUMN_INCHES,
    Drawn,
    alike,
    heading,
    legend,
    look_of,
    of_few_curves,
    panel_axes,
    percent,
    places_of,
    plain,
)
from cl_bench.report.rows import Panel, Row
from cl_bench.report.table import COST_COLUMNS

MOST_MARKERS = 20  # points of a curve; more would hide the line
MOST_BESIDE = 12  # rows of a figure of costs that is as wide as a column; one of more is larger
MEASURED = {"seconds": "training time (s)", "memory": "peak memory (bytes)"}  # costs that machines differ in
COUNTED = ("trained", "stored", "stored_per_task", "stored_per_class", "images", "memory")  # over magnitudes


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
    panels = [panel for panel in panels if any(row.curves(conventions) for _, row in panel.rows)]
    if not panels:
        return None
    parts, places = of_few_curves(panels), places_of(panels)
    figure, axes = panel_axes(len(parts), 2.4)
    numbers: list[tuple] = [("panel", "row", "task", "accuracy_mean", "accuracy_std", "n")]
    for axis, (over, panel) in zip(axes, parts, strict=True):
        for name, row in panel.rows:
            place = places[name]
            curves = row.curves(conventions)
            if not curves:
                continue
            values = [percent(found) for found in zip(*curves, strict=True)]
            if row.joint:
                axis.axhline(values[-1][0], color="0.4", linewidth=1, linestyle="--", label=plain(name))
            else:
                line(axis, place, range(1, len(values) + 1), values, name)
            numbers += [
                (panel.title, name, t, mean, spread, len(curves))
                for t, (mean, spread) in enumerate(values, 1)
            ]
        _over_tasks(axis, over)
    axes[0].set_ylabel("accuracy on seen classes (%)")
    alike(axes)
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


def diagnosis(panels: Sequence[Panel], conventions: Conventions, of: str) -> Drawn | None:
    """What each task did to old images, a line a row, from the second task on; means over blocks."""

    def measured(row: Row) -> list[list[float]]:
        return list(filter(None, (record.measured(of) for record in row.ran)))

    panels = [panel for panel in panels if any(measured(row) for _, row in panel.rows)]
    if not panels:
        return None
    figure, axes = panel_axes(len(panels), 2.4)
    places = places_of(panels)
    numbers: list[tuple] = [("panel", "row", "task", f"{of}_mean", f"{of}_std", "n")]
    for axis, panel in zip(axes, panels, strict=True):
        shown = []
        for name, row in panel.rows:
            if curves := measured(row):
                values = [metrics.mean_and_spread(at) for at in zip(*curves, strict=True)]
                line(axis, places[name], range(2, 2 + len(values)), values, name)
                numbers += [(panel.title, name, t, *value, len(curves)) for t, value in enumerate(values, 2)]
                shown += [mean for mean, _ in values]
        _over_tasks(axis, panel.title)
        if min(shown) > 0 and max(shown) > 10 * min(shown):
            axis.set_yscale("log")
    axes[0].set_ylabel(heading(MEASURES[of], 30))
    legend(figure, axes)
    return Drawn(figure, numbers)


def cost(panels: Sequence[Panel], conventions: Conventions, of: str = "seconds") -> Drawn | None:
    """A cost (mean over seeds; by default seconds of learning all tasks) against final accuracy.

    A line joins the methods that no other beats in both, bounds left out. Times of different machines do not
    belong in one panel.
    """

    def known(row: Row) -> bool:
        return bool(row.ran and row.values(of, conventions))

    panels = [panel for panel in panels if any(known(row) for _, row in panel.rows)]
    if not panels:
        return None
    places = places_of(panels)
    larger = len(places) > MOST_BESIDE
    figure, axes = panel_axes(len(panels), 3.6 if larger else 2.4, COLUMN_INCHES * (1 + larger))
    name_of = "learn_seconds" if of == "seconds" else of
    heads = [f"{name_of}_mean", f"{name_of}_std", "accuracy_mean", "accuracy_std", "n", "machines", "pareto"]
    numbers: list[tuple] = [("panel", "row", *heads)]
    for axis, panel in zip(axes, panels, strict=True):
        rows, machines = [(name, row) for name, row in panel.rows if known(row)], set()
        costs = [metrics.mean_and_spread(row.values(of, conventions)) for _, row in rows]
        right = [percent(row.values("accuracy", conventions)) for _, row in rows]
        front = _front(axis, [row for _, row in rows], costs, right)
        for place, (name, row) in enumerate(rows):
            spent, found = costs[place], right[place]
            own = {environment.computer(where) for record in row.ran for where in record.environments}
            machines |= own
            style = {**look_of(places[name]), "markersize": 4, "linewidth": 0.8}
            axis.errorbar(spent[0], found[0], found[1], spent[1], label=plain(name), **style)
            told = (len(row.ran), "; ".join(sorted(own)), place in front)
            numbers.append((panel.title, name, *spent, *found, *told))
        several = f" ({len(machines)} machines)" if of in MEASURED and len(machines) > 1 else ""
        axis.set_title(heading(panel.title + several))
        axis.set_xlabel(MEASURED.get(of, COST_COLUMNS[of].lower()))
        _spread_out(axis, [spent for spent, _ in costs] if of in COUNTED else [])
        axis.margins(0.1)
    axes[0].set_ylabel("accuracy (%)")
    alike(axes)
    legend(figure, axes)
    return Drawn(figure, numbers)


def _front(axis, rows: Sequence[Row], costs: Sequence[tuple], right: Sequence[tuple]) -> set[int]:
    """The places of rows that no other beats in cost and accuracy, joined by a line; bounds are not asked."""
    asked = [place for place, row in enumerate(rows) if not row.joint]
    front = pareto([(right[place][0], costs[place][0]) for place in asked])
    found = {asked[number] for number in front}
    line = sorted((costs[place][0], right[place][0]) for place in found)
    axis.plot([spent for spent, _ in line], [mean for _, mean in line], color="0.6", linewidth=0.8, zorder=0)
    return found


def _spread_out(axis, costs: Sequence[float]) -> None:
    """A logarithmic axis where costs differ by magnitudes; up to the smallest it is linear and has a 0."""
    positive = [cost for cost in costs if cost > 0]
    if positive and max(positive) > 10 * min(positive):
        axis.set_xscale("symlog", linthresh=min(positive))
        axis.set_xlim(left=0 if min(costs) <= 0 else 0.8 * min(positive))
