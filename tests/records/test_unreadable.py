"""A record that cannot be read is neither missing nor damaged: nothing removes, replaces or omits it."""

import errno
import io
import json
import os
import shutil
from pathlib import Path

import pytest
import runs
from made import UNREADABLE, folder, record, results
from rich.console import Console

from cl_bench.cli import main
from cl_bench.errors import CannotRead
from cl_bench.launch import orchestrator, processes
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.records import first_task_files, imported, run_files
from cl_bench.records.merge import merge
from cl_bench.records.metrics import Conventions
from cl_bench.records.sealed import content_of, entries, is_missing
from cl_bench.records.spec import digest
from cl_bench.records.states import state_of
from cl_bench.records.store import Store
from cl_bench.report.versus import versus
from cl_bench.run.recertify import recertify

COUNTS = [[80], [60, 70], [50, 60, 70]]
SEQ, NSP2 = (record(name, COUNTS, dataset="glyphs") for name in ("vpt-seq", "vpt-nsp2"))


def command(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    told = capsys.readouterr()
    assert "Traceback" not in told.out + told.err
    return end.value.code, told.out, told.err


def files(root: Path) -> dict[str, bytes | None]:
    """Everything in a folder but the index, with its content where it is a file."""
    paths = [
        path
        for path in sorted(root.rglob("*"))
        if path.name != "index.json" and not path.name.endswith(".lock")
    ]
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in paths}


@pytest.fixture(params=UNREADABLE.values(), ids=UNREADABLE)
def store(request, tmp_path):
    """Two finished runs, of which the record of one cannot be read."""
    made = results(tmp_path / "r", [SEQ, NSP2])
    request.param(made.folder(NSP2.spec))
    return made


@pytest.fixture
def lacking(tmp_path):
    """The same in one way, for what takes longer."""
    made = results(tmp_path / "r", [SEQ, NSP2])
    UNREADABLE["is in a folder that has vanished"](made.folder(NSP2.spec))
    return made


