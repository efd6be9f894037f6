"""Runs of a results folder as pandas DataFrames."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cl_bench.config import unknown
from cl_bench.errors import CannotRead, InputError
from cl_bench.notation import items
from cl_bench.records import export
from cl_bench.records.frames import frame
from cl_bench.records.metrics import ACCURACY_CONVENTIONS, FORGETTING_CONVENTIONS, MEASURES, Conventions
from cl_bench.records.record import RunRecord
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import BROKEN_ARCHIVE, LeftOut, Store
from cl_bench.report.settings import configured
from cl_bench.report.spec import selector
from cl_bench.report.write import read_records

NAMED = ("run_id", "label", "benchmark", "seed")  # what a run is called
METRICS = {
    "accuracy": "accuracy",
    "forgetting": "forgetting",
    "average_incremental_accuracy": "incremental",
    "backward_transfer": "transfer",
}


class Runs:
    """Some runs of a results folder, and a sentence (`left_out`) for each record that no number is made of.

    Every method returns a new DataFrame. Metrics are fractions from 0 to 1, times are seconds, memory is
    bytes; tasks are counted from 1. What does not exist, such as forgetting after one task, is <NA>.
    """

    def __init__(self, store: Store, records: Sequence[RunRecord], left_out: Sequence[LeftOut] = ()):
        self._store, self._records = store, list(records)
        self.left_out = [found.reason for found in left_out]

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        lacking = f", {len(self.left_out)} records left out" if self.left_out else ""
        return f"<{len(self)} runs in {self._store.root}{lacking}>"

    def _repr_html_(self) -> str:
        shown: Any = self.metrics()  # its types leave out what notebooks ask for
        return shown._repr_html_()

    def table(self) -> pd.DataFrame:
        """A row a run: what it is, its state, every metric in every convention, its cost.

        The columns are those of `cl-bench export`.
        """
        return frame(export.run_lines(self._records), export.COLUMNS)

    def matrix(self) -> pd.DataFrame:
        """The accuracy matrices: a row for each run, task learned (`after`) and task evaluated (`on`).

        `correct` of `n` test images are right among all classes seen so far, `correct_within_task` among
        those of the image's task.
        """
        lines = export.matrix_lines(self._records)
        names = {"after_task": "after", "task": "on", "images": "n"}
        lines = [{names.get(key, key): value for key, value in line.items()} for line in lines]
        return frame(lines, ("run_id", "label", "after", "on", "correct", "correct_within_task", "n"))

    def diagnosis(self) -> pd.DataFrame:
        """What `diagnose` measured: a row for each run, task learned (`after`), block and quantity.

        Blocks count from 1, <NA> is the whole network; quantities are those of `cl_bench.records.diagnosis`.
        """
        lines = export.diagnosis_lines(self._records)
        return frame(lines, export.DIAGNOSIS).rename(columns={"after_task": "after"})

    def metrics(self, accuracy: str = "task_mean", forgetting: str = "chaudhry") -> pd.DataFrame:
        """Accuracy, forgetting, average incremental accuracy and backward transfer of each finished run.

        The conventions are those of `--accuracy` and `--forgetting`. Raises InputError for another.
        """
        known = ((accuracy, ACCURACY_CONVENTIONS), (forgetting, FORGETTING_CONVENTIONS))
        for name, conventions in known:
            if name not in conventions:
                raise unknown("convention", name, conventions)
        chosen, lines = Conventions(accuracy, forgetting), []
        for record in self._records:
            if record.status == "done":
                values = {name: MEASURES[measure](record, chosen) for name, measure in METRICS.items()}
                lines.append({**named(record.spec), **values})
        return frame(lines, (*NAMED, *METRICS))

    def select(self, methods: str, benchmark: str | None = None) -> "Runs":
        """The runs of methods as they are written after `--methods`, such as "nsp2[eta=0.9]".

        With a benchmark, such as "glyphs/10", those on it. Raises InputError for unknown names.
        """
        wanted = [selector(item) for item in items(methods)]
        if not wanted:
            raise InputError("name a method to select, such as nsp2 or nsp2[eta=0.9]")
        found = [
            record
            for record in self._records
            if any(configured(record.spec, *one) for one in wanted)
            and (benchmark is None or record.spec.is_called(benchmark))
        ]
        return Runs(self._store, found)

    def predictions(self, run_id: str) -> pd.DataFrame:
        """What a run predicted: a row for each test image and task learned that knew its class.

        `image` is the image's number on the test side, from 0; `truth` and `predicted` are class numbers of
        the data set. Raises InputError for a run that is not here, or whose predictions are not stored.
        """
        found = [record for record in self._records if record.spec.run_id().startswith(run_id)]
        if len(found) != 1:
            raise InputError(f"{len(found)} runs begin with {run_id!r}; name one, as in the column run_id")
        arrays = self._arrays(found[0].spec)
        truth, lines = arrays.pop("truth"), []
        for name, predicted in sorted(arrays.items()):
            known = np.flatnonzero(predicted >= 0)
            after = int(name.removeprefix("task_"))
            columns = {"after": after, "image": known, "truth": truth[known], "predicted": predicted[known]}
            lines.append(pd.DataFrame(columns, dtype="Int64"))
        return pd.concat(lines, ignore_index=True)

    def _arrays(self, spec: RunSpec) -> dict[str, np.ndarray]:
        path = self._store.folder(spec) / "predictions.npz"
        try:
            with np.load(path) as arrays:
                found = {name: arrays[name] for name in arrays.files}
        except FileNotFoundError as error:
            raise InputError(f"the predictions of {spec.run_id()} are not stored: no {path}") from error
        except OSError as error:
            raise CannotRead(path, error) from error
        except BROKEN_ARCHIVE as error:
            raise InputError(f"{path} is damaged ({type(error).__name__})") from error
        if "truth" not in found:
            raise InputError(f"{path} has no true classes: it is of an older version")
        return found


def named(spec: RunSpec) -> dict:
    """What a run is called: the columns `NAMED`."""
    return {
        "run_id": spec.run_id(),
        "label": spec.label,
        "benchmark": spec.benchmark_key(),
        "seed": spec.seed_name(),
    }


def load(results: str | Path = "results") -> Runs:
    """The runs of a results folder, finished or not.

    Raises InputError where there is no such folder or no run in it, CannotRead where it cannot be read.
    """
    store = Store(Path(results))
    records, left_out = read_records(store)
    if not records and not left_out:
        raise InputError(f"there is no run in {store.root}; `cl-bench run` or cl_bench.run(...) makes some")
    return Runs(store, records, [found for found in left_out if found.lacking])
