"""Offline runs of Weights & Biases, read back."""

import json
import os
import struct
import time

import pytest
from runs import execute, run_until, spec_of

from cl_bench.records.metrics import accuracy_curve
from cl_bench.records.spec import name

pytest.importorskip("wandb", reason="the extra `wandb` is not installed")


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    for variable in [variable for variable in os.environ if variable.startswith("WANDB_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("WANDB_MODE", "offline")


HEADER, BLOCK, LAST = 7, 32768, (1, 4)  # of the file and of each part; types of parts that end a record


def messages(content: bytes):
    """The records of a file in LevelDB's log format: parts with checksum, length and type, in blocks."""
    place, whole = HEADER, b""
    while place + HEADER <= len(content):
        room = BLOCK - place % BLOCK
        if room < HEADER:
            place += room
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        whole += content[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in LAST:
            yield whole
            whole = b""


def stored(folder):
    """(run, history) of an offline run: its first record, and the rows as they would be sent."""
    from wandb.proto import wandb_internal_pb2

    [path] = folder.glob("run-*.wandb")
    records = [wandb_internal_pb2.Record.FromString(each) for each in messages(path.read_bytes())]
    run = next(record.run for record in records if record.HasField("run"))
    rows = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.HasField("history")
    ]
    return run, rows


def curve(rows, axis, key):
    return [(row[axis], row[key]) for row in rows if key in row]


def folders(root):
    return sorted((root / "trackers" / "wandb").glob("offline-run-*"))


def require_whole(rows, record):
    losses = [loss for task in record.tasks for loss in task.pass_losses]
    assert curve(rows, "pass", "loss") == [*enumerate(losses, 1)]
    means = accuracy_curve(record.correct, record.test_sizes)
    assert curve(rows, "task", "accuracy/mean") == [*enumerate(means, 1)]
    assert [row["_step"] for row in rows] == list(range(1, 22))


def test_an_offline_run_has_curves_matrix_and_configuration(toy_request, tmp_path):
    spec = spec_of(toy_request)
    record = execute(spec, tmp_path, track=("wandb",))
    [folder] = folders(tmp_path)
    run, rows = stored(folder)
    require_whole(rows, record)
    assert (run.run_id, run.run_group, run.display_name) == (spec.run_id(), spec.family_id(), name(spec))
    assert run.project == "cl-bench" and run.host == ""
    config = {each.key: json.loads(each.value_json) for each in run.config.update}
    assert config["options"] == spec.options and config["run_id"] == spec.run_id()
    assert config["environment"] == record.environments[0]
    assert list(folder.glob("files/media/images/accuracy_matrix_*.png"))


def test_a_run_that_goes_on_keeps_its_id_and_its_steps(toy_request, tmp_path):
    spec = spec_of(toy_request)
    run_until(spec, tmp_path, 2, 3, track=("wandb",))
    time.sleep(1.1)  # folders are named by the second
    record = execute(spec, tmp_path, track=("wandb",))
    found = [stored(folder) for folder in folders(tmp_path)]
    assert [run.run_id for run, _ in found] == [spec.run_id()] * 2
    require_whole([row for _, rows in found for row in rows], record)
