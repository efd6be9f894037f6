"""Processes that wait for a run: ready before it is known, told once, ended when not needed."""

import os
import subprocess
import sys
import time

import commands
import pytest
import runs
import toys

from cl_bench import devices
from cl_bench.errors import InputError, RunFailed
from cl_bench.launch import processes
from cl_bench.launch.warm_processes import Starter, WarmProcess, run_environment
from cl_bench.records.store import Store


class Follower:
    """In place of a `Monitor`."""

    def follow(self, spec, path, process) -> int:
        return process.wait(timeout=120)


def alive(process: subprocess.Popen) -> bool:
    return process.poll() is None


def test_the_process_that_waits_is_used_and_another_gets_ready_while_more_runs_are_to_come():
    with Starter() as starter:
        starter.prepare(1)
        first = starter.ready
        starter.prepare(1)
        assert starter.ready is first  # one is enough
        assert starter.start(1, more=True) is first
        second = starter.ready
        assert second is not None and second is not first and alive(second.process)
        assert starter.start(1, more=False) is second and starter.ready is None
        third = starter.start(1, more=True)  # none was ready
        last = starter.ready
        for used in (first, second, third):
            used.end()
    assert not alive(last.process)  # ended with its starter


def test_a_process_with_other_threads_or_one_that_died_is_not_used():
    with Starter() as starter:
        starter.prepare(2)
        other = starter.ready
        found = starter.start(1, more=False)
        assert found is not other and found.threads == 1 and not alive(other.process)
        found.end()
        starter.prepare(1)
        dead = starter.ready
        dead.process.kill()
        dead.process.wait()
        found = starter.start(1, more=False)
        assert found is not dead and alive(found.process)
        found.end()


def test_a_run_is_not_failed_by_the_process_that_would_have_waited_for_the_next_one(monkeypatch):
    made = []

    def short_of_processes(*arguments, **settings):
        made.append(arguments)
        if len(made) != 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return "process"

    monkeypatch.setattr(subprocess, "Popen", short_of_processes)
    with Starter() as starter:
        starter.prepare(1)
        assert starter.start(1, more=True).process == "process" and len(made) == 3
        with pytest.raises(OSError, match="temporarily unavailable"):
            starter.start(1, more=False)


@pytest.mark.faults
def test_a_waiting_process_ends_when_nobody_is_left_to_tell_it():
    waiting = WarmProcess(1)
    waiting.leave()
    assert waiting.process.wait(timeout=120) == 0 and waiting.early() == b""


@pytest.mark.slow
def test_a_process_that_waits_answers_or_raises_what_is_asked_and_then_still_takes_a_run(capfd):
    with Starter() as starter:
        starter.prepare(1)
        waiting = starter.ready
        assert waiting.call("builtins:divmod", 7, 2) == (3, 1)
        assert waiting.call("os:getenv", "OMP_NUM_THREADS") == "1"
        with pytest.raises(InputError, match="has no usable CUDA GPU|has devices"):
            waiting.call("cl_bench.devices:devices", "cuda:99")
        with pytest.raises(ZeroDivisionError) as fault:
            waiting.call("builtins:divmod", 1, 0)
        assert "in the process that plans" in fault.value.__notes__[0] and "divmod" not in str(fault.value)
        waiting.call("os:system", "echo said >&2")
        assert capfd.readouterr().err == "said\n"
        with pytest.raises(EOFError):
            waiting.call("threading:Lock")  # cannot be sent
        found = starter.start(1, more=False)
        assert found is not waiting
        found.end()


@pytest.mark.slow
def test_where_a_process_that_waits_has_ended_the_question_is_answered_here(tmp_path):
    text = """
import sys
from cl_bench.launch.warm_processes import Starter
with Starter() as starter:
    starter.prepare(1)
    first = starter.call("os:getpid")
    starter.ready.process.kill()
    assert first != starter.call("os:getpid") and starter.ready is None
    assert starter.call("os:getpid") == __import__("os").getpid()
"""
    subprocess.run([sys.executable, "-c", text], check=True, env=run_environment(1), timeout=120)


@pytest.mark.slow
def test_the_command_that_starts_runs_never_imports_torch(toy_request, tmp_path):
    patch = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ImportError("torch is imported")
if "run" in sys.orig_argv:
    sys.meta_path.insert(0, Refusing())
"""
    plain = {name: value for name, value in toy_request.items() if name != "set"}
    arguments = toys.command_options({**plain, "methods": "seq", "splits": "2"})
    arguments += toys.set_options("passes=1", "batch=8")
    code, out, err = commands.finish(commands.start(tmp_path, "run", *arguments, patch=patch))
    assert code == 0 and "VPT-Seq" in out, err


@pytest.mark.slow
def test_a_run_that_is_told_has_the_record_of_one_that_runs_here(
    toy_request, whole_run, tmp_path, monkeypatch
):
    spec, record, _ = whole_run
    monkeypatch.chdir(tmp_path)
    with Starter() as starter:
        ended = processes.carry_out(
            spec, store := Store("results"), devices.Place("cpu", 1), [], Follower(), starter, more=False
        )
    assert ended.code == processes.DONE, ended.said
    assert store.load(spec).outcome() == record.outcome()
    assert (
        ended.said[0].startswith("task 1/4")
        and ended.log.read_text(encoding="utf-8").splitlines() == ended.said
    )


def test_what_a_process_says_before_it_knows_its_log_is_not_lost(toy_request, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'warm-run' in sys.orig_argv:\n    raise SystemExit('no such library')\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spec = runs.spec_of(toy_request)
    with Starter() as starter:
        starter.prepare(1)
        while alive(starter.ready.process):
            time.sleep(0.05)
        ended = processes.carry_out(
            spec, Store(tmp_path), devices.Place("cpu", 1), [], Follower(), starter, more=False
        )
    assert ended.code != 0 and "no such library" in ended.reason


def test_what_is_measured_is_so_in_the_environment_of_a_run(monkeypatch):
    from cl_bench.launch import warm_processes

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert warm_processes.called(
        os.getenv, 3, "OMP_NUM_THREADS"
    ) == "3" and "hugetlb=1" in warm_processes.called(os.getenv, 3, "GLIBC_TUNABLES")
    assert os.environ["OMP_NUM_THREADS"] == "1" and "GLIBC_TUNABLES" not in os.environ
    with pytest.raises(ZeroDivisionError):
        warm_processes.called(divmod, 1, 1, 0)
    with pytest.raises(RunFailed, match="ended from outside"):
        warm_processes.called(os._exit, 1, 3)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_memory_that_tensors_leave_is_kept_unless_the_user_says_otherwise(monkeypatch):
    from cl_bench.launch import warm_processes

    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    tunables = warm_processes.run_environment(3)["GLIBC_TUNABLES"]
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    assert warm_processes.run_environment(3)["GLIBC_TUNABLES"] == "glibc.malloc.check=1"
    count = """
import resource, torch
torch.set_num_threads(1)
def work():
    for _ in range(20):
        torch.ones(1 << 19).mul(2).add(1)
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    plain = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    faults = [
        int(
            subprocess.run(
                [sys.executable, "-c", count], env={**plain, **more}, check=True, capture_output=True
            ).stdout
        )
        for more in ({}, {"GLIBC_TUNABLES": tunables})
    ]
    assert faults[1] <= faults[0] and faults[1] < 200
