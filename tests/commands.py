"""Whole commands, here or as processes of their own, and what they leave behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cl_bench.cli import main
from cl_bench.records.record import RunRecord
from cl_bench.records.store import Store

ROOT = Path(__file__).resolve().parents[1]


def command(*words) -> int:
    """The exit code of a command in this process."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


def start(folder, *arguments, patch: str | None = None) -> subprocess.Popen:
    """A command in `folder`; every Python process of it first runs `patch`."""
    paths = [str(ROOT)]
    if patch is not None:
        (folder / "patch").mkdir(exist_ok=True)
        (folder / "patch" / "sitecustomize.py").write_text(patch)
        paths.append(str(folder / "patch"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "cl_bench", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def records(folder) -> list[RunRecord]:
    return list(Store(folder / "results").records())


def wait_for(condition, seconds=120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def learned(folder) -> list[int]:
    return [len(record.tasks) for record in records(folder) if isinstance(record, RunRecord)]


def outcomes(folder) -> list[dict]:
    return [record.outcome() for record in records(folder)]
