"""What the README's main job costs from a cold start: seconds, peak memory of a run, and the start-up of the help text.

    python tests/benchmarks/bench_main_job.py

Targets on 2 idle cores: the job under 5 minutes with the image cache empty, a run under 2 GB, `cl-bench --help` under 1 second.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def seconds(*arguments: str, folder: Path) -> float:
    """Wall-clock seconds of one `cl-bench` command."""
    environment = {**os.environ, "CL_BENCH_CACHE": str(folder / "cache"), "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "cl_bench", *arguments], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"cl-bench --help: {min(seconds('--help', folder=folder) for _ in range(5)):.2f} s (best of 5)")
        print(f"main job, cache empty: {seconds('run', '--methods', 'nsp2,pgp', '--splits', '10', folder=folder):.0f} s")
        for path in folder.glob("results/runs/*/record.json"):
            tasks = json.loads(path.read_text())["record"]["tasks"]
            peak = max(task["peak_memory_bytes"] for task in tasks) / 1e9
            learn, evaluate = (sum(task[key] for task in tasks) for key in ("learn_seconds", "evaluate_seconds"))
            print(f"{path.parent.name}: peak {peak:.2f} GB, {learn:.0f} s learning, {evaluate:.0f} s evaluating")


if __name__ == "__main__":
    main()
