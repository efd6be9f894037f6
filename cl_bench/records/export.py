"""The runs of a results folder as one flat table: a line per run, or per entry of its accuracy matrix."""

from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

from cl_bench.errors import InputError
from cl_bench.files import write_atomically
from cl_bench.records import metrics
from cl_bench.records.costs import COSTS
from cl_bench.records.record import RunRecord
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import LeftOut
from cl_bench.text.escape import csv_field


def run_lines(
    records: Sequence[RunRecord], left_out: Sequence[LeftOut] = (), running: Container[str] = ()
) -> list[dict]:
    """One line per run: what it is, its state, every metric in every convention as a fraction, its cost.

    Those that are left out have a line without numbers. `running` are the ids of the runs that a process
    works on.
    """
    lines = []
    for record in records:
        run_id = record.spec.run_id()
        state = {"done": "finished", "failed": "failed"}.get(record.status, "stopped")
        if state != "finished" and run_id in running:
            state = "running"
        learned = {"tasks_learned": len(record.tasks), "status": state}
        lines.append({"run_id": run_id, **_described(record.spec), **learned, **_numbers(record)})
    empty = dict.fromkeys((*_described(None), *_numbers(None)))
    for found in left_out:
        method, _, run_id = found.folder.rpartition("-")
        described = _described(found.spec) if found.spec else {"method": method}
        lines.append({"run_id": run_id, **empty, **described, "tasks_learned": None, "status": found.kind})
    return [{key: line[key] for key in COLUMNS} for line in lines]


def _described(spec: RunSpec | None) -> dict:
    """What a run is; without one, the names of the columns."""
    names = (
        "method", "label", "dataset", "split", "num_tasks", "joint", "online", "order", "order_seed",
        "init_seed", "data_seed", "weights_sha256", "manifest_digest", "limit", "validation", "precision",
        "smoke", "core_version", "method_version", "keeps",
    )  # fmt: skip
    found = {"tasks" if name == "num_tasks" else name: getattr(spec, name, None) for name in names}
    return found | {
        "family_id": spec and spec.family_id(),
        "benchmark_id": spec and spec.benchmark_id(),
        "backbone": spec and spec.backbone.name,
        "image_size": spec and spec.backbone.image_size,
    }


def _numbers(record: RunRecord | None) -> dict:
    """What came out of a run; without one, the names of the columns."""
    done = record if record is not None and record.status == "done" else None
    counts = (done.correct, done.test_sizes) if done else None
    several = counts if done and not done.spec.joint else None
    tasks = record.tasks if record else ()
    line: dict[str, Any] = {}
    for name in metrics.ACCURACY_CONVENTIONS:
        line[f"accuracy_{name}"] = metrics.final_accuracy(*counts, name) if counts else None
        mean = metrics.average_incremental_accuracy(*several, name) if several else None
        line[f"average_incremental_accuracy_{name}"] = mean
    for name in metrics.FORGETTING_CONVENTIONS:
        line[f"forgetting_{name}"] = metrics.forgetting(*counts, name) if counts else None
    return line | {
        "backward_transfer": metrics.backward_transfer(*counts) if counts else None,
        "inductive": record.certificate.inductive if record and record.certificate else None,
        "learn_seconds": sum(task.learn_seconds for task in tasks),
        "evaluate_seconds": sum(task.evaluate_seconds for task in tasks),
        "training_seconds": _sum(task.training_seconds for task in tasks),
        "processor_seconds": _sum(task.processor_seconds for task in tasks),
        "certificate_seconds": record.certificate_seconds if record else None,
        "images_seen": sum(task.images_seen for task in tasks),
        **{name: COSTS[cost].of(record) if record and tasks else None for name, cost in SO_FAR.items()},
    }


def _sum(seconds: Iterable[float | None]) -> float | None:
    """None where one is not known."""
    known = list(seconds)
    return None if None in known else sum(filter(None, known))


SO_FAR = {  # columns of costs that a run has from its first task on
    "peak_memory_bytes": "memory",
    "trainable_parameters": "trained",
    "stored_values": "stored",
    "stored_values_per_task": "stored_per_task",
    "stored_values_per_class": "stored_per_class",
    "prediction_passes": "passes",
}

COLUMNS = (
    "run_id", "family_id", "benchmark_id", "method", "label", "dataset", "split", "tasks", "tasks_learned",
    "status", "joint", "online", "order", "order_seed", "init_seed", "data_seed", "backbone", "image_size",
    "weights_sha256", "manifest_digest", "limit", "validation", "precision", "smoke", "core_version",
    "method_version", *_numbers(None), "keeps",
)  # fmt: skip


def matrix_lines(records: Sequence[RunRecord]) -> list[dict]:
    """One line per run, learned task and evaluated task (both from 1): right answers, and test images."""
    lines = []
    for record in records:
        run: dict[str, Any] = {"run_id": record.spec.run_id(), "label": record.spec.label}
        for t, task in enumerate(record.tasks, 1):
            counts = zip(task.correct, task.correct_within_task, record.test_sizes, strict=False)
            for j, (right, within, size) in enumerate(counts, 1):
                found = {"correct": right, "correct_within_task": within, "images": size}
                lines.append({**run, "after_task": t, "task": j, **found})
    return lines


DIAGNOSIS = ("run_id", "label", "after_task", "block", "quantity", "value")


def diagnosis_lines(records: Sequence[RunRecord]) -> list[dict]:
    """One line per run, learned task, block (from 1; None: the whole network) and measured quantity.

    Quantities are those of `cl_bench.records.diagnosis`.
    """
    return [
        dict(zip(DIAGNOSIS, (record.spec.run_id(), record.spec.label, t, *found), strict=True))
        for record in records
        for t, task in enumerate(record.tasks, 1)
        for found in (task.diagnosis.lines() if task.diagnosis else ())
    ]


def write(lines: Sequence[dict], path: Path, kind: str) -> None:
    """A file of kind csv (empty where there is no value) or parquet.

    Raises InputError when there is nothing to write, or no writer for it.
    """
    if not lines:
        raise InputError("there are no runs to export; `cl-bench run` makes some")
    from cl_bench.records.frames import frame  # pandas takes a while to import

    made = frame(lines, list(lines[0]))
    if kind == "csv":
        content = made.map(csv_field).to_csv(index=False, lineterminator="\n").encode()
    else:
        try:
            content = made.to_parquet(index=False)
        except ImportError as error:
            what_to_do = 'pip install "cl-bench[parquet]", or export --format csv'
            raise InputError(f"Parquet files need pyarrow: {what_to_do}") from error
    try:
        write_atomically(path, content)
    except OSError as error:
        reason = f"{error.strerror or error}; choose another file with --out"
        raise InputError(f"cannot write {path}: {reason}") from error
