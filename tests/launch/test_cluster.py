"""A plan on a Dask scheduler and workers in other processes has the same records, also if one is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from commands import ROOT, finish, learned, outcomes, records, start, wait_for

from cl_bench.records.sealed import read_record
from cl_bench.records.states import state_of
from cl_bench.records.store import Store

distributed = pytest.importorskip("distributed")

IMPATIENT = "import cl_bench.launch.cluster as c; c.ANSWER_SECONDS = 1"


class Cluster:
    """A scheduler and workers, each a process."""

    def __init__(self, folder):
        self.folder, self.file, self.processes = folder, folder / "scheduler.json", []
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        wait_for(lambda: self.file.exists() and self.file.stat().st_size > 0)
        time.sleep(0.2)
        self.address = json.loads(self.file.read_text())["address"]

    def worker(self) -> subprocess.Popen:
        return self._start(
            "worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(self.folder)
        )

    def _start(self, *arguments) -> subprocess.Popen:
        command = [sys.executable, "-m", "dask", *arguments, "--scheduler-file", str(self.file)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "cluster").mkdir()
    made = Cluster(tmp_path / "cluster")
    yield made
    made.close()


@pytest.mark.faults
def test_a_plan_has_the_same_records_on_two_workers_as_on_this_machine(base, cluster, tmp_path):
    arguments = ["run", "--methods", "seq,nsp2[eta=0.5|0.9]", "--set", "passes=3", *base]
    (tmp_path / "here").mkdir()
    code, table, err = finish(start(tmp_path / "here", *arguments))
    assert code == 0, err
    for _ in range(2):
        cluster.worker()
    code, remote, err = finish(start(tmp_path, *arguments, "--scheduler", cluster.address))
    assert code == 0 and remote == table, err
    assert outcomes(tmp_path) == outcomes(tmp_path / "here")
    assert [bool(record.tasks[0].first_task_of) for record in records(tmp_path)].count(False) == 1
    assert all("task 4/4" in path.read_text() for path in (tmp_path / "results" / "runs").glob("*/log.txt"))


@pytest.mark.faults
def test_files_of_trackers_come_back_from_the_workers(base, cluster, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    cluster.worker()
    patch = "import cl_bench.launch.cluster as c; c.CALL_SECONDS = 0.0"
    words = ["run", "--methods", "seq", "--set", "passes=3", *base, "--track", "tensorboard"]
    code, _, err = finish(start(tmp_path, *words, "--scheduler", cluster.address, patch=patch))
    [folder] = (tmp_path / "results" / "trackers" / "tensorboard").glob("*/*")
    found = accumulator.EventAccumulator(str(folder))
    found.Reload()
    losses = [loss for task in records(tmp_path)[0].tasks for loss in task.pass_losses]
    assert code == 0 and len(list(folder.iterdir())) == len(records(tmp_path)[0].environments) == 4, err
    assert [event.step for event in found.Scalars("loss")] == list(range(1, 13))
    assert [event.value for event in found.Scalars("loss")] == pytest.approx(losses, rel=1e-6)


def begun(folder, cluster, arguments) -> subprocess.Popen:
    """A command on the cluster, a task a call, whose first task has come back."""
    patch = "import cl_bench.launch.cluster as c; c.CALL_SECONDS = 0.0"
    process = start(folder, *arguments, "--scheduler", cluster.address, patch=patch)
    wait_for(lambda: learned(folder) and learned(folder)[0] >= 1)
    return process


@pytest.mark.faults
def test_the_run_of_a_killed_worker_goes_on_elsewhere_from_what_came_back(base, cluster, tmp_path):
    arguments = ["run", "--methods", "nsp2", "--set", "passes=40", *base]
    (tmp_path / "here").mkdir()
    assert finish(start(tmp_path / "here", *arguments))[0] == 0
    first = cluster.worker()
    process = begun(tmp_path, cluster, arguments)
    first.send_signal(signal.SIGKILL)
    cluster.worker()
    code, _, err = finish(process)
    assert code == 0 and outcomes(tmp_path) == outcomes(tmp_path / "here"), err
    assert len(records(tmp_path)[0].environments) >= 2


@pytest.mark.faults
def test_a_lost_scheduler_is_one_line_and_what_came_back_is_kept(base, cluster, tmp_path):
    arguments = ["run", "--methods", "seq", "--set", "passes=40", *base]
    cluster.worker()
    process = begun(tmp_path, cluster, arguments)
    cluster.scheduler.send_signal(signal.SIGKILL)
    code, _, err = finish(process)
    assert code == 1 and "was lost; what had come back is kept" in err.splitlines()[-1]
    assert learned(tmp_path)[0] >= 1
    assert finish(start(tmp_path, *arguments))[0] == 0 and records(tmp_path)[0].status == "done"


@pytest.mark.faults
def test_what_is_damaged_is_set_aside_before_a_worker_begins_again(base, cluster, tmp_path):
    arguments = ["run", "--methods", "seq", "--set", "passes=40", *base]
    process = start(tmp_path, *arguments)
    wait_for(lambda: learned(tmp_path) and learned(tmp_path)[0] >= 2)
    process.kill()
    finish(process)
    time.sleep(1)  # its run ends after the task in progress
    wait_for(lambda: state_of(Store(tmp_path / "results"), records(tmp_path)[0].spec).name != "running")
    [checkpoint] = (tmp_path / "results" / "runs").glob("*/checkpoint-*")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    kept = len(records(tmp_path)[0].tasks)
    cluster.worker()
    code, _, err = finish(start(tmp_path, *arguments, "--scheduler", cluster.address))
    assert code == 0 and "the run starts again" in err and records(tmp_path)[0].status == "done", err
    [aside] = (tmp_path / "results" / "runs").glob("*.damaged-*")
    assert len(read_record(aside / "record.json").tasks) == kept


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_refused(base, tmp_path):
    code, _, err = finish(
        start(
            tmp_path,
            "run",
            "--methods",
            "seq",
            *base,
            "--scheduler",
            "tcp://127.0.0.1:9",
            patch="import cl_bench.launch.cluster as c; c.ANSWER_SECONDS = 1",
        )
    )
    assert code == 2 and "the scheduler tcp://127.0.0.1:9 does not answer" in err and "Traceback" not in err


@pytest.mark.parametrize(
    "address", ["²", "", "host", "tcp://host", "tcp://host:port", "none://host:8786", "tcp://host:8786:1"]
)
def test_what_is_no_address_is_refused_without_a_client_that_lingers(address):
    from rich.console import Console

    from cl_bench.errors import InputError
    from cl_bench.launch.cluster import Cluster
    from cl_bench.launch.monitor import Monitor

    with pytest.raises(InputError, match="does not answer .*give its address"):
        Cluster(address, None, Monitor(Console()))
