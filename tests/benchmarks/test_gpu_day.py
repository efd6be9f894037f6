"""The script for the first day on a GPU runs, on a processor, from its first part to its last."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toys

SCRIPT = Path(__file__).resolve().parent / "gpu_day.py"
ARCHIVE = toys.SHARED / "data" / "cifar100_full.zip"
pytestmark = pytest.mark.slow  # whole processes that import torch


def day(folder: Path, *options) -> tuple[int, str, dict]:
    """The exit code, and what stands in both files, of the script with these options."""
    paths = {"PYTHONPATH": str(SCRIPT.parents[2]), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(SCRIPT), "--out", str(folder), *map(str, options)]
    done = subprocess.run(words, env={**os.environ, **paths}, stdout=subprocess.PIPE, encoding="utf-8")
    text = (folder / "gpu_day.txt").read_text(encoding="utf-8")
    return done.returncode, text, json.loads((folder / "gpu_day.json").read_text(encoding="utf-8"))


def states(values: dict) -> dict[str, str]:
    return {part["name"]: part["state"] for part in values["parts"]}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    images = ["--images", ARCHIVE] if ARCHIVE.exists() else []
    return day(tmp_path_factory.mktemp("smoke"), "--smoke", *images)


def test_every_part_finds_something(smoke):
    code, text, values = smoke
    assert code == 0 and values["smoke"]
    assert set(states(values).values()) == {"done"}, text
    assert all(part["found"] and f"{part['name']}: done" in text for part in values["parts"])


def test_what_was_measured_adds_up(smoke):
    found = {part["name"]: part["found"] for part in smoke[2]["parts"]}
    images = "of CIFAR-100, from cifar100_full.zip" if ARCHIVE.exists() else "generated"
    assert found["inputs"] == {"images": images}
    whole = found["forecast with compilation"]
    assert whole["seconds"] == pytest.approx(sum(whole["pieces"].values()))
    # 8 classes of 16 training and 4 test images in 4 tasks: one pass, statistics after all but the last
    # task, and 8 + 16 + 24 + 32 predictions
    assert whole["images"] == {"training": 128, "statistics": 96, "evaluation": 80}
    speeds = found["speed nsp2"]["images_per_second"]
    assert whole["pieces"]["evaluation"] == pytest.approx(80 / speeds["evaluation"])
    assert sum(found["profile"]["kinds"].values()) == pytest.approx(1) and 0 < found["profile"]["busy"] <= 1
    assert found["short run nsp2"]["status"] == "done" and len(found["short run nsp2"]["tasks"]) == 4
    assert len(found["command"]["table"]) == 4 and min(found["peak"].values()) > 0


def test_what_there_is_no_time_for_is_left_out_by_name(tmp_path):
    start = time.monotonic()
    code, text, values = day(tmp_path, "--smoke", "--minutes", 0.15)
    assert time.monotonic() - start < 9 + 60  # a loaded machine imports slowly before it looks at the time
    found = states(values)
    assert code == 0 and set(found.values()) <= {"done", "cut off", "left out"}
    assert found["forecast with compilation"] == "left out"
    for name, state in found.items():
        assert f"{name}: {state}" in text
    assert all(part["reason"] for part in values["parts"] if part["state"] != "done")


def test_a_part_that_fails_is_told_with_what_depends_on_it(tmp_path):
    code, text, values = day(tmp_path, "--smoke", "--minutes", 0.5, "--images", tmp_path / "none.zip")
    found = states(values)
    assert code == 1 and found["inputs"] == "failed" and "FileNotFoundError" in text
    assert found["speed nsp2"] == "left out" and "speed nsp2: left out (it needs inputs)" in text
    assert found["peak"] == "done"


def test_without_a_gpu_it_says_so_in_a_line(tmp_path):
    hidden = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2]), "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, str(SCRIPT), "--out", str(tmp_path)]
    done = subprocess.run(words, env=hidden, capture_output=True, encoding="utf-8")
    assert done.returncode == 2 and done.stdout == "" and not list(tmp_path.iterdir())
    assert done.stderr == "error: no CUDA device is at hand; give --smoke to try it on the processor\n"
