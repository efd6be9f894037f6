"""Figures of rows side by side: trade-offs over an option, pairs over backbones, what runs have forgotten."""

from collections.abc import Sequence

from cl_bench.records import metrics
from cl_bench.records.metrics import Conventions
from cl_bench.report.figures.pareto import pareto
from cl_bench.report.figures.style import COLUMN_INCHES, Drawn, grid_of, heading, legend, percent, plain
from cl_bench.report.rows import Panel, sweep_rows

BLUE, YELLOW = "#0072B2", "#E69F00"  # accuracy, forgetting


def tradeoff(panels: Sequence[Panel], conventions: Conventions, option: str = "eta") -> Drawn | None:
    """Bars over the option's values, and below them accuracy against forgetting.

    There a line joins the values that no other beats in both.
    """
    series = []
    for panel in panels:
        for name, row in panel.rows:
            if row.ran and not row.joint:
                swept = sweep_rows(row, panel.others, option)
                series.append(
                    (panel, name, [found for found in swept if found.values("forgetting", conventions)])
                )
    series = [found for found in series if len(found[2]) > 1]
    if not series:
        return None
    symbol = r"$\bar{\eta}$" if option == "eta" else plain(option)
    figure, grid = grid_of(2, len(series), COLUMN_INCHES * max(1.0, 0.72 * len(series)), 4.2)
    heads = ["accuracy_mean", "accuracy_std", "forgetting_mean", "forgetting_std", "n", "pareto"]
    numbers: list[tuple] = [("panel", "row", option, *heads)]
    for (panel, name, rows), top, bottom in zip(series, *grid, strict=True):
        points = []
        for row in rows:
            found, lost = (percent(row.values(metric, conventions)) for metric in ("accuracy", "forgetting"))
            points.append((row.spec.options[option], found, lost))
        front = pareto([(found[0], lost[0]) for _, found, lost in points])
        _bars(top, points, panel.title if len(panel.rows) == 1 else f"{panel.title}, {name}", symbol)
        _scatter(bottom, points, front)
        for i, (value, found, lost) in enumerate(points):
            numbers.append((panel.title, name, value, *found, *lost, len(rows[i].finished), i in front))
    return Drawn(figure, numbers)


def _scatter(axis, points: Sequence, front: set[int]) -> None:
    """Accuracy against forgetting, with a line through the points at the places `front`."""
    kept = sorted((points[i] for i in front), key=lambda point: point[2][0])
    line = [lost[0] for *_, lost in kept], [found[0] for _, found, _ in kept]
    axis.plot(*line, color="0.5", linewidth=1, zorder=1)
    for i, (value, found, lost) in enumerate(points):
        place, shift = (lost[0], found[0]), {"textcoords": "offset points", "xytext": (3, 3)}
        color = BLUE if i in front else "0.6"
        axis.errorbar(
            *place, found[1], lost[1], fmt="o", markersize=3.7, linewidth=0.8, color=color, zorder=2
        )
        axis.annotate(f"{value:g}", place, fontsize=6, **shift)
    axis.set_xlabel("forgetting (%)")
    axis.set_ylabel("accuracy (%)")
    axis.margins(0.12)


def _bars(axis, points: Sequence, title: str, symbol: str) -> None:
    """Accuracy on the left axis, forgetting on the right one, a pair of bars for every value."""
    other = axis.twinx()
    other.grid(False)
    other.spines["right"].set_visible(True)
    places = range(len(points))
    for side, which, shift, color in ((axis, 1, -0.2, BLUE), (other, 2, 0.2, YELLOW)):
        means, spreads = [point[which][0] for point in points], [point[which][1] or 0.0 for point in points]
        error = {"elinewidth": 0.8, "capsize": 1.5}
        side.bar([place + shift for place in places], means, 0.4, yerr=spreads, color=color, error_kw=error)
        low, high = min(means) - max(spreads), max(means) + max(spreads)
        room = max(high - low, 0.5)
        side.set_ylim(max(0.0, low - 0.6 * room) if low >= 0 else low - 0.2 * room, high + 0.15 * room)
    axis.set_xticks(list(places), [f"{point[0]:g}" for point in points])
    axis.set_xlabel(symbol)
    axis.set_ylabel("accuracy (%)", color=BLUE)
    other.set_ylabel("forgetting (%)", color="#8a5f00")
    axis.set_title(heading(title))


