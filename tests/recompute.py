"""Every number of a report's tables again, from the records' files alone: no import of the project."""

import json
import statistics
import tomllib
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path

FULL = {"seq": "vpt-seq", "pgp": "vpt-pgp", "nsp2": "vpt-nsp2", "joint": "vpt-joint"}


def accuracy(matrix, sizes):
    return 100 * statistics.mean(Fraction(right, size) for right, size in zip(matrix[-1], sizes, strict=True))


def forgetting(matrix, sizes):
    tasks = range(len(matrix) - 1)
    return 100 * statistics.mean(
        Fraction(max(matrix[t][j] for t in range(j, len(matrix) - 1)) - matrix[-1][j], sizes[j])
        for j in tasks
    )


MEASURES = {"accuracy": accuracy, "forgetting": forgetting}


def named(label):
    """A method with its options, in whatever order they stand."""
    method, _, options = label.partition("[")
    return FULL.get(method, method), frozenset(options.rstrip("]").split(","))


def rounded(value):
    return str((Decimal(value.numerator) / value.denominator).quantize(Decimal("0.01"), ROUND_HALF_UP))


def cells(layout: Path, results: Path) -> dict[str, list[list[str | None]]]:
    """Rows of every table with an accuracy or forgetting; None for other cells."""
    runs = {}
    for path in results.glob("runs/*/record.json"):
        found = json.loads(path.read_text(encoding="utf-8"))["record"]
        spec = found["spec"]
        folder = f":{spec['dataset_argument']}" if spec["dataset_argument"] else ""
        key = (named(spec["label"]), f"{spec['dataset']}{folder}/{len(spec['task_classes'])}")
        runs.setdefault(key, []).append(
            ([task["correct"] for task in found["tasks"]], found["test_sizes"], found["status"])
        )
    tables = {}
    for table in tomllib.loads(layout.read_text(encoding="utf-8"))["table"]:
        metrics = table.get("metrics", [*MEASURES])
        if not MEASURES.keys() & set(metrics):  # costs and diagnoses, which records state
            continue
        lines = []
        for row in table["rows"]:
            line = []
            for column in table["columns"]:
                benchmark = column if isinstance(column, str) else column["benchmark"]
                done = [
                    (m, s)
                    for m, s, status in runs.get((named(row.get("select", "")), benchmark), [])
                    if status == "done"
                ]
                for measure in map(MEASURES.get, metrics):
                    if measure is None:
                        line.append(None)
                        continue
                    values = [measure(m, s) for m, s in done if measure is accuracy or len(m) > 1]
                    spread = f" ± {statistics.stdev(map(float, values)):.2f}" if len(values) > 1 else ""
                    line.append(rounded(statistics.mean(values)) + spread if values else "–")
            lines.append(line)
        tables[table["name"]] = lines
    return tables
