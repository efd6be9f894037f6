"""Where file systems have no locks or are read-only, one line says what to do, and listings work without."""

import errno
import fcntl

import pytest
from made import record, results

from cl_bench.cli import main
from cl_bench.errors import Busy, InputError
from cl_bench.records import locks
from cl_bench.records.states import state_of
from cl_bench.records.store import Store
from cl_bench.run.recertify import recertify

COUNTS = [[80], [60, 70], [50, 60, 70]]
BEGUN, DONE = record("vpt-seq", COUNTS[:1], status="running"), record("vpt-nsp2", COUNTS)


@pytest.fixture
def store(tmp_path):
    made = results(tmp_path / "r", [BEGUN, DONE])
    with locks.sole_owner(made, BEGUN.spec, print):
        pass  # leaves its lock file
    return made


def command(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    return end.value.code, told.out, told.err


def without_locks(monkeypatch, number):
    def flock(file, operation):
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "flock", flock)


def read_only(monkeypatch, number):
    """Opening anything to write in it fails, as on a mount that is read-only or belongs to others."""
    import builtins

    open_ = builtins.open

    def refusing(path, mode="r", *rest, **options):
        if set(mode) & set("wax+"):
            raise OSError(number, "Read-only file system", str(path))
        return open_(path, mode, *rest, **options)

    monkeypatch.setattr(builtins, "open", refusing)


def test_a_lock_is_seen_by_others_and_ends_with_its_holder(store):
    assert not locks.is_held(store, BEGUN.spec) and not locks.is_held(store, DONE.spec)
    with locks.sole_owner(store, BEGUN.spec, print):
        assert locks.is_held(store, BEGUN.spec) and state_of(store, BEGUN.spec).name == "running"
        with pytest.raises(Busy), locks.sole_owner(store, BEGUN.spec, print, wait=False):
            pass
    assert not locks.is_held(store, BEGUN.spec) and state_of(store, BEGUN.spec).name == "stopped"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_refused_for_runs_in_one_line(store, monkeypatch, number, capsys):
    without_locks(monkeypatch, number)
    for call in (
        store.prepare,
        lambda: recertify(DONE.spec, store, "cpu", 1, print),
        lambda: locks.is_held(store, BEGUN.spec),
    ):
        with pytest.raises(InputError, match="the file system has no locks; keep results on one that has"):
            call()
    code, _, err = command(capsys, "certify", DONE.spec.run_id(), "--results", store.root)
    assert code == 2 and "has no locks" in err


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_may_not_be_written_is_refused_for_runs_in_one_line(store, monkeypatch, number, capsys):
    read_only(monkeypatch, number)
    with pytest.raises(InputError, match="cannot write the results folder"):
        store.prepare()
    code, _, err = command(capsys, "certify", DONE.spec.run_id(), "--results", store.root)
    assert code == 2 and "cannot lock" in err and "give this user write access" in err


def test_listings_work_where_nothing_may_be_written(store, monkeypatch, capsys):
    (store.root / "index.json").unlink(missing_ok=True)
    expected = "2 runs: 1 finished, 1 stopped"
    with monkeypatch.context() as patched:
        read_only(patched, errno.EROFS)
        for words in (["ls", "runs"], ["status"]):
            code, out, _ = command(capsys, *words, "--results", store.root)
            assert not code and out.splitlines()[-1] == expected
        with locks_held(store):
            assert "1 running" in command(capsys, "status", "--results", store.root)[1]
    assert not (store.root / "index.json").exists()


def locks_held(store):
    """The lock of the begun run, which a process took when it could."""
    import contextlib
    import os

    @contextlib.contextmanager
    def held():
        path = store.root / "runs" / f".{store.folder(BEGUN.spec).name}.lock"
        descriptor = os.open(path, os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.close(descriptor)

    return held()


def test_listings_and_reports_work_without_locks_and_say_what_they_cannot_know(
    store, monkeypatch, tmp_path, capsys
):
    without_locks(monkeypatch, errno.ENOLCK)
    code, out, _ = command(capsys, "status", "--results", store.root)
    assert not code and out.splitlines()[-1] == "2 runs: 1 finished, 1 stopped"
    assert "whether a process works on it is not known" in out
    code, out, err = command(capsys, "report", "--results", store.root, "--out", tmp_path / "out")
    assert not code and "| 60.00 |" in out, err
    code, _, err = command(capsys, "clean", BEGUN.spec.run_id(), "--yes", "--results", store.root)
    assert code == 2 and "has no locks" in err and Store(store.root).load(BEGUN.spec) == BEGUN
