"""How a run tells the process that started it how far it is."""

import json
import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from cl_bench.records.spec import RunSpec
from cl_bench.run import certificate
from cl_bench.training.trainer import Progress

FORWARD_AND_BACK = 2  # passes that one image of training is worth


class Work:
    """How a run's passes through the network spread over its tasks, told from one of them."""

    def __init__(
        self, classes: Sequence[int], tests: Sequence[int], per_class: float, passes: int, predicting: int
    ):
        """Of tasks with so many classes and test images.

        Each of `per_class` training images passes `passes` times, and once more for statistics; a test image
        is predicted in `predicting` passes.
        """
        self._trained = [count * per_class * (FORWARD_AND_BACK * passes + 1) for count in classes]
        tested = [seen * predicting for seen in accumulate(tests)]
        tested[-1] += 3 * predicting * min(sum(tests), certificate.BATCH * certificate.BLOCKS)
        self._before = [0.0, *accumulate(map(sum, zip(self._trained, tested, strict=True)))]

    def done(self, task: int, share: float = 0.0) -> float:
        """The share that is done once `share` of the training of this task (0-based) is."""
        training = share * self._trained[task] if share else 0.0
        return (self._before[task] + training) / self._before[-1]


class ProgressFile:
    """Writes progress.json after every pass and every evaluation, as `cl_bench.launch.monitor` reads it.

    Losing it loses nothing.
    """

    def __init__(self, path: Path, spec: RunSpec):
        self._path, self._tasks = path, spec.num_learned

    def __call__(self, progress: Progress) -> None:
        facts = {
            "done": progress.done,
            "task": progress.task + 1,
            "tasks": self._tasks,
            "learned": progress.learned,
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
