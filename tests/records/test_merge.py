"""Results folders are merged without losing, replacing or inventing anything."""

import numpy as np
import pytest
from commands import command
from made import BETTER, SEQ, record, results
from matrices import MATRIX, matrix_spec, read_matrix

from cl_bench.errors import InputError
from cl_bench.records import imported, locks, run_files
from cl_bench.records.merge import merge
from cl_bench.records.store import Store
from cl_bench.run import runner
from cl_bench.run.learning import Conditions
from cl_bench.run.recertify import recertify


def test_merging_brings_all_runs_and_keeps_the_further_one(tmp_path):
    begun = record("vpt-seq", SEQ[:1], 1, "running")
    a = results(tmp_path / "a", [begun, record("vpt-seq", SEQ, 2)])
    b = results(tmp_path / "b", [record("vpt-seq", SEQ, 1), record("vpt-nsp2", BETTER, 1)])
    done = merge(Store(tmp_path / "all"), [a, b], compact=False)
    assert (done.copied, done.kept, done.warnings) == (3, 0, [])
    found = {r.spec.run_id(): r for r in Store(tmp_path / "all").records()}
    assert len(found) == 3 and found[begun.spec.run_id()].status == "done"
    assert merge(Store(tmp_path / "all"), [a, b], compact=False).copied == 0  # nothing further came
    assert len(list(a.records())) == 2  # the sources stay as they are


def test_different_results_of_one_run_are_refused_before_anything_is_copied(tmp_path):
    a, b = (
        results(tmp_path / "a", [record("vpt-seq", SEQ, 1)]),
        results(tmp_path / "b", [record("vpt-pgp", SEQ), record("vpt-seq", BETTER, 1)]),
    )
    with pytest.raises(InputError, match="are the same run with different results"):
        merge(Store(tmp_path / "all"), [a, b], compact=False)
    assert not (tmp_path / "all").exists()
    with pytest.raises(InputError, match="no results folder"):
        merge(a, [Store(tmp_path / "none")], compact=False)


def test_a_compact_copy_has_what_reports_need_and_counts_as_finished(tmp_path, whole_run):
    spec, record_, root = whole_run
    assert command("merge", tmp_path / "small", root, "--compact") == 0
    small = Store(tmp_path / "small")
    assert {path.name for path in small.folder(spec).iterdir()} == {"record.json", "predictions.npz"}
    assert small.load(spec) == record_
    with np.load(small.folder(spec) / "predictions.npz") as arrays:
        assert set(arrays.files) == {"task_004", "truth"}
    said = []
    assert runner.run(spec, small, Conditions(), said.append, lambda p: pytest.fail("it trained")) == record_
    with pytest.raises(InputError, match="kept without its checkpoint"):
        recertify(spec, small, "cpu", 1, said.append)
    assert run_files.is_compact(record_, small.folder(spec))


def test_unfinished_runs_and_damaged_records_are_left_out_of_a_compact_copy_by_name(tmp_path):
    a = results(tmp_path / "a", [record("vpt-seq", SEQ[:2], 1, "running"), record("vpt-pgp", SEQ)])
    damaged = a.folder(record("vpt-pgp", SEQ).spec) / "record.json"
    damaged.write_text(damaged.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    done = merge(Store(tmp_path / "all"), [a], compact=True)
    assert done.copied == 0 and "is not finished" in done.warnings[0] and "truncated" in done.lacking[0]


def test_a_run_without_readable_predictions_is_copied_with_a_warning(tmp_path):
    a = results(tmp_path / "a", [record("vpt-seq", SEQ), record("vpt-pgp", SEQ)])
    (a.folder(record("vpt-seq", SEQ).spec) / "predictions.npz").write_bytes(b"broken")
    done = merge(Store(tmp_path / "all"), [a], compact=True)
    assert (
        done.copied == 2
        and len(done.warnings) == 2
        and all("copied without predictions" in line for line in done.warnings)
    )


def test_a_merge_sets_aside_what_the_target_has_of_a_run_under_a_damaged_record(tmp_path):
    whole, begun = record("vpt-seq", SEQ), record("vpt-seq", SEQ[:1], status="running")
    target = results(tmp_path / "all", [begun])
    place = target.folder(begun.spec)
    (place / "checkpoint-001.safetensors").write_bytes(b"state")
    (place / "record.json").write_text(
        (place / "record.json").read_text(encoding="utf-8")[:-9], encoding="utf-8"
    )
    done = merge(target, [results(tmp_path / "a", [whole])], compact=False)
    assert done.copied == 1 and "truncated" in done.warnings[0] and target.load(whole.spec) == whole
    [aside] = (tmp_path / "all" / "runs").glob("*.damaged-*")
    assert {path.name for path in aside.iterdir()} == {"checkpoint-001.safetensors", "record.json"} and str(
        aside
    ) in done.warnings[0]


def test_a_merge_leaves_alone_what_a_process_works_on(tmp_path):
    whole, begun = record("vpt-seq", SEQ), record("vpt-seq", SEQ[:1], status="running")
    target = results(tmp_path / "all", [begun])
    with locks.sole_owner(target, begun.spec, print):
        done = merge(target, [results(tmp_path / "a", [whole])], compact=False)
    assert (
        done.copied == 0 and "a process is working on" in done.lacking[0] and target.load(begun.spec) == begun
    )


def test_imported_matrices_are_merged_and_never_replaced_by_other_ones(tmp_path):
    (tmp_path / "m.csv").write_text(MATRIX, encoding="utf-8")
    (tmp_path / "n.csv").write_text(MATRIX.replace("80.0", "90.0"), encoding="utf-8")
    mine, theirs = (
        read_matrix(tmp_path / name, matrix_spec(), None, percent=True) for name in ("m.csv", "n.csv")
    )
    imported.save(mine, tmp_path / "a")
    imported.save(theirs, tmp_path / "b")
    imported.save(mine, tmp_path / "a")  # the same again is no conflict
    with pytest.raises(InputError, match="holds another matrix of Theirs on glyphs/3; give another --seed"):
        imported.save(theirs, tmp_path / "a")
    results(tmp_path / "b", [record("vpt-seq", SEQ)])
    with pytest.raises(InputError, match="holds another matrix"):
        merge(Store(tmp_path / "a"), [Store(tmp_path / "b")], compact=False)
    assert not (tmp_path / "a" / "runs").exists() and imported.records(tmp_path / "a") == [mine]
    with pytest.raises(InputError, match="holds another matrix"):  # neither has the target it yet
        merge(Store(tmp_path / "c"), [Store(tmp_path / "a"), Store(tmp_path / "b")], compact=False)
    assert not (tmp_path / "c").exists()
    for name in ("LAE+", "LAE*"):
        imported.save(
            read_matrix(tmp_path / "m.csv", matrix_spec(display=name), None, percent=True), tmp_path / "a"
        )
    assert len(imported.records(tmp_path / "a")) == 3
