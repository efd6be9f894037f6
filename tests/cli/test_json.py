"""--json prints what the text says, as values."""

import json

import pytest
import toys
from typer.testing import CliRunner

from cl_bench.cli import program


def asked(*words) -> dict:
    found = CliRunner().invoke(program(), list(map(str, words)), prog_name="cl-bench")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return toys.command_options(toys.write_inputs(tmp_path_factory.mktemp("json"), classes=4))


def test_a_plan_in_values(inputs, tmp_path):
    words = ("--splits", "2", "--methods", "seq,simplecil", "--seeds", "2", "--set", "precision=fp32")
    found = asked("plan", *inputs, *words, "--results", tmp_path, "--json")
    assert [run["label"] for run in found["runs"]] == ["vpt-seq", "simplecil"] * 2
    assert {run["state"] for run in found["runs"]} == {"missing"} and found["runs"][0]["seconds"] is None
    assert sum(run["images"] for run in found["runs"]) >= found["to_do"]["images"] > 0


def test_status_of_a_plan_and_of_an_empty_folder(inputs, tmp_path):
    words = ("--splits", "2", "--methods", "seq", "--set", "precision=fp32", "--results", tmp_path, "--json")
    [run] = asked("status", *inputs, *words)["runs"]
    assert (run["state"], run["label"], run["tasks"], run["of"]) == ("missing", "vpt-seq", 0, 2)
    assert asked("status", "--results", tmp_path, "--json") == {"runs": []}


def test_lists():
    methods = {each["name"]: each for each in asked("ls", "methods", "--json")["methods"]}
    assert methods["vpt-nsp2"]["aliases"] == ["nsp2"] and methods["vpt-nsp2"]["passes"] == 1
    assert "paper" in methods["vpt-nsp2"]["groups"] and methods["vpt-nsp2"]["venue"] == "NeurIPS 2024"
    assert "glyphs" in {each["name"] for each in asked("ls", "datasets", "--json")["datasets"]}
    assert "glyphs-vit" in asked("ls", "backbones", "--json")["backbones"]
