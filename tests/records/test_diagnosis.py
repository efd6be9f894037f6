"""What was measured of a run, in its record and as a table."""

import csv

import pytest
from commands import command
from made import SEQ, diagnosed_record, record, results

import cl_bench
from cl_bench.api.names import NAMED
from cl_bench.records.diagnosis import Diagnosis
from cl_bench.records.store import Store


@pytest.fixture
def folder(tmp_path):
    found = diagnosed_record(1, {"rank_b1": [3.0, None]}, {"same_answer": 0.5, "feature_cosine": None})
    results(tmp_path / "r", [found, record("vpt-nsp2", SEQ)])
    return tmp_path / "r"


def test_a_line_for_each_known_value_of_each_task(folder, tmp_path):
    out = tmp_path / "d.csv"
    assert command("export", "--what", "diagnosis", "--results", folder, "--out", out) == 0
    with open(out, encoding="utf-8") as file:
        lines = [tuple(line.values())[2:] for line in csv.DictReader(file)]
    of_a_task = [
        ("", "same_answer", "0.5"),
        ("1", "rank_b1", "3.0"),
        ("1", "spectrum_b1_1", "1.0"),
        ("1", "spectrum_b1_2", "0.25"),
    ]
    assert lines == [(task, *line) for task in ("2", "3") for line in of_a_task]
    table = cl_bench.load(folder).diagnosis()
    assert tuple(table.columns) == (*NAMED, "after", "block", "quantity", "value") and len(table) == 8
    assert [str(kind) for kind in table.dtypes[len(NAMED) :]] == ["Int64", "Int64", "string", "Float64"]


def test_a_folder_without_any_says_how_to_have_some(tmp_path, capsys):
    results(tmp_path / "r", [record("vpt-nsp2", SEQ)])
    assert command("export", "--what", "diagnosis", "--results", tmp_path / "r", "--out", tmp_path / "d") == 2
    assert "has learned a second task with `cl-bench run --diagnose`" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_means_are_over_the_blocks_that_know_and_six_digits_are_kept(folder):
    found = Diagnosis(images=8, network={"same_answer": 1 / 3}, blocks={"rank_b1": [3.0, None, 4.0]})
    assert found.network["same_answer"] == 0.333333
    assert found.mean("rank_b1") == 3.5 and found.mean("same_answer") == 0.333333
    assert found.mean("rank_b2") is None and found.mean("feature_change") is None
    assert len(list(Store(folder).records())) == 2  # read again as they were written
