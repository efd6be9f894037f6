"""Runs and their accuracy matrices as one flat table."""

import csv

import pytest
from commands import command
from made import BETTER, SEQ, record, results

from cl_bench.records.export import matrix_lines, run_lines


def test_an_exported_run_is_one_line_with_every_metric():
    [line] = run_lines([record("vpt-nsp2", BETTER)])
    assert line["accuracy_task_mean"] == pytest.approx(0.7) and line["forgetting_chaudhry"] == pytest.approx(
        -0.05
    )
    assert (
        line["forgetting_max_including_last"] == pytest.approx(0.025)
        and line["learn_seconds"] == 3.0
        and line["tasks"] == 3
    )
    [unfinished] = run_lines([record("vpt-nsp2", BETTER[:1], status="running")])
    assert unfinished["accuracy_task_mean"] is None and unfinished["tasks_learned"] == 1
    lines = matrix_lines([record("vpt-nsp2", BETTER)])
    assert [(line["after_task"], line["task"], line["correct"]) for line in lines] == [
        (1, 1, 80), (2, 1, 80), (2, 2, 60), (3, 1, 75), (3, 2, 75), (3, 3, 60),
    ]  # fmt: skip


def test_backward_transfer_is_exported_where_there_is_one():
    several, joint = record("vpt-nsp2", SEQ), record("vpt-joint", [[90, 90, 93]], joint=True)
    begun = record("vpt-seq", SEQ[:2], status="running")
    found = [line["backward_transfer"] for line in run_lines([several, joint, begun])]
    assert found == [pytest.approx((0.5 - 0.8 + 0.6 - 0.7) / 2), None, None]


def test_runs_whose_classes_are_cut_or_shown_otherwise_are_told_apart():
    uneven = tuple(tuple(range(start, start + size)) for start, size in ((0, 4), (4, 2), (6, 2)))
    lines = run_lines(
        [
            record("vpt-seq", SEQ),
            record("vpt-seq", SEQ, online=True),
            record("vpt-seq", SEQ, task_classes=uneven),
        ]
    )
    told = [(line["split"], line["tasks"], line["online"]) for line in lines]
    assert told == [("3", 3, False), ("3-online", 3, True), ("B4-Inc2", 3, False)]


def test_csv_and_parquet_hold_the_same(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    results(
        tmp_path / "r",
        [
            record("vpt-nsp2", BETTER),
            record("vpt-joint", [[90, 90, 93]], joint=True),
            record("vpt-seq", SEQ[:1], status="failed"),
        ],
    )
    for what in ("runs", "matrix"):
        for kind in ("csv", "parquet"):
            assert (
                command(
                    "export",
                    "--format",
                    kind,
                    "--what",
                    what,
                    "--results",
                    tmp_path / "r",
                    "--out",
                    tmp_path / f"{what}.{kind}",
                )
                == 0
            )
        with open(tmp_path / f"{what}.csv", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        table = parquet.read_table(tmp_path / f"{what}.parquet").to_pylist()
        assert [
            {key: "" if value is None else str(value) for key, value in line.items()} for line in table
        ] == lines and lines


def test_nothing_to_export_and_a_missing_folder_are_one_line(tmp_path, capsys):
    assert (
        command("export", "--results", tmp_path / "none") == 2
        and "no results folder" in capsys.readouterr().err
    )
    results(tmp_path / "empty", [])
    assert (
        command("export", "--results", tmp_path / "empty") == 2
        and "no runs to export" in capsys.readouterr().err
    )
