"""What is named or proved to be of no use is removed, after saying what is finished, and nothing else."""

import io
import shutil

import pytest
import runs

from cl_bench.cli import main
from cl_bench.errors import InputError, RunFailed
from cl_bench.records import clean, file_lock, locks
from cl_bench.records.index import summaries
from cl_bench.records.states import state_of, state_of_summary
from cl_bench.records.store import Store


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """`cl-bench clean` with an answer to its question."""

    def called(*arguments, answer="n\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        with pytest.raises(SystemExit) as exit_:
            main(["clean", *map(str, arguments), "--results", str(tmp_path)])
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return exit_.value.code, told.out, told.err

    return called


def folder(root, method):
    [found] = [
        path for path in (root / "runs").iterdir() if path.is_dir() and path.name.rpartition("-")[0] == method
    ]
    return found


def test_it_removes_what_is_named_after_saying_what_is_finished_of_it(toy_request, tmp_path, call):
    specs = [runs.spec_of(toy_request, name) for name in ("seq", "nsp2")]
    runs.execute(specs[0], tmp_path)
    runs.run_until(specs[1], tmp_path, 1)
    code, out, _ = call(specs[0].run_id(), specs[1].run_id())
    assert (
        "4 of 4 tasks finished" in out
        and "1 of 4 tasks finished" in out
        and " kB" in out
        and folder(tmp_path, "vpt-seq").exists()
    )
    assert call(specs[1].run_id(), answer="y\n")[0] == 0
    assert not Store(tmp_path).folder(specs[1]).exists() and folder(tmp_path, "vpt-seq").exists()
    assert (
        "no run is called" in call("zzz")[2]
        and call()[0] == 2
        and call("--damaged")[1] == "nothing to remove\n"
    )
    assert (
        "is not a run in" in call(tmp_path / "other" / "runs" / folder(tmp_path, "vpt-seq").name, "--yes")[2]
    )
    assert call(folder(tmp_path, "vpt-seq"), "--yes")[0] == 0 and list(Store(tmp_path).records()) == []


def test_failed_runs_go_only_where_no_task_of_them_is_finished(toy_request, tmp_path, call):
    runs.fail(runs.spec_of(toy_request, "pgp"), tmp_path, task=0)
    runs.fail(runs.spec_of(toy_request, "seq"), tmp_path, task=2)
    with pytest.raises(RunFailed, match="time limit of 0 s"):
        runs.execute(runs.spec_of(toy_request, "nsp2"), tmp_path, seconds=0.0)
    seq = runs.spec_of(toy_request, "seq")
    code, out, err = call("--failed", answer="y\n")
    assert (
        code == 0
        and "failed run vpt-pgp" in out
        and "0 of 4 tasks finished" in out
        and "1 folders removed" in out
    )
    assert (
        "kept: failed run vpt-seq" in err
        and f"2 of 4 tasks are finished, and `cl-bench run` goes on after them; name {seq.run_id()}" in err
    )
    assert {path.name.rpartition("-")[0] for path in (tmp_path / "runs").iterdir() if path.is_dir()} == {
        "vpt-seq",
        "vpt-nsp2",
    }
    assert (
        runs.execute(seq, tmp_path).outcome() == runs.execute(seq, tmp_path / "alone").outcome()
    )  # it did go on


@pytest.mark.parametrize("task", [0, 2])
def test_a_run_that_met_its_time_limit_or_a_full_disk_is_stopped_and_says_why(
    toy_request, tmp_path, monkeypatch, task, call
):
    from cl_bench.files import write_atomically
    from cl_bench.records import run_files

    slow, full = runs.spec_of(toy_request, "seq"), runs.spec_of(toy_request, "pgp")
    runs.run_until(slow, tmp_path, task)
    with pytest.raises(RunFailed, match="time limit"):
        runs.execute(slow, tmp_path, seconds=0.0)

    def no_space(path, data):
        if path.name == f"checkpoint-{task + 1:03d}.safetensors":
            raise OSError(28, "No space left on device")
        write_atomically(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(run_files, "write_atomically", no_space)
        with pytest.raises(RunFailed, match="No space left"):
            runs.execute(full, tmp_path)
    store = Store(tmp_path)
    for spec, reason in ((slow, "time limit of 0 s"), (full, "No space left on device")):
        state = state_of(store, spec)
        assert (state.name, state.tasks) == ("stopped", task) and reason in state.reason
    assert [state_of_summary(store, summary)[0] for summary in summaries(store)] == ["stopped", "stopped"]
    assert call("--failed", "--yes")[:2] == (0, "nothing to remove\n")
    assert runs.execute(slow, tmp_path).failure is None


def test_damage_goes_with_what_is_known_of_its_finished_tasks(toy_request, tmp_path, call):
    spec = runs.spec_of(toy_request, "seq")
    runs.run_until(spec, tmp_path, 3)
    checkpoint = next(folder(tmp_path, "vpt-seq").glob("checkpoint-*"))
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    runs.execute(spec, tmp_path)
    record = folder(tmp_path, "vpt-seq") / "record.json"
    record.write_text(record.read_text(encoding="utf-8")[:300], encoding="utf-8")
    code, out, _ = call("--damaged")
    assert (
        "set aside, 3 of 4 tasks finished" in out
        and "damaged run vpt-seq" in out
        and "finished tasks unknown" in out
    )
    assert (
        call("--damaged", "--yes")[0] == 0
        and [path for path in (tmp_path / "runs").iterdir() if path.is_dir()] == []
    )


def test_a_copy_and_a_renamed_run_are_never_damaged_and_a_copy_is_removed_without_its_run(
    toy_request, tmp_path, call
):
    spec = runs.spec_of(toy_request, "seq")
    record = runs.execute(spec, tmp_path)
    own = folder(tmp_path, "vpt-seq")
    shutil.copytree(own, own.with_name("backup"))
    assert call("--damaged", "--failed", "--yes")[1] == "nothing to remove\n"
    [copy] = [found for found in Store(tmp_path).records() if found != record]
    assert copy.kind == "copy" and not copy.lacking
    assert call("backup", "--yes")[0] == 0 and own.exists() and not own.with_name("backup").exists()
    own.rename(own.with_name("renamed"))
    [found] = Store(tmp_path).records()
    assert found.kind == "misplaced" and found.lacking and own.name in found.reason
    assert (
        call("--damaged", "--failed", "--yes")[1] == "nothing to remove\n"
        and own.with_name("renamed").exists()
    )


def test_nothing_in_use_is_removed_nor_what_changed_since_it_was_listed(toy_request, tmp_path, call):
    spec = runs.spec_of(toy_request, "seq")
    runs.run_until(spec, tmp_path, 1)
    store = Store(tmp_path)
    choice = clean.choose(store, [spec.run_id()], False, False, False)
    with locks.sole_owner(store, spec, print):
        with pytest.raises(InputError, match="a process is working on the run"):
            clean.choose(store, [spec.run_id()], False, False, False)
        with pytest.raises(InputError, match="a process is working on"):
            clean.remove(store, list(choice.unwanted.values()))
    runs.run_until(spec, tmp_path, 2)
    with pytest.raises(InputError, match="has changed since it was listed"):
        clean.remove(store, list(choice.unwanted.values()))
    assert len(store.load(spec).tasks) == 2
    runs.execute(runs.spec_of(toy_request, "nsp2"), tmp_path, share_first_task=True)
    [first] = (tmp_path / "first-tasks").iterdir()
    with open(first / locks.WHOLE_FOLDER, "ab") as file:
        assert file_lock.take(file, first, wait=False)
        assert "is in use by a run" in call("--first-tasks", "--yes")[2] and first.exists()
    assert call("--first-tasks", "--yes")[0] == 0 and not first.exists()
