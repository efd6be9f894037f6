"""Runs as DataFrames: every table has its documented columns and types, and says what files say."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from made import BETTER, SEQ, record, results

import cl_bench
from cl_bench.api.names import NAMED
from cl_bench.errors import InputError
from cl_bench.records import export
from cl_bench.records.store import Store


@pytest.fixture
def folder(tmp_path):
    """Two finished runs of VPT-Seq, one of VPT-NSP2 with an option, and one that stopped."""
    records = [
        record("vpt-seq", SEQ, 1),
        record("vpt-seq", BETTER, 2),
        record("vpt-nsp2[eta=0.9]", BETTER, 1, options={"eta": 0.9}),
        record("vpt-pgp", SEQ[:1], 1, "running"),
    ]
    results(tmp_path / "r", records)
    return tmp_path / "r"


def test_a_table_has_a_row_a_run_with_the_columns_of_export(folder):
    table = cl_bench.load(folder).table()
    assert tuple(table.columns) == export.COLUMNS and len(table) == 4
    kinds = [str(table[name].dtype) for name in ("run_id", "tasks", "joint", "forgetting_chaudhry")]
    assert kinds == ["string", "Int64", "boolean", "Float64"]
    stopped = table[table.method == "vpt-pgp"].iloc[0]
    assert stopped.status == "stopped" and stopped.accuracy_task_mean is pd.NA and stopped.tasks_learned == 1


def test_a_matrix_has_a_row_for_each_task_learned_and_evaluated(folder):
    found = cl_bench.load(folder).select("seq").matrix()
    assert tuple(found.columns) == (*NAMED, "after", "on", "correct", "correct_within_task", "n")
    one = found[found.run_id == found.run_id.iloc[0]]
    assert list(zip(one.after, one.on, strict=True)) == [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]
    final = one[one.after == 3]
    assert (final.correct / final.n).mean() in (pytest.approx(0.6), pytest.approx(0.7))
    assert all(str(kind) == "Int64" for kind in found.dtypes[len(NAMED) :])


def test_metrics_are_fractions_in_the_convention_asked_for(folder):
    runs = cl_bench.load(folder)
    found = runs.metrics().set_index(["label", "seed"])
    assert len(found) == 3
    better = found.loc["vpt-nsp2[eta=0.9]", "1"]
    assert better.accuracy == pytest.approx(0.7) and better.forgetting == pytest.approx(-0.05)
    other = runs.select("nsp2[eta=0.9]").metrics(forgetting="max_including_last")
    assert other.forgetting.item() == pytest.approx(0.025)
    with pytest.raises(InputError, match="unknown convention 'chaudry'; did you mean 'chaudhry'"):
        runs.metrics(forgetting="chaudry")


def test_runs_are_selected_as_rows_of_reports_are(folder):
    runs = cl_bench.load(folder)
    counts = {text: len(runs.select(text)) for text in ("seq", "nsp2", "nsp2[eta=0.9]", "seq,nsp2[eta=0.9]")}
    assert counts == {"seq": 2, "nsp2": 0, "nsp2[eta=0.9]": 1, "seq,nsp2[eta=0.9]": 3}
    assert len(runs.select("seq", benchmark="toy/3")) == 2 and not len(runs.select("seq", benchmark="toy/9"))
    with pytest.raises(InputError, match="unknown method 'sek'; did you mean"):
        runs.select("sek")
    with pytest.raises(InputError, match="name a method to select"):
        runs.select(" ")


def test_predictions_are_the_images_of_classes_seen(folder):
    runs = cl_bench.load(folder).select("nsp2[eta=0.9]")
    [run_id] = runs.table().run_id
    with pytest.raises(InputError, match="predictions of .* are not stored"):
        runs.predictions(run_id)
    place = next((folder / "runs").glob(f"*{run_id}"))
    arrays = {"task_001": np.array([0, -1, 1]), "task_002": np.array([0, 2, 1]), "truth": np.array([0, 2, 0])}
    np.savez(place / "predictions.npz", **arrays)
    found = runs.predictions(run_id[:6])
    assert found.values.tolist() == [[1, 0, 0, 0], [1, 2, 0, 1], [2, 0, 0, 0], [2, 1, 2, 2], [2, 2, 0, 1]]
    assert list(found.columns) == ["after", "image", "truth", "predicted"]
    (place / "predictions.npz").write_bytes(b"PK no archive")
    with pytest.raises(InputError, match="predictions.npz is damaged"):
        runs.predictions(run_id)
    with pytest.raises(InputError, match="0 runs begin with 'zz'"):
        runs.predictions("zz")


def test_what_is_left_out_is_said(folder):
    path = next((folder / "runs").glob("vpt-pgp-*")) / "record.json"
    path.write_text("{", encoding="utf-8")
    runs = cl_bench.load(folder)
    assert len(runs) == 3 and len(runs.left_out) == 1 and "1 records left out" in repr(runs)
    with pytest.raises(InputError, match="no results folder"):
        cl_bench.load(folder / "none")
    results(folder / "empty", [])
    with pytest.raises(InputError, match="there is no run in"):
        cl_bench.load(folder / "empty")


def test_no_run_is_an_empty_table_of_the_same_columns():
    nothing = cl_bench.api.Runs(Store("nowhere"), [])
    assert tuple(nothing.table().columns) == export.COLUMNS and nothing.matrix().empty
    assert str(nothing.metrics().accuracy.dtype) == "Float64"


def test_importing_the_package_imports_neither_torch_nor_pandas_and_loading_no_torch(folder):
    code = (
        "import sys, cl_bench as cl; assert not {'torch', 'pandas'} & set(sys.modules); "
        f"cl.load({str(folder)!r}).metrics(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
