"""Seconds to list a results folder of thousands of runs, without the index and with it.

    python tests/benchmarks/bench_listing.py [--runs 2000]

Target: under 2 seconds for 2,000 records, start of the program included.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def fill(results: Path, runs: int) -> None:
    """Records of ten tasks each, as a finished run of ten tasks has them."""
    from cl_bench.plan.plan import make_plan
    from cl_bench.plan.request import Request
    from cl_bench.records.record import RunRecord, TaskRecord
    from cl_bench.records.store import Store

    [spec] = make_plan(Request(methods="nsp2")).specs
    store = Store(results)
    store.prepare()
    sizes = (400,) * 10
    tasks = tuple(
        TaskRecord(
            classes=classes, correct=(300,) * (index + 1), correct_within_task=(350,) * (index + 1),
            training_images=800, images_seen=12800, pass_losses=tuple(1 / (n + 3) for n in range(15)),
            trainable_parameters=2836, stored_values=100_000,
            diagnostics={"R1": [60] * 6, "R2": [2] * 6, "update_inside_protected": [0.123456] * 6},
            checkpoint_sha256="0" * 64, predictions_sha256="0" * 64,
            learn_seconds=10.0, evaluate_seconds=1.0, peak_memory_bytes=10**9,
        )
        for index, classes in enumerate(spec.task_classes)
    )  # fmt: skip
    for seed in range(runs):
        record = RunRecord(
            spec=spec.model_copy(update={"init_seed": seed}),
            status="done",
            test_sizes=sizes,
            tasks=tasks,
            threads=1,
            environments=({"device": "cpu"},),
        )
        store.folder(record.spec).mkdir()
        store.save(record)


def seconds(*arguments: str) -> tuple[float, str]:
    """Wall-clock of a command, and what it printed."""
    start = time.perf_counter()
    out = subprocess.run(
        [sys.executable, "-m", "cl_bench", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return time.perf_counter() - start, out


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=2000)
    count = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        fill(results, count)
        cold, out = seconds("ls", "runs", "--results", str(results))
        assert out.splitlines()[-1] == f"{count} runs: {count} done"
        warm = min(seconds("ls", "runs", "--results", str(results))[0] for _ in range(3))
        status = min(seconds("status", "--results", str(results))[0] for _ in range(3))
        times = f"without index {cold:.2f} s, with it {warm:.2f} s; status {status:.2f} s"
        print(f"{count} records: ls runs {times}")


if __name__ == "__main__":
    main()
