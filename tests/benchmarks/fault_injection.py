"""Kills runs and orchestrators at random moments and compares every record with that of an uninterrupted run.

python tests/benchmarks/fault_injection.py [--kills 50] [--orchestrators 10]
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import toys

from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.records.store import Store, write_spec

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def main() -> None:
    """Print how many kills were survived, and raise where a record differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--orchestrators", type=int, default=10)
    given = parser.parse_args()
    random.seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        toys.write_folder(folder / "data", classes=8)
        toys.write_weights(folder / "w.safetensors")
        request = {
            "dataset": f"folder:{folder / 'data'}", "backbone": "test_vit",
            "weights": str(folder / "w.safetensors"), "image_size": 32, "splits": "4",
            "set": {"passes": 60, "batch": 8, "epoch_mode": "plain", "temperature": 4.0},
        }  # fmt: skip
        kill_runs(folder, request, given.kills)
        kill_orchestrators(folder, request, given.orchestrators)


def kill_runs(folder: Path, request: dict, kills: int) -> None:
    """Kill runs a few times each, at any moment from the start to a little after the end."""
    [spec] = make_plan(Request(methods="nsp2", **request)).specs
    expected, whole = finished(spec, folder / "whole")
    killed = during_learning = attempt = 0
    while killed < kills:
        attempt += 1
        for _ in range(3):
            tasks = kill(spec, folder / f"run {attempt}", random.uniform(0.3, 1.1 * whole))
            killed += tasks is not None
            during_learning += tasks is not None and 0 < tasks < 4
        assert finished(spec, folder / f"run {attempt}")[0] == expected, "a record differs"
    print(
        f"{killed} kills of {attempt} runs, {during_learning} of them between first and last task: "
        "every record equals the whole run's"
    )


def kill_orchestrators(folder: Path, request: dict, kills: int) -> None:
    """Kill a command of four runs, again and again, before it is let go on to its end."""
    options = {f"--{key.replace('_', '-')}": str(value) for key, value in request.items() if key != "set"}
    several = [part for option in options.items() for part in option]
    several += [part for key, value in request["set"].items() for part in ("--set", f"{key}={value}")]
    methods = ["--methods", "seq,nsp2[eta=0.5|0.97],pgp"]
    command = [
        sys.executable,
        "-m",
        "cl_bench",
        "run",
        *methods,
        "--devices",
        "cpu",
        "--threads",
        "1",
        *several,
    ]

    def carry_out(name: str) -> list[dict]:
        subprocess.run(command, cwd=at(folder / name), env=ENVIRONMENT, check=True, capture_output=True)
        return [record.outcome() for record in Store(folder / name / "results").records()]

    expected = carry_out("all")
    for _ in range(kills):
        place = at(folder / "killed")
        process = subprocess.Popen(command, cwd=place, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(3.0, 12.0))
        process.kill()
        process.wait()
    assert carry_out("killed") == expected, "a record differs"
    print(f"{kills} kills of an orchestrator of 4 runs: every record equals the whole plan's")


def at(folder: Path) -> Path:
    """The folder, made."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_one(spec, root: Path) -> list[str]:
    """The command that carries out one run."""
    path = write_spec(spec, Store(root).folder(spec))
    return [sys.executable, "-m", "cl_bench", "run-one", str(path), "--results", str(root)]


def kill(spec, root: Path, seconds: float) -> int | None:
    """SIGKILL after so many seconds; the tasks its record has then, None when it had ended before."""
    process = subprocess.Popen(
        run_one(spec, root), env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    if process.wait() == 0:
        return None
    record = Store(root).load(spec)
    return len(record.tasks) if record else 0


def finished(spec, root: Path) -> tuple[dict, float]:
    """The outcome of the run carried out to its end, and the seconds that took."""
    start = time.perf_counter()
    subprocess.run(run_one(spec, root), env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
    return Store(root).load(spec).outcome(), time.perf_counter() - start


if __name__ == "__main__":
    main()
