"""A selection has the runs that a report's column of the same words would have, and what it lacks."""

import warnings
from contextlib import ExitStack

import pytest
from made import BETTER, SEQ, TOY_VIT, record, results

import cl_bench
from cl_bench.errors import InputError
from cl_bench.records import locks
from cl_bench.records.export import COLUMNS

BIG = TOY_VIT.model_copy(update={"name": "big_vit", "image_size": 32})
LOW = [[10], [10, 10], [10, 10, 10]]


@pytest.fixture
def runs(tmp_path):
    """Of one method on one data set: a full run, two trials, one on held-out images, and a big backbone's."""
    records = [
        record("vpt-seq", SEQ, 1),
        record("vpt-seq", LOW, 1, limit=6),
        record("vpt-seq", LOW, 1, limit=8),
        record("vpt-seq", LOW, 1, validation=0.25),
        record("vpt-seq", BETTER, 1, backbone=BIG, weights_sha256="v"),
    ]
    results(tmp_path / "r", records)
    return cl_bench.load(tmp_path / "r")


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({}, 2),
        ({"limit": 6}, 1),
        ({"validation": 0.25}, 1),
        ({"limit": 6, "validation": 0.25}, 0),
        ({"backbone": "toy_vit"}, 1),
        ({"image_size": 32}, 1),
        ({"backbone": "toy_vit", "image_size": 32}, 0),
    ],
)
def test_a_benchmark_is_the_full_protocol_unless_another_is_asked_for(runs, asked, count):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = runs.select("seq", benchmark="toy/3", **asked)
    table = found.table()
    assert len(found) == count
    assert (table.limit.isna() if "limit" not in asked else table.limit == asked["limit"]).all()
    assert (table.validation.isna() if "validation" not in asked else table.validation == 0.25).all()


def test_without_a_benchmark_every_protocol_is_selected_and_words_narrow(runs):
    assert len(runs.select("seq")) == 5
    assert len(runs.select("seq", limit=6)) == 1 and len(runs.select("seq", backbone="big_vit")) == 1


def test_a_benchmark_may_be_named_as_tables_name_it(runs):
    for name, group in runs.metrics().groupby("benchmark"):
        assert set(runs.select("seq", benchmark=str(name)).metrics().run_id) == set(group.run_id)
    trial = "toy/3 (trial: at most 6 training images)"
    assert len(runs.select("seq", benchmark=trial, limit=6)) == 1


def test_a_selection_without_runs_says_which_there_are(tmp_path):
    results(tmp_path / "r", [record("vpt-seq", LOW, 1, limit=6), record("vpt-nsp2", SEQ, 1)])
    runs = cl_bench.load(tmp_path / "r")
    with pytest.warns(UserWarning) as said:
        assert len(runs.select("seq,nsp2", benchmark="toy/3")) == 1
    assert [str(each.message) for each in said] == [
        "no run of seq on toy/3 is selected, but there are runs on toy/3 (trial: at most 6 training images); "
        "ask with limit, validation, backbone or image_size"
    ]


def test_what_is_left_out_of_a_selection_is_said(tmp_path):
    seq, trial, other = (
        record("vpt-seq", SEQ, 1),
        record("vpt-seq", LOW, 1, limit=6),
        record("vpt-pgp", SEQ, 1),
    )
    store = results(tmp_path / "r", [seq, record("vpt-seq", BETTER, 2), trial, other])
    for found in (seq, trial, other):
        (store.folder(found.spec) / "record.json").write_text("{", encoding="utf-8")
    runs = cl_bench.load(tmp_path / "r")
    assert len(runs.left_out) == 3
    assert [len(runs.select(text).left_out) for text in ("seq", "pgp", "seq,pgp", "nsp2")] == [2, 1, 3, 0]
    full = runs.select("seq", benchmark="toy/3")
    assert "1 records left out" in repr(full) and seq.spec.run_id() in full.left_out[0]
    assert full.select("seq").left_out == full.left_out
    for path in (tmp_path / "r" / "runs").glob("*/spec.json"):
        path.unlink()  # then no more is known than the folder's name
    runs = cl_bench.load(tmp_path / "r")
    assert len(runs.select("seq", benchmark="toy/3").left_out) == 2 and not runs.select("nsp2").left_out


def test_a_table_has_a_line_for_what_is_left_out(tmp_path):
    damaged = record("vpt-seq", SEQ, 1)
    store = results(tmp_path / "r", [damaged, record("vpt-seq", BETTER, 2)])
    (store.folder(damaged.spec) / "record.json").write_text("{", encoding="utf-8")
    table = cl_bench.load(tmp_path / "r").select("seq").table().set_index("status")
    assert {"status", *table.columns} == set(COLUMNS) and sorted(table.index) == ["damaged", "finished"]
    assert table.run_id["damaged"] == damaged.spec.run_id() and table.accuracy_task_mean.isna()["damaged"]


def test_a_run_in_progress_is_called_running(tmp_path):
    held, left = record("vpt-seq", SEQ[:1], 1, "running"), record("vpt-seq", SEQ[:1], 2, "running")
    store = results(tmp_path / "r", [held, left, record("vpt-seq", SEQ, 3)])
    with ExitStack() as stack:
        stack.enter_context(locks.sole_owner(store, held.spec, print))
        runs = cl_bench.load(tmp_path / "r")
        states = runs.select("seq").table().set_index("order_seed").status
    assert states.to_dict() == {1: "running", 2: "stopped", 3: "finished"}
    assert "running" not in set(cl_bench.load(tmp_path / "r").table().status)


def test_unknown_words_are_refused(runs):
    with pytest.raises(InputError, match="unknown method 'sek'"):
        runs.select("sek", benchmark="toy/3")
    with pytest.raises(TypeError, match="limits"):
        runs.select("seq", limits=6)
