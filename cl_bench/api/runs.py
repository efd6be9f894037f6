"""Runs of a results folder as pandas DataFrames."""

import warnings
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cl_bench.api.names import NAMED, named
from cl_bench.config import unknown
from cl_bench.errors import CannotRead, InputError
from cl_bench.notation import items
from cl_bench.records import export, states
from cl_bench.records.frames import frame
from cl_bench.records.metrics import ACCURACY_CONVENTIONS, FORGETTING_CONVENTIONS, MEASURES, Conventions
from cl_bench.records.record import RunRecord
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import BROKEN_ARCHIVE, LeftOut, Store
from cl_bench.report.settings import configured, on_benchmark
from cl_bench.report.spec import selector
from cl_bench.report.write import read_records

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

    All but `table` and `predictions` name runs in the same columns. Runs of one `label` and `benchmark`
    differ in `seed` (of class order, initialization and data) alone, as do those of one `family_id`: trials,
    other backbones and other settings have other names. Those of one `benchmark_id` may be compared.
    """

    def __init__(self, store: Store, records: Sequence[RunRecord], left_out: Sequence[LeftOut] = ()):
        self._store, self._records, self._left_out = store, list(records), list(left_out)
        known = [found.spec for found in left_out if found.spec]
        self._names = named([*(record.spec for record in records), *known])  # also of selections
        self._running = states.running(store, records)

    @property
    def left_out(self) -> list[str]:
        """Why, of each record that a number of these runs lacks, or may lack."""
        return [found.reason for found in self._left_out]

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        lacking = f", {len(self.left_out)} records left out" if self.left_out else ""
        return f"<{len(self)} runs in {self._store.root}{lacking}>"

    def _repr_html_(self) -> str:
        shown: Any = self.metrics()  # its types leave out what notebooks ask for
        return shown._repr_html_()

    def table(self) -> pd.DataFrame:
        """A row a run: what it is, its state when it was loaded, every metric in every convention, its cost.

        The columns are those of `cl-bench export`. What is left out has a row without numbers, whose `status`
        is "damaged", "unreadable" or "misplaced"; its run id is not among those of the other tables.
        """
        return frame(export.run_lines(self._records, self._left_out, self._running), export.COLUMNS)

    def matrix(self) -> pd.DataFrame:
        """The accuracy matrices: a row for each run, task learned (`after`) and task evaluated (`on`).

        `correct` of `n` test images are right among all classes seen so far, `correct_within_task` among
        those of the image's task.
        """
        lines = export.matrix_lines(self._records)
        names = {"after_task": "after", "task": "on", "images": "n"}
        lines = [{names.get(key, key): value for key, value in line.items()} for line in lines]
        return self._frame(lines, ("after", "on", "correct", "correct_within_task", "n"))

    def diagnosis(self) -> pd.DataFrame:
        """What `diagnose` measured: a row for each run, task learned (`after`), block and quantity.

        Blocks count from 1, <NA> is the whole network; quantities are those of `cl_bench.records.diagnosis`.
        """
        lines = [{"after": line["after_task"], **line} for line in export.diagnosis_lines(self._records)]
        return self._frame(lines, ("after", "block", "quantity", "value"))

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
                lines.append({"run_id": record.spec.run_id(), **values})
        return self._frame(lines, tuple(METRICS))

    def _frame(self, lines: Sequence[dict], columns: tuple[str, ...]) -> pd.DataFrame:
        """A DataFrame of lines that have a `run_id`: the columns `NAMED`, and these."""
        return frame([{**line, **self._names[line["run_id"]]} for line in lines], (*NAMED, *columns))

    def select(
        self,
        methods: str,
        benchmark: str | None = None,
        *,
        limit: int | None = None,
        validation: float | None = None,
        backbone: str | None = None,
        image_size: int | None = None,
    ) -> "Runs":
        """The runs of methods as they are written after `--methods`, such as "nsp2[eta=0.9]".

        With a benchmark, such as "glyphs/10", those on it by the full protocol, as in a report's columns:
        trials and runs on held-out images only by their `limit` (of training images) and `validation` (a
        fraction of the training images). Any `backbone` and `image_size` (in pixels) where none is named. A
        name from the column `benchmark` means just that one; without a benchmark, each of the others narrows.

        What is left out stays so where its run is selected, or may be. Warns of methods whose runs on the
        benchmark are all of another protocol. Raises InputError for unknown methods.
        """
        wanted = {item: selector(item) for item in items(methods)}
        if not wanted:
            raise InputError("name a method to select, such as nsp2 or nsp2[eta=0.9]")
        asked = {"limit": limit, "validation": validation, "backbone": backbone, "image_size": image_size}
        names = {method for method, _ in wanted.values()}

        def chosen(spec: RunSpec) -> bool:
            named_so = any(configured(spec, *one) for one in wanted.values())
            return named_so and self._is_on(spec, benchmark, asked)

        def may_be(each: LeftOut) -> bool:
            return chosen(each.spec) if each.spec else each.folder.rpartition("-")[0] in names

        found = copy(self)
        found._records = [record for record in self._records if chosen(record.spec)]
        found._left_out = [each for each in self._left_out if may_be(each)]
        for item, one in wanted.items():
            if benchmark and not any(configured(record.spec, *one) for record in found._records):
                self._warn_of_others(item, one, benchmark)
        return found

    def _is_on(self, spec: RunSpec, benchmark: str | None, asked: dict[str, Any]) -> bool:
        """Whether a run is on the benchmark, if one is named, by the protocol and backbone asked for."""
        if benchmark not in (None, self._names[spec.run_id()]["benchmark"]):
            return on_benchmark(spec, str(benchmark), **asked)
        own = {
            "limit": spec.limit,
            "validation": spec.validation,
            "backbone": spec.backbone.name,
            "image_size": spec.backbone.image_size,
        }
        return all(value in (None, own[key]) for key, value in asked.items())

    def _warn_of_others(self, item: str, one: tuple[str, dict], benchmark: str) -> None:
        """Warn that a method's runs on a benchmark are of another protocol or backbone, if there are any."""
        specs = [record.spec for record in self._records if configured(record.spec, *one)]
        ids = [spec.run_id() for spec in specs if spec.is_called(benchmark)]
        if ids:
            others = ", ".join(dict.fromkeys(self._names[run_id]["benchmark"] for run_id in ids))
            ask = "ask with limit, validation, backbone or image_size"
            none = f"no run of {item} on {benchmark} is selected, but there are runs on {others}"
            warnings.warn(f"{none}; {ask}", stacklevel=3)

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


def load(results: str | Path = "results") -> Runs:
    """The runs of a results folder, finished or not.

    Raises InputError where there is no such folder or no run in it, CannotRead where it cannot be read.
    """
    store = Store(Path(results))
    records, left_out = read_records(store)
    if not records and not left_out:
        raise InputError(f"there is no run in {store.root}; `cl-bench run` or cl_bench.run(...) makes some")
    return Runs(store, records, [found for found in left_out if found.lacking])
