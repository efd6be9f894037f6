"""Trackers are found by name, and one that cannot be used is told before anything is trained."""

import importlib
import os
import sys
import tomllib
from pathlib import Path

import pytest
import toys
from commands import command

from cl_bench.errors import InputError
from cl_bench.plan.request import Request, request_from
from cl_bench.trackers import named
from cl_bench.trackers.contract import Tracker

ROOT = Path(__file__).resolve().parents[2]
MINE = """
from cl_bench.trackers.contract import Tracker

class Mine(Tracker):
    NEEDS = {needs}
    def begin(self, run): pass
    def log(self, values, at): pass
    def image(self, name, pixels, at): pass
    def end(self, status): pass
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package that registers the tracker `mine`, of such a module."""

    def install(text: str, place: str = "my_tracker:Mine") -> None:
        info = tmp_path / "my_tracker-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-tracker\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[cl_bench.trackers]\nmine = {place}\n")
        (tmp_path / "my_tracker.py").write_text(text)
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path))
    yield install
    sys.modules.pop("my_tracker", None)


def test_a_checkout_has_the_trackers_that_the_installation_registers():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"][named.GROUP] == named.BUILT_IN
    for name in named.BUILT_IN:
        kind = named.find(name)
        assert issubclass(kind, Tracker) and f"cl-bench[{name}]" == kind.INSTALL
        assert name in project["optional-dependencies"]


def test_a_tracker_of_another_package_is_found(package):
    package(MINE.format(needs="()"))
    assert named.require("mine") == ("mine",) and named.find("mine").__name__ == "Mine"
    with pytest.raises(InputError, match="did you mean 'mine'"):
        named.require("mien")


def test_one_that_needs_what_is_not_there_says_what_to_install(package, tmp_path, monkeypatch):
    (tmp_path / "left_by_a_tracker").mkdir()  # as W&B leaves a folder of its own name
    package(MINE.format(needs="('json', 'left_by_a_tracker')"))
    with pytest.raises(InputError, match="mine needs left_by_a_tracker, which is not installed: install"):
        named.require("mine")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("raise SystemExit('no licence')", "my_tracker:Mine", "cannot be imported: SystemExit: no licence"),
        ("", "my_tracker:Mine", "cannot be imported: AttributeError"),
        ("Mine = 3", "my_tracker:Mine", "is 3; expected a subclass of cl_bench.trackers.contract.Tracker"),
    ],
)
def test_one_that_is_broken_is_an_error_of_the_input(package, text, place, message):
    package(text, place)
    with pytest.raises(InputError, match=message):
        named.require("mine")


def test_a_tracker_that_is_not_installed_ends_the_command_before_anything_is_planned(
    monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(named, "is_installed", lambda package: package != "mlflow")
    results = tmp_path / "results"
    assert command("run", "--track", "tensorboard,mlflow", "--results", results) == 2
    said = capsys.readouterr().err
    assert "--track mlflow needs mlflow, which is not installed: pip install 'cl-bench[mlflow]'" in said
    assert said.count("\n") == 1 and not results.exists()


@pytest.mark.slow
def test_one_that_fails_in_the_process_of_a_run_is_told_where_the_runs_are_followed(
    package, toy_request, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    package(MINE.format(needs="()").replace("at): pass", "at): raise OSError('disk full')", 1))
    inputs = {key: value for key, value in toy_request.items() if key != "set"}
    words = [*toys.command_options(inputs), *toys.set_options("batch=8", "passes=2", "epoch_mode=plain")]
    where = ["--results", tmp_path / "results", "--out", tmp_path / "out", "--jobs", 1, "--threads", 1]
    assert command("run", "--methods", "seq", "--track", "mine", *words, *where) == 0
    told = "warning: the tracker mine failed, nothing more of this run is sent to it: OSError: disk full"
    assert capsys.readouterr().err.count(told) == 1


def test_a_file_names_trackers_and_the_command_line_wins(tmp_path):
    path = tmp_path / "experiment.yaml"
    path.write_text("track: [tensorboard, wandb]\n")
    assert named.chosen(request_from({}, path).track) == ("tensorboard", "wandb")
    assert named.chosen(request_from({"track": "mlflow, mlflow"}, path).track) == ("mlflow",)
    assert named.chosen(request_from({"track": "none"}, path).track) == ()
    assert named.chosen(Request().track) == ()
