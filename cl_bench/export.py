"""The runs of a results folder as one flat table: a line per run, or per entry of its accuracy matrix."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from cl_bench import metrics
from cl_bench.errors import InputError
from cl_bench.escape import csv_field
from cl_bench.record import RunRecord
from cl_bench.store import write_atomically


def run_lines(records: Sequence[RunRecord]) -> list[dict]:
    """One line per run: what it is, how it ended, every metric in every convention as a fraction, and what it cost."""
    lines = []
    for record in records:
        spec, done = record.spec, record.status == "done"
        line = {
            "run_id": spec.run_id(), "family_id": spec.family_id(), "benchmark_id": spec.benchmark_id(), "method": spec.method, "label": spec.label,
            "dataset": spec.dataset, "tasks": spec.num_tasks, "tasks_learned": len(record.tasks), "status": record.status, "joint": spec.joint,
            "order": spec.order, "order_seed": spec.order_seed, "init_seed": spec.init_seed, "data_seed": spec.data_seed,
            "backbone": spec.backbone.name, "image_size": spec.backbone.image_size, "weights_sha256": spec.weights_sha256,
            "manifest_digest": spec.manifest_digest, "limit": spec.limit, "validation": spec.validation, "precision": spec.precision,
            "smoke": spec.smoke, "core_version": spec.core_version, "method_version": spec.method_version,
        }  # fmt: skip
        for name in metrics.ACCURACY_CONVENTIONS:
            line[f"accuracy_{name}"] = metrics.final_accuracy(record.correct, record.test_sizes, name) if done else None
            one_row = not done or spec.joint
            line[f"average_incremental_accuracy_{name}"] = (
                None if one_row else metrics.average_incremental_accuracy(record.correct, record.test_sizes, name)
            )
        for name in metrics.FORGETTING_CONVENTIONS:
            line[f"forgetting_{name}"] = metrics.forgetting(record.correct, record.test_sizes, name) if done else None
        line |= {
            "inductive": record.certificate.inductive if record.certificate else None,
            "learn_seconds": sum(task.learn_seconds for task in record.tasks),
            "evaluate_seconds": sum(task.evaluate_seconds for task in record.tasks),
            "images_seen": sum(task.images_seen for task in record.tasks),
            "peak_memory_bytes": max((task.peak_memory_bytes for task in record.tasks), default=None),
            "trainable_parameters": record.tasks[-1].trainable_parameters if record.tasks else None,
            "stored_values": record.tasks[-1].stored_values if record.tasks else None,
        }
        lines.append(line)
    return lines


def matrix_lines(records: Sequence[RunRecord]) -> list[dict]:
    """One line per run, learned task and evaluated task (both from 1): right answers among all classes seen and within the task, test images."""
    return [
        {
            "run_id": record.spec.run_id(), "label": record.spec.label, "after_task": t, "task": j, "correct": right,
            "correct_within_task": within, "images": size,
        }
        for record in records
        for t, task in enumerate(record.tasks, 1)
        for j, (right, within, size) in enumerate(zip(task.correct, task.correct_within_task, record.test_sizes, strict=False), 1)
    ]  # fmt: skip


LINES = {"runs": run_lines, "matrix": matrix_lines}


def write(lines: Sequence[dict], path: Path, kind: str) -> None:
    """A file of kind csv (empty where there is no value) or parquet. Raises InputError when there is nothing, or no writer for it."""
    if not lines:
        raise InputError("there are no runs to export; `cl-bench run` makes some")
    content = io.BytesIO()
    if kind == "csv":
        text = io.TextIOWrapper(content, encoding="utf-8", newline="", write_through=True)
        writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: csv_field(value) for key, value in line.items()} for line in lines)
    else:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise InputError('Parquet files need pyarrow: pip install "cl-bench[parquet]", or export --format csv') from error
        parquet.write_table(pyarrow.Table.from_pylist(list(lines)), content)
    try:
        write_atomically(path, content.getvalue())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; choose another file with --out") from error
