"""A data set is known by the content of its files: a change is seen, whatever hides it from size and time."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import toys

from cl_bench.data import fingerprints
from cl_bench.data.fingerprints import Fingerprints
from cl_bench.errors import InputError
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.plugins import registry

OLD = 1_500_000_000  # seconds; files of that age are not read at every opening


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path / "cache"))


def folder(path):
    return registry.source_class("folder")(str(path))


def exchange_by_content(one, other):
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def exchange_by_name(one, other):
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def exchange_by_copies(one, other):
    for path in (one, other):
        shutil.copy2(path, path.with_suffix(".copy"))
    one.with_suffix(".copy").replace(other)
    other.with_suffix(".copy").replace(one)


@pytest.mark.parametrize("exchange", [exchange_by_content, exchange_by_name, exchange_by_copies])
def test_two_classes_files_of_equal_size_exchanged_with_their_times_kept_are_another_run(
    tmp_path, exchange, monkeypatch
):
    monkeypatch.setattr(fingerprints, "YOUNG_NS", 0)
    monkeypatch.setattr(fingerprints, "SAMPLE", 0)
    root, weights = (
        toys.write_folder(tmp_path / "data", classes=4, suffix=".bmp"),
        toys.write_weights(tmp_path / "w.safetensors"),
    )
    files = sorted(root.rglob("*.bmp"))
    for path in files:
        os.utime(path, (OLD, OLD))
    request = Request(
        methods="seq",
        dataset=f"folder:{root}",
        backbone="test_vit",
        weights=str(weights),
        image_size=32,
        splits="2",
    )
    before, [spec] = folder(root).images("train").images.copy(), make_plan(request).specs
    for one, other in zip(
        *(sorted((root / "train" / name).iterdir()) for name in ("class_0", "class_1")), strict=True
    ):
        exchange(one, other)
        for path in (one, other):
            os.utime(path, (OLD, OLD))
    assert {(path.stat().st_size, path.stat().st_mtime) for path in files} == {(files[0].stat().st_size, OLD)}
    [changed] = make_plan(request).specs
    assert changed.manifest_digest != spec.manifest_digest and changed.run_id() != spec.run_id()
    assert np.array_equal(
        folder(root).images("train").images, before[[*range(6, 12), *range(6), *range(12, 24)]]
    )


def hide_from_stamps(monkeypatch):
    """Every stamp looks old and stays, as on file systems that keep neither change times nor inodes."""
    original = os.stat

    def stat(path, **settings):
        found = original(path, **settings)
        values = [*found[:1], 0, *found[2:7], OLD, OLD, OLD]
        return os.stat_result(values, {"st_mtime_ns": OLD * 10**9, "st_ctime_ns": OLD * 10**9})

    monkeypatch.setattr("cl_bench.data.fingerprints.os.stat", stat)


def written(root, count=10):
    root.mkdir()
    names = [f"{number:03d}" for number in range(count)]
    for name in names:
        (root / name).write_text(name, encoding="utf-8")
    return names


def test_files_are_read_once_while_nothing_about_them_changes(tmp_path, monkeypatch):
    names = written(tmp_path / "data", 100)
    hide_from_stamps(monkeypatch)
    first, read = Fingerprints(tmp_path / "data").digests(names), []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path), original(path))[1])
    assert Fingerprints(tmp_path / "data").digests(names) == first and len(read) == fingerprints.SAMPLE


def test_a_sample_notices_what_no_stamp_shows(tmp_path, monkeypatch):
    names = written(tmp_path / "data", 20)
    hide_from_stamps(monkeypatch)
    before = Fingerprints(tmp_path / "data").digests(names)
    (tmp_path / "data" / names[3]).write_text("abc", encoding="utf-8")
    after = Fingerprints(tmp_path / "data").digests(names)
    assert [name for name in names if before[name] != after[name]] == [names[3]]


def test_verify_reads_everything_again(tmp_path, monkeypatch):
    names = written(tmp_path / "data")
    monkeypatch.setattr(fingerprints, "SAMPLE", 0)
    hide_from_stamps(monkeypatch)
    before = Fingerprints(tmp_path / "data").digests(names)
    (tmp_path / "data" / names[3]).write_text("abc", encoding="utf-8")
    assert Fingerprints(tmp_path / "data").digests(names) == before
    assert Fingerprints(tmp_path / "data").digests(names, verify=True)[names[3]] != before[names[3]]


def test_a_file_that_changes_while_it_is_used_is_refused(tmp_path):
    names = written(tmp_path / "data")
    known = Fingerprints(tmp_path / "data")
    known.digests(names)
    assert known.content(names[0]) == b"000"
    (tmp_path / "data" / names[0]).write_text("001", encoding="utf-8")
    with pytest.raises(InputError, match="000 changed while it was used"):
        known.content(names[0])


@pytest.mark.parametrize(
    "notes", [b"", b"[]", b'{"files": 3}', b'{"files": {"000": [], "001": 3}}', b"[" * 100_000, b"\xff"]
)
def test_damaged_notes_cost_nothing_but_time(tmp_path, notes):
    names = written(tmp_path / "data")
    before = Fingerprints(tmp_path / "data").digests(names)
    [path] = (tmp_path / "cache").glob("files-*.json")
    path.write_bytes(notes)
    assert Fingerprints(tmp_path / "data").digests(names) == before


def test_the_option_verify_reaches_the_data(tmp_path, monkeypatch):
    toys.write_folder(tmp_path / "data", classes=4)
    read = []
    original = Fingerprints.digests
    monkeypatch.setattr(
        Fingerprints,
        "digests",
        lambda self, paths, verify=False: (read.append(verify), original(self, paths, verify))[1],
    )
    weights = toys.write_weights(tmp_path / "w.safetensors")
    request = {
        "dataset": f"folder:{tmp_path / 'data'}",
        "backbone": "test_vit",
        "weights": str(weights),
        "image_size": 32,
        "splits": "2",
    }
    plain, verified = (
        make_plan(Request(**request)).specs[0],
        make_plan(Request(**request, verify=True)).specs[0],
    )
    assert read == [False, True] and plain.run_id() == verified.run_id()


def test_a_record_names_what_the_data_is_and_how_it_was_decoded(whole_run):
    _, record, _ = whole_run
    assert record.spec.data.keys() == {"pixels", "classes", "decoding"} and record.spec.data[
        "decoding"
    ].startswith("as seen")
    assert "data" not in record.spec.identity()


def test_equal_files_elsewhere_use_the_pixels_that_are_there(tmp_path):
    first = toys.write_folder(tmp_path / "a", classes=2)
    shutil.copytree(first, tmp_path / "b")
    assert folder(first).manifest_digest() == folder(tmp_path / "b").manifest_digest()
    assert len([path for path in (tmp_path / "cache").iterdir() if path.is_dir()]) == 1
