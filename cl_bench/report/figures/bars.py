"""Figures that compare rows side by side: the trade-off over an option, pairs of methods over backbones, and what every run has forgotten."""

from collections.abc import Sequence

from cl_bench.records import metrics
from cl_bench.records.metrics import Conventions
from cl_bench.report.figures.curves import COLUMN_INCHES, Drawn, grid_of, heading, legend, percent, plain
from cl_bench.report.rows import Panel, sweep_rows

BLUE, YELLOW = "#0072B2", "#E69F00"  # accuracy, forgetting


def tradeoff(panels: Sequence[Panel], conventions: Conventions, option: str = "eta") -> Drawn | None:
    """Bars over the option's values, and below them accuracy against forgetting with the values that no other beats in both joined by a line."""
    series = [
        (panel, name, sweep_rows(row, panel.others, option))
        for panel in panels
        for name, row in panel.rows
        if row.ran and not row.joint
    ]
    series = [
        (panel, name, [row for row in rows if row.values("forgetting", conventions)])
        for panel, name, rows in series
    ]
    series = [found for found in series if len(found[2]) > 1]
    if not series:
        return None
    symbol = r"$\bar{\eta}$" if option == "eta" else plain(option)
    figure, grid = grid_of(2, len(series), COLUMN_INCHES * max(1.0, 0.72 * len(series)), 4.2)
    numbers: list[tuple] = [
        (
            "panel",
            "row",
            option,
            "accuracy_mean",
            "accuracy_std",
            "forgetting_mean",
            "forgetting_std",
            "n",
            "pareto",
        )
    ]
    for (panel, name, rows), top, bottom in zip(series, *grid, strict=True):
        points = [
            (
                row.spec.options[option],
                *(percent(row.values(metric, conventions)) for metric in ("accuracy", "forgetting")),
            )
            for row in rows
        ]
        front = pareto([(found[0], lost[0]) for _, found, lost in points])
        _bars(top, points, panel.title if len(panel.rows) == 1 else f"{panel.title}, {name}", symbol)
        kept = sorted((points[i] for i in front), key=lambda point: point[2][0])
        bottom.plot(
            [lost[0] for *_, lost in kept],
            [found[0] for _, found, _ in kept],
            color="0.5",
            linewidth=1,
            zorder=1,
        )
        for i, (value, found, lost) in enumerate(points):
            bottom.scatter(lost[0], found[0], s=14, color=BLUE if i in front else "0.6", zorder=2)
            bottom.annotate(
                f"{value:g}", (lost[0], found[0]), textcoords="offset points", xytext=(3, 3), fontsize=6
            )
            numbers.append((panel.title, name, value, *found, *lost, len(rows[i].finished), i in front))
        bottom.set_xlabel("forgetting (%)")
        bottom.set_ylabel("accuracy (%)")
        bottom.margins(0.12)
    return Drawn(figure, numbers)


def _bars(axis, points: Sequence, title: str, symbol: str) -> None:
    """Accuracy on the left axis, forgetting on the right one, a pair of bars for every value."""
    other = axis.twinx()
    other.grid(False)
    other.spines["right"].set_visible(True)
    places = range(len(points))
    for side, which, shift, colour in ((axis, 1, -0.2, BLUE), (other, 2, 0.2, YELLOW)):
        means, spreads = [point[which][0] for point in points], [point[which][1] or 0.0 for point in points]
        side.bar(
            [place + shift for place in places],
            means,
            0.4,
            yerr=spreads,
            color=colour,
            error_kw={"elinewidth": 0.8, "capsize": 1.5},
        )
        low, high = min(means) - max(spreads), max(means) + max(spreads)
        room = max(high - low, 0.5)
        side.set_ylim(max(0.0, low - 0.6 * room) if low >= 0 else low - 0.2 * room, high + 0.15 * room)
    axis.set_xticks(list(places), [f"{point[0]:g}" for point in points])
    axis.set_xlabel(symbol)
    axis.set_ylabel("accuracy (%)", color=BLUE)
    other.set_ylabel("forgetting (%)", color="#8a5f00")
    axis.set_title(heading(title))


