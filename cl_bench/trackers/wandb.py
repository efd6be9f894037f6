"""Weights & Biases: a run whose id is the run id, in the group of its family.

Its environment variables are honored: WANDB_MODE (online unless it says offline), WANDB_PROJECT, WANDB_DIR
(instead of `wandb/` below the trackers' folder), WANDB_ENTITY, ... Nothing is sent of the machine, the
program's path or its code.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from cl_bench.trackers.contract import PROJECT, At, Status, TrackedRun, Tracker

AXES = ("pass", "task")


class WeightsAndBiases(Tracker):
    """A run of Weights & Biases."""

    NEEDS, INSTALL = ("wandb",), "cl-bench[wandb]"

    def begin(self, run: TrackedRun) -> None:
        """Begin the run, or go on with it."""
        import wandb

        quiet: dict[str, Any] = {"silent": True, "console": "off", "host": "", "x_disable_stats": True}
        private = {"x_disable_meta": True, "x_disable_machine_info": True, "disable_git": True}
        if not os.environ.get("WANDB_DIR"):  # W&B makes its own folder `wandb` in it
            run.folder.mkdir(parents=True, exist_ok=True)
        self._picture, self._leave = wandb.Image, wandb.teardown
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            dir=os.environ.get("WANDB_DIR") or str(run.folder),
            id=run.run_id,
            name=run.name,
            group=run.family_id,
            config=run.configuration,
            allow_val_change=True,  # of the environment
            resume=None if run.fresh else "allow",
            reinit="create_new",
            settings=wandb.Settings(**quiet, **private, disable_code=True, disable_job_creation=True),
        )
        self._drawn: set[str] = set()
        for axis in AXES:
            self._run.define_metric(axis, hidden=True)

    def log(self, values: Mapping[str, float], at: At) -> None:
        """A point of each curve, drawn against passes or tasks."""
        for name in values.keys() - self._drawn:
            self._run.define_metric(name, step_metric=at.axis)
            self._drawn.add(name)
        self._run.log({**values, at.axis: at.count}, step=at.step)

    def image(self, name: str, pixels: np.ndarray, at: At) -> None:
        """The picture."""
        self._run.log({name: self._picture(pixels), at.axis: at.count}, step=at.step)

    def end(self, status: Status) -> None:
        """Wait until all is written or sent."""
        self._run.summary["status"] = status
        code = 0 if status == "finished" else 1
        self._run.finish(exit_code=code)
        self._leave(exit_code=code)  # `finish` alone may leave a file that is not yet whole
