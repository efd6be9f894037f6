"""Damaged records and full disks: nothing is believed that was not written whole, nothing done is lost."""

import json
import os
import shutil
from pathlib import Path

import pytest
from runs import execute, run_until, spec_of

from cl_bench.errors import InputError, RunFailed
from cl_bench.files import write_atomically
from cl_bench.records import run_files
from cl_bench.records.sealed import DamagedRecord, read_record
from cl_bench.records.store import Store, write_spec


def test_bad_records_are_never_believed(whole_run, tmp_path):
    spec, record, root = whole_run
    text = (Store(root).folder(spec) / "record.json").read_text(encoding="utf-8")
    path = tmp_path / "record.json"
    for damaged, message in [
        (text[: len(text) // 2], "truncated"),
        (text.replace('"status":"done"', '"status":"running"'), "changed after it was written"),
        (json.dumps({**json.loads(text), "run_id": "0" * 16}), "does not belong"),
        (text.replace(spec.run_id(), "0" * 16), "does not belong"),
        ("{}", "not a record"),
        ("", "not a record"),
    ]:
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(DamagedRecord, match=message):
            read_record(path)


def test_a_record_may_be_laid_out_otherwise_than_it_was_written(whole_run, tmp_path):
    spec, record, root = whole_run
    text = (Store(root).folder(spec) / "record.json").read_text(encoding="utf-8")
    path = tmp_path / "record.json"
    for indent in (None, 1):
        path.write_text(json.dumps(json.loads(text), indent=indent), encoding="utf-8")
        assert read_record(path) == record
    path.write_text(text.replace(":", ": ", 5), encoding="utf-8")
    assert read_record(path) == record


DAMAGE = {
    "a truncated record": lambda f: (f / "record.json").write_text(
        (f / "record.json").read_text(encoding="utf-8")[:200], encoding="utf-8"
    ),
    "an edited record": lambda f: (f / "record.json").write_text(
        (f / "record.json").read_text(encoding="utf-8").replace('"correct":[', '"correct":[1', 1),
        encoding="utf-8",
    ),
    "a truncated checkpoint": lambda f: next(f.glob("checkpoint-*")).write_bytes(
        next(f.glob("checkpoint-*")).read_bytes()[:-10]
    ),
    "a missing checkpoint": lambda f: next(f.glob("checkpoint-*")).unlink(),
    "truncated predictions": lambda f: (f / "predictions.npz").write_bytes(
        (f / "predictions.npz").read_bytes()[: (f / "predictions.npz").stat().st_size // 2]
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_set_aside_with_a_message_and_the_run_starts_again(whole_run, tmp_path, damage):
    spec, record, _ = whole_run
    run_until(spec, tmp_path, 2)
    damage(Store(tmp_path).folder(spec))
    said = []
    again = execute(spec, tmp_path, said)
    assert said[0].startswith("warning: ") and "the run starts again" in said[0]
    assert len(list((tmp_path / "runs").glob("*.damaged-*"))) == 1
    assert again.outcome() == record.outcome()
    assert list(Store(tmp_path).records()) == [again]


@pytest.mark.parametrize("damage", list(DAMAGE.values())[2:], ids=list(DAMAGE)[2:])
def test_what_lies_beside_the_record_of_a_finished_run_does_not_undo_it(whole_run, tmp_path, damage):
    spec, record, root = whole_run
    shutil.copytree(root / "runs", tmp_path / "runs")
    damage(Store(tmp_path).folder(spec))
    before = sorted(path.name for path in Store(tmp_path).folder(spec).iterdir())
    said = []
    assert execute(spec, tmp_path, said) == record and said == ["already finished, nothing to train"]
    assert sorted(path.name for path in Store(tmp_path).folder(spec).iterdir()) == before


def test_predictions_without_a_record_are_set_aside_and_not_overwritten(whole_run, tmp_path):
    spec, record, _ = whole_run
    run_until(spec, tmp_path, 2)
    folder = Store(tmp_path).folder(spec)
    (folder / "record.json").unlink()
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    said = []
    assert (
        execute(spec, tmp_path, said).outcome() == record.outcome() and "predictions but no record" in said[0]
    )
    [aside] = (tmp_path / "runs").glob("*.damaged-*")
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == kept


def test_a_damaged_run_is_moved_with_its_record_last(whole_run, tmp_path, monkeypatch):
    """Whatever stops the move, the record that tells of the damage stays until all else is safe."""
    spec, _, root = whole_run
    shutil.copytree(root / "runs", tmp_path / "runs")
    moved, rename = [], Path.rename

    def noting(path, target):
        moved.append(path.name)
        if path.name.startswith("predictions"):
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", noting)
    with pytest.raises(RunFailed, match="cannot move what is damaged"):
        Store(tmp_path).set_aside(spec)
    assert "record.json" not in moved and Store(tmp_path).load(spec) is not None


def test_damage_is_listed_by_the_store_with_its_reason(whole_run, tmp_path):
    spec = whole_run[0]
    write_spec(spec, Store(tmp_path).folder(spec))
    execute(spec, tmp_path)
    DAMAGE["a truncated record"](Store(tmp_path).folder(spec))
    [found] = Store(tmp_path).records()
    assert (found.path.name, found.kind, found.spec) == (
        "record.json",
        "damaged",
        spec,
    ) and "truncated" in found.reason


def test_a_full_disk_stops_the_run_and_keeps_what_was_finished(toy_request, tmp_path, monkeypatch):
    spec = spec_of(toy_request, "seq")

    def full(path, data):
        if path.name == "checkpoint-003.safetensors":
            raise OSError(28, "No space left on device")
        write_atomically(path, data)

    monkeypatch.setattr(run_files, "write_atomically", full)
    with pytest.raises(RunFailed, match="No space left on device; free space and repeat the command"):
        execute(spec, tmp_path)
    assert len(Store(tmp_path).load(spec).tasks) == 2


def test_an_atomic_write_leaves_the_old_content_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "x"
    write_atomically(path, b"old")
    monkeypatch.setattr(
        os, "replace", lambda a, b: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_results_folder_that_cannot_be_written_is_refused_before_training(toy_request, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="cannot write the results folder"):
        execute(spec_of(toy_request, "seq"), tmp_path / "file")
