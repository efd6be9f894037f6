"""TensorBoard: event files in `tensorboard/<family id>/<name and run id>` below the trackers' folder.

Curves are drawn against passes or tasks; every start of the run adds a file.
"""

import json
from collections.abc import Mapping

import numpy as np

from cl_bench.trackers.contract import At, Status, TrackedRun, Tracker

LONGEST = 150  # characters of a run's name in its folder's


class TensorBoard(Tracker):
    """Event files of one run."""

    NEEDS, INSTALL = ("tensorboard",), "cl-bench[tensorboard]"

    def begin(self, run: TrackedRun) -> None:
        """Open a new event file; one of a fresh run hides what earlier files there have."""
        from torch.utils.tensorboard import SummaryWriter

        name = run.name.replace("/", "-")[:LONGEST]
        folder = run.folder / "tensorboard" / run.family_id / f"{name} {run.run_id}"
        self._writer = SummaryWriter(str(folder), purge_step=0 if run.fresh else None)
        listing = json.dumps(run.configuration, indent=1, ensure_ascii=False)
        indented = "\n".join(f"    {line}" for line in listing.splitlines())  # Markdown's code
        self._writer.add_text("configuration", indented)
        self._writer.add_text("run_id", run.run_id)
        self._writer.flush()

    def log(self, values: Mapping[str, float], at: At) -> None:
        """A scalar each; the file has 32 bits of it."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, at.count)
        self._writer.flush()

    def image(self, name: str, pixels: np.ndarray, at: At) -> None:
        """The picture as PNG."""
        self._writer.add_image(name, pixels, at.count, dataformats="HWC")
        self._writer.flush()

    def end(self, status: Status) -> None:
        """Close the file."""
        self._writer.close()
