"""Listings: read from an index that is never the truth; status, and removal of what is named."""

import json
import os

import pytest
import runs

from cl_bench import clean, locks, status
from cl_bench.cli import main
from cl_bench.errors import InputError
from cl_bench.index import summaries
from cl_bench.store import Store


@pytest.fixture
def store(toy_request, tmp_path):
    """A finished run, one that stopped after its first task, and a failed one."""
    runs.execute(runs.spec_of(toy_request, "seq"), tmp_path)
    runs.run_until(runs.spec_of(toy_request, "nsp2"), tmp_path, 1)
    with pytest.raises(Exception, match="time limit"):
        runs.execute(runs.spec_of(toy_request, "pgp"), tmp_path, seconds=0.0)
    return Store(tmp_path)


def states(store):
    return {summary.label.partition("[")[0]: status.state_of(store, summary) for summary in summaries(store)}


def test_a_listing_says_what_the_records_say(store):
    assert states(store) == {"vpt-seq": "done", "vpt-nsp2": "stopped", "vpt-pgp": "failed"}
    lines = status.run_lines(store)
    assert lines[-1] == "3 runs: 1 done, 1 stopped, 1 failed" and any("time limit of 0 s" in line for line in lines)
    spec = next(record.spec for record in store.records() if record.spec.method == "vpt-nsp2")
    with locks.sole_owner(store, spec, print):
        assert states(store)["vpt-nsp2"] == "running"


def test_the_index_is_used_and_never_believed_over_a_changed_record(store, monkeypatch):
    first = summaries(store)
    index = store.root / "index.json"
    values = json.loads(index.read_text())
    name = next(name for name in values["runs"] if name.startswith("vpt-seq"))
    values["runs"][name]["summary"]["label"] = "from the index"
    index.write_text(json.dumps(values))
    assert any(summary.label == "from the index" for summary in summaries(store))
    record = store.root / "runs" / name / "record.json"
    content = record.read_bytes()
    os.replace(record, record.with_suffix(".old"))
    record.write_bytes(content)
    assert summaries(store) == first
    for damage in ("", "[]", '{"version": 0}', '{"version": 1}'):
        index.write_text(damage)
        assert summaries(store) == first
    index.unlink()
    assert summaries(store) == first and index.exists()
    record.write_bytes(content[:-40])
    assert [summary.status for summary in summaries(store)].count("damaged") == 1
    assert sum(not hasattr(found, "spec") for found in store.records()) == 1


def test_an_edited_record_is_listed_as_damaged(store):
    path = next((store.root / "runs").glob("vpt-seq*/record.json"))
    path.write_text(path.read_text().replace('"status":"done"', '"status":"fail"'))
    assert states(store)["vpt-seq"] == "damaged"


def test_the_status_of_a_plan_names_what_is_missing(store, toy_request):
    from cl_bench.plan import make_plan
    from cl_bench.request import Request

    specs = make_plan(Request(**{**toy_request, "methods": "seq,nsp2,nsp2[eta=0.5]"})).specs
    lines = status.plan_status_lines(specs, store)
    assert [line.split()[0] for line in lines[:3]] == ["done", "stopped", "missing"] and lines[3] == "3 runs: 1 done, 1 stopped, 1 missing"


def test_clean_removes_what_is_named_after_asking_and_nothing_in_use(store, monkeypatch, capsys):
    def call(*arguments, answer="n\n"):
        import io

        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        with pytest.raises(SystemExit) as exit_:
            main(["clean", *arguments, "--results", str(store.root)])
        return exit_.value.code, capsys.readouterr()

    folders = {path.name.rpartition("-")[0]: path for path in (store.root / "runs").iterdir() if path.is_dir()}
    code, said = call("--failed")
    assert "failed run vpt-pgp" in said.out and "MB" in said.out and folders["vpt-pgp"].exists()
    assert call("--failed", answer="y\n")[0] == 0 and not folders["vpt-pgp"].exists() and folders["vpt-seq"].exists()
    assert call()[0] == 2 and call("--damaged")[1].out == "nothing to remove\n"
    assert "no run is called" in call("zzz")[1].err
    spec = next(record.spec for record in store.records() if record.spec.method == "vpt-nsp2")
    with locks.sole_owner(store, spec, print), pytest.raises(InputError, match="a process is working on the run"):
        clean.unwanted(store, [spec.run_id()], False, False, False)
    assert call(spec.run_id(), "--yes")[0] == 0 and not store.folder(spec).exists()