def test_what_is_not_there_is_missing_and_what_may_not_be_looked_at_is_not(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nothing")
    assert (
        is_missing(tmp_path / "a")
        and is_missing(tmp_path / "a" / "b" / "c")
        and not is_missing(tmp_path / "file")
    )
    assert content_of(tmp_path / "a") is None and content_of(tmp_path / "file") == b""
    for path in (
        tmp_path / "file" / "a",
        tmp_path / "link",
        tmp_path / "link" / "a" / "b",
        tmp_path / ("a" * 300),
    ):
        with pytest.raises(CannotRead, match="it was left as it is"):
            is_missing(path)
        with pytest.raises(CannotRead, match="it was left as it is"):
            content_of(path)


def test_a_folder_that_may_not_be_listed_is_not_taken_for_an_empty_one(tmp_path, monkeypatch):
    """Its files may be opened by name all the same."""
    store = results(tmp_path / "r", [SEQ])
    (store.folder(SEQ.spec) / "checkpoint-003.safetensors").write_bytes(b"state")
    listdir = os.listdir

    def refusing(folder="."):
        if Path(folder).name == store.folder(SEQ.spec).name and str(folder).startswith(str(store.root)):
            raise PermissionError(errno.EACCES, "Permission denied")
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", refusing)
    with pytest.raises(CannotRead, match="Permission denied"):
        entries(store.folder(SEQ.spec), "*")
    done = merge(Store(tmp_path / "all"), [store], compact=False)
    assert (
        done.copied == 0
        and "Permission denied" in done.lacking[0]
        and not Store(tmp_path / "all").holds(SEQ.spec)
    )


def test_it_is_listed_as_unreadable_with_the_reason_and_exit_code_1(store, capsys):
    for words in (("ls", "runs"), ("status",)):
        code, out, err = command(capsys, *words, "--results", store.root)
        assert code == 1 and "2 runs: 1 finished, 1 unreadable" in out and "1 run could not be read" in err
        [line] = [line for line in out.splitlines() if line.startswith("unreadable")]
        assert "vpt-nsp2" in line and "cannot read" in line and "damaged" not in out
    assert not [line for line in (store.root / "index.json").read_text().splitlines() if "unreadable" in line]


def test_clean_removes_nothing_of_it(store, capsys):
    spec, before = NSP2.spec, files(store.root)
    for words in (["--damaged"], ["--failed"], [spec.run_id()]):
        code, out, err = command(capsys, "clean", *words, "--yes", "--results", store.root)
        assert code == 1 and "nothing to remove" in out and "cannot read" in err
    assert files(store.root) == before


def test_run_and_certify_change_nothing_and_say_why(store, capsys):
    spec, before = NSP2.spec, files(store.root)
    with pytest.raises(CannotRead):
        run_files.existing(spec, store, print)
    with pytest.raises(CannotRead):
        recertify(spec, store, "cpu", 1, print)
    code, _, err = command(capsys, "certify", spec.run_id(), "--results", store.root)
    assert code == 1 and "cannot read" in err
    [finished, unread] = orchestrator.execute(
        [SEQ.spec, spec], store, orchestrator.LaunchOptions("cpu"), Console(quiet=True)
    )
    assert (finished.state, finished.failure) == ("finished", None)
    assert (unread.state, unread.record, unread.trained) == (
        "unreadable",
        None,
        False,
    ) and "cannot read" in unread.failure
    assert files(store.root) == before


def test_a_report_says_which_run_its_numbers_lack(lacking, tmp_path, capsys):
    code, out, err = command(capsys, "report", "--results", lacking.root, "--out", tmp_path / "out")
    assert (
        code == 1
        and "left out: cannot read" in err
        and "could not be read or believed, and the numbers above lack it" in err
    )
    assert "| vpt-seq | 60.00 |" in out


def test_a_report_file_that_does_not_ask_for_it_ends_well_and_one_that_does_with_1(lacking, tmp_path, capsys):
    for row, expected in (("seq", 0), ("nsp2", 1)):
        layout = tmp_path / f"{row}.toml"
        layout.write_text(
            f'title = "T"\n[[table]]\nname = "t"\ntitle = "t"\ncolumns = ["glyphs/3"]\nrows = ["{row}"]\n'
        )
        code, _, err = command(capsys, "report", layout, "--results", lacking.root, "--out", tmp_path / "out")
        assert (code, "cannot read" in err) == (expected, True), err


def test_an_export_has_a_line_without_numbers_for_it(lacking, tmp_path, capsys):
    code, _, err = command(capsys, "export", "--results", lacking.root, "--out", tmp_path / "runs.csv")
    first, *rest = (tmp_path / "runs.csv").read_text().splitlines()
    lines = [dict(zip(first.split(","), line.split(","), strict=True)) for line in rest]
    states = {
        line["method"]: (line["status"], line["accuracy_task_mean"] != "", line["run_id"]) for line in lines
    }
    assert states["vpt-seq"][:2] == ("finished", True)
    assert states["vpt-nsp2"] == ("unreadable", False, NSP2.spec.run_id())
    assert code == 1 and "without numbers: cannot read" in err
    assert (
        command(capsys, "export", "--what", "matrix", "--results", lacking.root, "--out", tmp_path / "m.csv")[
            0
        ]
        == 1
    )


def test_a_comparison_that_may_lack_it_exits_with_1(lacking, tmp_path, capsys):
    other = results(tmp_path / "other", [SEQ, NSP2])
    code, out, err = command(capsys, "compare", lacking.root, other.root)
    assert code == 1 and "| vpt-seq | glyphs/3 |" in out and "left out: cannot read" in err
    code, _, err = command(capsys, "compare", "seq", "nsp2", "--results", lacking.root)
    assert code == 1 and "nothing can be shown: cannot read" in err
    results(lacking.root, [record("vpt-seq", COUNTS, dataset="glyphs", method_version=2)])
    assert versus("seq@1", "seq@2", lacking.root, Conventions()).left_out == []


def test_merging_neither_takes_it_nor_replaces_it(store, tmp_path, capsys):
    code, out, err = command(capsys, "merge", tmp_path / "all", store.root)
    assert code == 1 and "1 runs copied" in out and "left out: cannot read" in err
    before = files(store.root)
    whole = results(tmp_path / "whole", [SEQ, NSP2])
    done = merge(store, [whole], compact=False)
    assert done.copied == 0 and any(
        "since what the target has of it cannot be read" in line for line in done.lacking
    )
    assert files(store.root) == before
    assert merge(whole, [store], compact=False).lacking == []  # what the target has is finished


@pytest.mark.slow
def test_plan_and_check_name_it_and_exit_with_1(toy_request, whole_run, tmp_path, capsys):
    spec, _, root = whole_run
    shutil.copytree(root / "runs", tmp_path / "runs")
    UNREADABLE["is a folder"](Store(tmp_path).folder(spec))
    options = [f"--{key.replace('_', '-')}={value}" for key, value in toy_request.items() if key != "set"]
    options += [f"--set={key}={value}" for key, value in {**toy_request["set"], "precision": "fp32"}.items()]
    for name in ("plan", "check", "status"):
        code, out, err = command(
            capsys, name, "--methods", "nsp2", *options, "--results", tmp_path, "--device", "cpu"
        )
        assert code == 1 and "unreadable" in out and "cannot read" in out + err and "could not be read" in err
    before = files(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "here")
    runs.execute(make_plan(Request(**{**toy_request, "methods": "seq"})).specs[0], tmp_path)
    code, out, err = command(
        capsys,
        "run",
        "--methods",
        "seq,nsp2",
        *options,
        "--results",
        tmp_path,
        "--out",
        tmp_path / "o",
        "--device",
        "cpu",
    )
    assert code == 1 and "1 of 2 runs could not be read and were not started" in err and "| VPT-Seq |" in out
    assert "VPT-NSP², seed 2024: its record could not be read, not in the table" in out
    assert {name: content for name, content in files(tmp_path).items() if name in before} == before


@pytest.mark.parametrize("name", ["checkpoint-002.safetensors", "predictions.npz"])
def test_an_unfinished_run_whose_files_cannot_be_read_is_left_as_it_is(whole_run, tmp_path, name):
    spec = whole_run[0]
    runs.run_until(spec, tmp_path, 2)
    path = Store(tmp_path).folder(spec) / name
    path.rename(path.with_suffix(".moved"))
    path.mkdir()
    before = files(tmp_path)
    with pytest.raises(CannotRead, match=name):
        runs.execute(spec, tmp_path)
    assert files(tmp_path) == before
    path.rmdir()
    path.with_suffix(".moved").rename(path)
    assert runs.execute(spec, tmp_path).outcome() == whole_run[1].outcome()


def test_a_read_error_while_a_run_learns_replaces_no_record(whole_run, tmp_path, monkeypatch):
    """The disk gives no answer any more when the failure is to be noted in the record."""
    spec, read = whole_run[0], Path.read_bytes

    def broken(path):
        if path.name == "record.json":
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    def progress(now):
        if now.task == 2:
            monkeypatch.setattr(Path, "read_bytes", broken)
            raise ArithmeticError("a singular matrix")

    with pytest.raises(Exception, match="a singular matrix; and cannot read .*Input/output error"):
        runs.execute(spec, tmp_path, progress=progress)
    monkeypatch.undo()
    assert len(Store(tmp_path).load(spec).tasks) == 2


def test_a_record_of_a_newer_version_is_not_taken_for_damaged(tmp_path):
    found = SEQ
    store = results(tmp_path, [found])
    path = store.folder(found.spec) / "record.json"
    values = json.loads(path.read_text())["record"] | {"energy_joules": 3.5}
    path.write_text(json.dumps({"digest": digest(values), "run_id": found.spec.run_id(), "record": values}))
    state = state_of(store, found.spec)
    assert (
        state.name == "unreadable"
        and "written by another version" in state.reason
        and "energy_joules" in state.reason
    )
    path.write_text(path.read_text().replace("3.5", "4.5"))
    assert state_of(store, found.spec).name == "damaged"


def test_predictions_that_cannot_be_read_are_named_where_an_interval_lacks_them(tmp_path, capsys):
    folder(tmp_path, "a", [80])
    b = folder(tmp_path, "b", [70])
    path = next((b.root / "runs").glob("*/predictions.npz"))
    path.unlink()
    assert command(capsys, "compare", tmp_path / "a", tmp_path / "b")[0] == 0  # none were kept
    path.mkdir()
    code, _, err = command(capsys, "compare", tmp_path / "a", tmp_path / "b")
    assert code == 1 and "predictions.npz" in err and "cannot read" in err
    path.rmdir()
    path.write_bytes(b"PK")
    code, _, err = command(capsys, "compare", tmp_path / "a", tmp_path / "b")
    assert code == 1 and "predictions.npz is damaged" in err


def test_an_imported_matrix_that_cannot_be_read_or_used_is_left_out_by_name(tmp_path, capsys):
    results(tmp_path, [SEQ])
    (tmp_path / "imported" / "a.json").mkdir(parents=True)
    (tmp_path / "imported" / "b.json").write_text("{}")
    code, out, err = command(capsys, "report", "--results", tmp_path, "--out", tmp_path / "out")
    assert (
        code == 1
        and "cannot read" in err
        and "b.json is not an imported matrix" in err
        and "| vpt-seq | 60.00 |" in out
    )
    with pytest.raises(CannotRead):
        imported.records(tmp_path)


def test_a_stored_first_task_that_cannot_be_read_is_not_replaced(toy_request, tmp_path):
    runs.execute(runs.spec_of(toy_request), tmp_path, share_first_task=True)
    [facts] = (tmp_path / "first-tasks").glob(f"*/{first_task_files.FACTS}")
    facts.rename(facts.with_suffix(".moved"))
    facts.mkdir()
    before = files(tmp_path / "first-tasks")
    with pytest.raises(CannotRead, match=first_task_files.FACTS):
        runs.execute(runs.spec_of(toy_request, "seq"), tmp_path, share_first_task=True)
    assert files(tmp_path / "first-tasks") == before
    assert state_of(Store(tmp_path), runs.spec_of(toy_request, "seq")).name == "stopped"


def test_a_run_whose_folder_belongs_to_someone_else_fails_alone(tmp_path, monkeypatch):
    def refused(spec, folder):
        raise PermissionError(errno.EACCES, "Permission denied", str(folder / "spec.json"))

    monkeypatch.setattr(processes, "write_spec", refused)
    ended = processes.carry_out(SEQ.spec, Store(tmp_path), None, [], None, None, False)
    assert ended.code == processes.FAILED and "spec.json: Permission denied" in ended.reason


def test_clean_asks_nothing_where_all_it_found_is_unreadable(lacking, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert command(capsys, "clean", "--damaged", "--results", lacking.root)[0] == 1


def test_of_many_that_cannot_be_read_the_first_are_named_and_the_others_counted(tmp_path, capsys):
    many = [record("vpt-seq", COUNTS, seed) for seed in range(12)]
    store = results(tmp_path, many)
    for found in many:
        UNREADABLE["is a folder"](store.folder(found.spec))
    code, _, err = command(capsys, "clean", "--damaged", "--results", tmp_path)
    assert (
        code == 1
        and err.count("cannot read") == 10
        and "and 2 more like these" in err
        and "12 runs could not be read" in err
    )