def pretraining(panels: Sequence[Panel], conventions: Conventions) -> Drawn | None:
    """A pair of bars for accuracy and one for forgetting on every panel (a backbone each).

    The first row is light, the second full, with an arrow between them.
    """
    panels = [
        panel for panel in panels if len(panel.rows) == 2 and all(row.finished for _, row in panel.rows)
    ]
    if not panels:
        return None
    figure, [[axis]] = grid_of(1, 1, COLUMN_INCHES, 2.6)
    numbers: list[tuple] = [("panel", "row", "metric", "mean", "std", "n")]
    shown = set()
    for place, panel in enumerate(panels):
        for metric, shift, color in (("accuracy", -0.2, BLUE), ("forgetting", 0.2, YELLOW)):
            ends = []
            for (name, row), alpha in zip(panel.rows, (0.35, 1.0), strict=True):
                values = row.values(metric, conventions)
                if not values:
                    continue
                mean, spread = percent(values)
                label, wide = plain(f"{metric}, {name}"), 0.36 if alpha < 1 else 0.18
                look = {"color": color, "alpha": alpha, "label": None if label in shown else label}
                axis.bar(place + shift, mean, wide, **look)
                shown.add(label)
                ends.append(mean)
                numbers.append((panel.title, name, metric, mean, spread, len(values)))
            if len(ends) == 2:
                _arrow(axis, place + shift, *ends)
    axis.set_xticks(range(len(panels)), [plain(panel.title) for panel in panels], rotation=20, ha="right")
    axis.set_ylabel("percent")
    axis.grid(axis="x", visible=False)
    legend(figure, [axis])
    return Drawn(figure, numbers)


def _arrow(axis, place: float, start: float, end: float) -> None:
    """From one height to another, with the difference above."""
    look = {"arrowstyle": "->", "linewidth": 1.0}
    axis.annotate("", (place, end), (place, start), arrowprops=look)
    above = {"textcoords": "offset points", "xytext": (0, 2), "ha": "center"}
    axis.annotate(f"{end - start:+.1f}", (place, max(start, end)), fontsize=6, **above)


def matrix(panels: Sequence[Panel], conventions: Conventions) -> Drawn | None:
    """A heat map for every run, of points below the best.

    A column is a task, a line what is left of it after learning a later one.
    """
    runs = []
    for panel in panels:
        for name, row in panel.rows:
            # of a log's averages nothing is known of single tasks
            runs += [(panel, name, record) for record in row.finished if not row.joint and record.correct]
    if not runs:
        return None
    falls = [fallen(record) for *_, record in runs]
    across = min(3, len(runs))
    down = -(-len(runs) // across)
    figure, grid = grid_of(down, across, 1.75 * across + 0.6, 1.75 * down)
    numbers: list[tuple] = [("panel", "row", "seed", "after_task", "task", "accuracy", "below_best")]
    highest = max(max(max(row, default=0.0) for row in found) for found in falls) or 1.0
    image = None
    for axis, (panel, name, record), found in zip(grid.flat, runs, falls, strict=False):
        seed = record.spec.seed_name()
        image = _heat_map(axis, found, highest)
        axis.set_title(f"{plain(name)}\n{plain(panel.title)}, seed {seed}", fontsize=6)
        rates = metrics.accuracy_matrix(record.correct, record.test_sizes)
        for t, row in enumerate(found):
            numbers += [
                (panel.title, name, seed, t + 1, j + 1, 100 * rates[t][j], fall) for j, fall in enumerate(row)
            ]
    for unused in list(grid.flat)[len(runs) :]:
        unused.set_visible(False)
    figure.supxlabel("task", fontsize=8)
    figure.supylabel("after learning task", fontsize=8)
    figure.colorbar(image, ax=grid, label="points below its best", shrink=0.8)
    return Drawn(figure, numbers)


def _heat_map(axis, rows: Sequence[Sequence[float]], highest: float):
    """Draw a lower triangle and return its image."""
    size = len(rows)
    square = [[*row, *[float("nan")] * (size - len(row))] for row in rows]
    image = axis.imshow(square, cmap="cividis", vmin=0, vmax=highest, aspect="equal")
    axis.grid(False)
    ticks = [0, size - 1]
    axis.set_xticks(ticks, [tick + 1 for tick in ticks])
    axis.set_yticks(ticks, [tick + 1 for tick in ticks])
    return image


def fallen(record) -> list[list[float]]:
    """How far task j is below its best so far after task t, in points, at [t][j]."""
    rates = metrics.accuracy_matrix(record.correct, record.test_sizes)
    return [
        [100 * (max(rates[s][j] for s in range(j, t + 1)) - rates[t][j]) for j in range(t + 1)]
        for t in range(len(rates))
    ]