def pareto(points: Sequence[tuple[float, float]]) -> set[int]:
    """Places of (accuracy, forgetting) pairs such that no other has at least the accuracy and at most the forgetting, one of them better."""
    return {
        i
        for i, (high, low) in enumerate(points)
        if not any(
            other[0] >= high and other[1] <= low and other != (high, low)
            for j, other in enumerate(points)
            if j != i
        )
    }


def pretraining(panels: Sequence[Panel], conventions: Conventions) -> Drawn | None:
    """A pair of bars for accuracy and one for forgetting on every panel (a backbone each): first row light, second full, an arrow between."""
    panels = [
        panel for panel in panels if len(panel.rows) == 2 and all(row.finished for _, row in panel.rows)
    ]
    if not panels:
        return None
    figure, [[axis]] = grid_of(1, 1, COLUMN_INCHES, 2.6)
    numbers: list[tuple] = [("panel", "row", "metric", "mean", "std", "n")]
    shown = set()
    for place, panel in enumerate(panels):
        for metric, shift, colour in (("accuracy", -0.2, BLUE), ("forgetting", 0.2, YELLOW)):
            ends = []
            for (name, row), alpha in zip(panel.rows, (0.35, 1.0), strict=True):
                values = row.values(metric, conventions)
                if not values:
                    continue
                mean, spread = percent(values)
                label = plain(f"{metric}, {name}")
                wide = 0.36 if alpha < 1 else 0.18
                axis.bar(
                    place + shift,
                    mean,
                    wide,
                    color=colour,
                    alpha=alpha,
                    label=None if label in shown else label,
                )
                shown.add(label)
                ends.append(mean)
                numbers.append((panel.title, name, metric, mean, spread, len(values)))
            if len(ends) == 2:
                axis.annotate(
                    "",
                    (place + shift, ends[1]),
                    (place + shift, ends[0]),
                    arrowprops={"arrowstyle": "->", "linewidth": 1.0},
                )
                axis.annotate(
                    f"{ends[1] - ends[0]:+.1f}",
                    (place + shift, max(ends)),
                    textcoords="offset points",
                    xytext=(0, 2),
                    ha="center",
                    fontsize=6,
                )
    axis.set_xticks(range(len(panels)), [plain(panel.title) for panel in panels], rotation=20, ha="right")
    axis.set_ylabel("percent")
    axis.grid(axis="x", visible=False)
    legend(figure, [axis])
    return Drawn(figure, numbers)


def matrix(panels: Sequence[Panel], conventions: Conventions) -> Drawn | None:
    """A heat map for every run; a column is a task, a line what is left of it after learning a later one, as points below its best."""
    runs = [
        (panel, name, record)
        for panel in panels
        for name, row in panel.rows
        for record in row.finished
        if not row.joint
    ]
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
        size = len(found)
        image = axis.imshow(
            [[found[t][j] if j <= t else float("nan") for j in range(size)] for t in range(size)],
            cmap="cividis",
            vmin=0,
            vmax=highest,
            aspect="equal",
        )
        axis.set_title(f"{plain(name)}\n{plain(panel.title)}, seed {record.spec.seed_name()}", fontsize=6)
        axis.grid(False)
        ticks = [0, size - 1]
        axis.set_xticks(ticks, [tick + 1 for tick in ticks])
        axis.set_yticks(ticks, [tick + 1 for tick in ticks])
        rates = metrics.accuracy_matrix(record.correct, record.test_sizes)
        numbers += [
            (panel.title, name, record.spec.seed_name(), t + 1, j + 1, 100 * rates[t][j], found[t][j])
            for t in range(size)
            for j in range(t + 1)
        ]
    for unused in list(grid.flat)[len(runs) :]:
        unused.set_visible(False)
    figure.supxlabel("task", fontsize=8)
    figure.supylabel("after learning task", fontsize=8)
    figure.colorbar(image, ax=grid, label="points below its best", shrink=0.8)
    return Drawn(figure, numbers)


def fallen(record) -> list[list[float]]:
    """How far task j is below its best so far after task t, in points, at [t][j]."""
    rates = metrics.accuracy_matrix(record.correct, record.test_sizes)
    return [
        [100 * (max(rates[s][j] for s in range(j, t + 1)) - rates[t][j]) for j in range(t + 1)]
        for t in range(len(rates))
    ]
