"""Listings: read from an index that is never the truth, and the states of runs."""

import json
import os

import pytest
import runs

from cl_bench.records import locks, status
from cl_bench.records.index import summaries
from cl_bench.records.record import RunRecord
from cl_bench.records.states import state_of_summary
from cl_bench.records.store import Store

BAD_INDEXES = [
    "", "[]", "null", '{"version": 0}', '{"version": 1}', '{"version": 2}', '{"version": 2, "runs": []}',
    '{"version": 2, "runs": {"a": 1}}', '{"version": 2, "runs": {"a": {"stamp": [], "summary": {}}}}',
    '{"version": 2, "runs": NaN}', "[" * 100_000, "\udcff",
]  # fmt: skip


@pytest.fixture
def store(toy_request, tmp_path):
    """A finished run, one that was killed after its first task, and one that failed in its first."""
    runs.execute(runs.spec_of(toy_request, "seq"), tmp_path)
    runs.run_until(runs.spec_of(toy_request, "nsp2"), tmp_path, 1)
    runs.fail(runs.spec_of(toy_request, "pgp"), tmp_path, task=0)
    return Store(tmp_path)


def states(store):
    return {
        summary.label.partition("[")[0]: state_of_summary(store, summary)[0] for summary in summaries(store)
    }


def test_a_listing_says_what_the_records_say(store):
    assert states(store) == {"vpt-seq": "finished", "vpt-nsp2": "stopped", "vpt-pgp": "failed"}
    lines = status.of_folder(store).lines
    assert lines[-1] == "3 runs: 1 finished, 1 stopped, 1 failed" and any(
        "a singular matrix" in line for line in lines
    )
    spec = next(record.spec for record in store.records() if record.spec.method == "vpt-nsp2")
    with locks.sole_owner(store, spec, print):
        assert states(store)["vpt-nsp2"] == "running"


def test_the_index_is_used_and_never_believed_over_a_changed_record(store, monkeypatch):
    first = summaries(store)
    index = store.root / "index.json"
    values = json.loads(index.read_text(encoding="utf-8"))
    name = next(name for name in values["runs"] if name.startswith("vpt-seq"))
    values["runs"][name]["summary"]["label"] = "from the index"
    index.write_text(json.dumps(values), encoding="utf-8")
    assert any(summary.label == "from the index" for summary in summaries(store))
    record = store.root / "runs" / name / "record.json"
    content = record.read_bytes()
    os.replace(record, record.with_suffix(".old"))
    record.write_bytes(content)
    assert summaries(store) == first
    for damage in BAD_INDEXES:
        index.write_text(damage, encoding="utf-8", errors="surrogateescape")
        assert summaries(store) == first
    index.unlink()
    assert summaries(store) == first and index.exists()
    record.write_bytes(content[:-40])
    assert [summary.status for summary in summaries(store)].count("damaged") == 1
    assert [found.kind for found in store.records() if not isinstance(found, RunRecord)] == ["damaged"]
    index.unlink()
    index.mkdir()
    assert [summary.status for summary in summaries(store)].count("damaged") == 1


def test_an_edited_record_is_listed_as_damaged(store):
    path = next((store.root / "runs").glob("vpt-seq*/record.json"))
    path.write_text(
        path.read_text(encoding="utf-8").replace('"status":"done"', '"status":"fail"'), encoding="utf-8"
    )
    assert states(store)["vpt-seq"] == "damaged"


def test_the_status_of_a_plan_names_what_is_missing(store, toy_request):
    from cl_bench.plan.plan import make_plan
    from cl_bench.plan.request import Request

    specs = make_plan(Request(**{**toy_request, "methods": "seq,nsp2,nsp2[eta=0.5]"})).specs
    lines = status.of_plan(specs, store).lines
    assert [line.split()[0] for line in lines[:3]] == ["finished", "stopped", "missing"] and lines[
        3
    ] == "3 runs: 1 finished, 1 stopped, 1 missing"
