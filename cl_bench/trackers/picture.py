"""The accuracy matrix as a picture."""

import numpy as np

from cl_bench.records.metrics import accuracy_matrix
from cl_bench.records.record import RunRecord
from cl_bench.records.spec import name

CELL, DPI = 0.45, 100  # inches of a task's cell; dots an inch
LARGEST = 30  # tasks that have their numbers written into the cells


def matrix(record: RunRecord) -> np.ndarray:
    """Percent right on each task (across) after learning each (down), (H, W, 3) of uint8."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = accuracy_matrix(record.correct, record.test_sizes)
    percent = np.full((len(rows), len(rows[-1])), np.nan)
    for t, row in enumerate(rows):
        percent[t, : len(row)] = [100 * rate for rate in row]
    tasks = percent.shape[1]
    size = CELL * min(tasks, LARGEST) + 1.5
    figure = Figure(figsize=(size + 1, CELL * min(len(rows), LARGEST) + 1.8), dpi=DPI, layout="constrained")
    canvas, axes = FigureCanvasAgg(figure), figure.add_subplot()
    shown = axes.imshow(percent, vmin=0, vmax=100, cmap="viridis", aspect="auto")
    if tasks <= LARGEST:
        for (t, j), value in np.ndenumerate(percent):
            if not np.isnan(value):
                color = "black" if value > 60 else "white"
                axes.text(j, t, f"{value:.0f}", ha="center", va="center", color=color, fontsize=8)
    every = max(1, tasks // 10)
    axes.set_xticks(range(0, tasks, every), [str(j + 1) for j in range(0, tasks, every)])
    learned = range(0, len(rows), every)
    axes.set_yticks(learned, [str(t + 1) if len(rows) > 1 else "all" for t in learned])
    axes.set(xlabel="accuracy on task, percent", ylabel="after learning task")
    axes.set_title(name(record.spec).replace("$", r"\$"), fontsize=8, wrap=True)
    figure.colorbar(shown, ax=axes)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
