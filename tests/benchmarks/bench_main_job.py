"""What the README's main job costs from a cold start: seconds, peak memory of a run, and start-up.

    python tests/benchmarks/bench_main_job.py [--against CHECKOUT] [-- OPTIONS]

Targets on 2 idle cores: the job under 2 minutes with the image cache empty, a run under 1.2 GB, `cl-bench
--help` under 1 second. CHECKOUT is the source at another commit (`git worktree add CHECKOUT COMMIT`), whose
job is run and timed first, as a ratio; OPTIONS are further ones of this one's job, such as `--set
precision=fp32`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cl_bench.records.store import Store

JOB = ("run", "--methods", "nsp2,pgp", "--splits", "10")


def seconds(source: Path, folder: Path, *arguments: str) -> float:
    """Wall-clock seconds of one `cl-bench` command of this source; prints the rows of its table."""
    environment = {
        **os.environ,
        "CL_BENCH_CACHE": str(folder / "cache"),
        "PYTHONPATH": str(source),
        "PYTHONSAFEPATH": "1",
    }
    start = time.perf_counter()
    command = [sys.executable, "-m", "cl_bench", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    taken = time.perf_counter() - start
    print("\n".join(line for line in done.stdout.splitlines() if line.startswith("| VPT")), flush=True)
    return taken


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", type=Path)
    parser.add_argument("options", nargs="*")
    asked, here = parser.parse_args(), Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = None
        if asked.against:
            (folder / "before").mkdir()
            before = seconds(asked.against.resolve(), folder / "before", *JOB)
            print(f"main job of {asked.against}, cache empty: {before:.0f} s")
        own = seconds(here, folder, *JOB, *asked.options)
        print(
            f"main job, cache empty: {own:.0f} s" + (f", {before / own:.2f} times as fast" if before else "")
        )
        for record in Store(folder / "results").records():
            peak = max(task.peak_memory_bytes for task in record.tasks) / 1e9
            learn, evaluate = (
                sum(getattr(task, key) for task in record.tasks)
                for key in ("learn_seconds", "evaluate_seconds")
            )
            print(
                f"{record.spec.label} in {record.spec.precision}: peak {peak:.2f} GB, "
                f"{learn:.0f} s learning, {evaluate:.0f} s evaluating"
            )
        print(f"cl-bench --help: {min(seconds(here, folder, '--help') for _ in range(5)):.2f} s (best of 5)")


if __name__ == "__main__":
    main()
