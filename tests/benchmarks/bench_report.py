"""How long a report of 1,000 records takes, by `python tests/benchmarks/bench_report.py`: below 5 seconds."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from made import record, results, triangle

LAYOUT = """
title = "1,000 records"
[[table]]
name = "all"
title = "all"
columns = ["glyphs/10", "glyphs/20", "glyphs/25"]
rows = [{rows}]
baseline = "seq[batch=1]"
[[figure]]
name = "accuracy"
kind = "accuracy"
columns = ["glyphs/10", "glyphs/20", "glyphs/25"]
rows = ["seq[batch=1]", "seq[batch=2]", "seq[batch=3]"]
[[figure]]
name = "cost"
kind = "cost"
columns = ["glyphs/10"]
rows = ["seq[batch=1]", "seq[batch=2]", "seq[batch=3]"]
"""


def main() -> None:
    made, right = [], {}
    truth = np.repeat(np.arange(100), 40)
    for variant in range(67):
        for tasks in (10, 20, 25):
            for seed in range(5):
                order = np.random.default_rng(seed).permutation(100).reshape(tasks, -1)
                classes = tuple(tuple(int(c) for c in task) for task in order)
                found = record(
                    f"vpt-seq[batch={variant}]", triangle(tasks, seed + 7 * variant), seed,
                    options={"batch": variant}, dataset="glyphs", task_classes=classes,
                )  # fmt: skip
                # which images are right, so that the last line of the matrix counts them
                correct = np.concatenate([np.arange(4000 // tasks) < count for count in found.correct[-1]])
                rows = np.concatenate([np.flatnonzero(np.isin(truth, task)) for task in classes])
                answers = np.zeros(4000, bool)
                answers[rows] = correct
                found = found.model_copy(update={"test_sizes": (4000 // tasks,) * tasks})
                made.append(found)
                right[found.spec.run_id()] = (answers, truth)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        results(root / "results", made[:1000], right)
        names = ", ".join(f'"seq[batch={variant}]"' for variant in range(67))
        (root / "layout.toml").write_text(LAYOUT.replace("{rows}", names), encoding="utf-8")
        places = ("--results", str(root / "results"), "--out", str(root / "out"))
        for command in (["report", str(root / "layout.toml")], ["report"]):
            start = time.perf_counter()
            words = [sys.executable, "-m", "cl_bench", *command, *places]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            said, seconds = " ".join(Path(word).name for word in command), time.perf_counter() - start
            print(f"cl-bench {said}: {seconds:.2f} s for 1,000 records")


if __name__ == "__main__":
    main()
