"""How a run tells the process that started it how far it is."""

import json
import os
from pathlib import Path

from cl_bench.records.spec import RunSpec
from cl_bench.training.trainer import Progress


class ProgressFile:
    """Writes progress.json after every pass: share done (by passes), task, pass, loss, accuracy, speed.

    Losing it loses nothing.
    """

    def __init__(self, path: Path, spec: RunSpec):
        self._path, self._tasks = path, spec.num_learned

    def __call__(self, progress: Progress) -> None:
        facts = {
            "done": (progress.task + progress.done_passes / progress.passes) / self._tasks,
            "task": progress.task + 1,
            "tasks": self._tasks,
            "pass": progress.done_passes,
            "passes": progress.passes,
            "loss": progress.loss,
            "accuracy": progress.accuracy,
            "images_per_second": progress.images_per_second,
        }
        partial = self._path.with_suffix(".partial")
        try:
            partial.write_text(json.dumps(facts), encoding="utf-8")
            os.replace(partial, self._path)
        except OSError:
            pass  # a full disk is reported when the task is saved
