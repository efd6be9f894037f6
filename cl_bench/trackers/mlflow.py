"""MLflow: a run with the tags `cl_bench.run_id`, by which it is found again, and `cl_bench.family_id`.

Its environment variables are honored: MLFLOW_TRACKING_URI (without it, a file store in `mlflow/` below the
trackers' folder), MLFLOW_EXPERIMENT_NAME and MLFLOW_EXPERIMENT_ID.
"""

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack

import numpy as np

from cl_bench.errors import InputError
from cl_bench.records import file_lock
from cl_bench.trackers.configuration import flat
from cl_bench.trackers.contract import PROJECT, At, Status, TrackedRun, Tracker

RUN, FAMILY = "cl_bench.run_id", "cl_bench.family_id"
LONGEST, AT_ONCE = 500, 100  # characters of a parameter, and parameters of one call, in all versions
STATES = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class MLflow(Tracker):
    """A run of MLflow."""

    NEEDS, INSTALL = ("mlflow",), "cl-bench[mlflow]"

    def begin(self, run: TrackedRun) -> None:
        """Begin the run, or go on with it. Raises InputError where its files would be lost."""
        uri = os.environ.get("MLFLOW_TRACKING_URI") or None
        if uri is None and run.moved:
            raise InputError("workers of a cluster need MLFLOW_TRACKING_URI, the address of a server")
        with ExitStack() as stack:
            if uri is None:
                place = run.folder / "mlflow"
                place.mkdir(parents=True, exist_ok=True)
                os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask for it
                uri, path = place.absolute().as_uri(), run.folder / ".mlflow.lock"
                lock = stack.enter_context(open(path, "ab"))
                file_lock.take(lock, path, wait=True)  # runs that begin together make one experiment
            from mlflow.tracking import MlflowClient

            self._client = MlflowClient(tracking_uri=uri)
            self._experiment = os.environ.get("MLFLOW_EXPERIMENT_ID") or self._named()
            self._id: str = (None if run.fresh else self._earlier(run)) or self._created(run)
        self._client.update_run(self._id, status="RUNNING")
        self._client.log_dict(self._id, run.configuration, "configuration.json")

    def log(self, values: Mapping[str, float], at: At) -> None:
        """A metric each, against passes or tasks."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(
            self._id, metrics=[Metric(name, value, now, at.count) for name, value in values.items()]
        )

    def image(self, name: str, pixels: np.ndarray, at: At) -> None:
        """The picture as an artifact."""
        self._client.log_image(self._id, pixels, f"{name}.png")

    def end(self, status: Status) -> None:
        """Set the run's state."""
        self._client.set_terminated(self._id, STATES[status])

    def _named(self) -> str:
        """The experiment that the variable names, or that of all these runs, made where there is none."""
        from mlflow.exceptions import MlflowException

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return self._client.create_experiment(name)
            except MlflowException:  # another run was quicker, or it cannot be had
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return found.experiment_id

    def _earlier(self, run: TrackedRun) -> str | None:
        """The newest run with this run id."""
        found = self._client.search_runs([self._experiment], f"tags.`{RUN}` = '{run.run_id}'", max_results=1)
        return found[0].info.run_id if found else None

    def _created(self, run: TrackedRun) -> str:
        from mlflow.entities import Param

        tags = {RUN: run.run_id, FAMILY: run.family_id}
        made = self._client.create_run(self._experiment, tags=tags, run_name=run.name).info.run_id
        values = [Param(key, str(value)[:LONGEST]) for key, value in flat(run.configuration).items()]
        for start in range(0, len(values), AT_ONCE):
            self._client.log_batch(made, params=values[start : start + AT_ONCE])
        return made
