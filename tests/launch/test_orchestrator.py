"""Commands stopped, killed, short of memory or time, or two at once lose nothing and do nothing twice."""

import json
import signal
import time

import pytest
from commands import finish, learned, outcomes, records, start, wait_for

from cl_bench.records.store import Store


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory):
    """One long run, never interrupted: its arguments, and its outcome."""
    folder = tmp_path_factory.mktemp("whole")
    arguments = ["run", "--methods", "nsp2", "--set", "passes=40", *base]
    code, _, err = finish(start(folder, *arguments))
    assert code == 0, err
    return arguments, outcomes(folder)


@pytest.mark.slow
def test_ctrl_c_saves_the_task_in_progress_and_the_command_goes_on_to_the_same_record(whole, tmp_path):
    arguments, expected = whole
    process = start(tmp_path, *arguments)
    wait_for(lambda: learned(tmp_path) and learned(tmp_path)[0] >= 1)
    before = learned(tmp_path)[0]
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert code == 130 and "stopping when the tasks in progress are finished" in err
    assert err.splitlines()[-1] == "error: stopped; finished tasks are kept, the same command continues"
    [record] = records(tmp_path)
    assert record.status == "running" and before < len(record.tasks) < 4
    assert finish(start(tmp_path, "status"))[1].startswith("stopped")
    code, _, err = finish(start(tmp_path, *arguments))
    assert code == 0 and outcomes(tmp_path) == expected
    assert "resuming after task" in next((tmp_path / "results" / "runs").glob("*/log.txt")).read_text()


@pytest.mark.faults
def test_a_second_ctrl_c_stops_at_once(whole, tmp_path):
    process = start(tmp_path, *whole[0])
    wait_for(lambda: learned(tmp_path) and learned(tmp_path)[0] >= 1)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.7)
    assert finish(process)[0] == 130 and records(tmp_path)[0].status == "running"


@pytest.mark.faults
def test_a_run_outlives_a_killed_orchestrator_by_no_more_than_its_task(whole, tmp_path):
    arguments, expected = whole
    process = start(tmp_path, *arguments)
    wait_for(lambda: learned(tmp_path) and learned(tmp_path)[0] >= 1)
    process.kill()
    process.wait()
    [folder] = (tmp_path / "results" / "runs").glob("*/")
    from cl_bench.records import locks

    wait_for(lambda: not locks.is_held_by_name(Store(tmp_path / "results"), folder.name))
    assert learned(tmp_path)[0] < 4
    assert finish(start(tmp_path, *arguments))[0] == 0 and outcomes(tmp_path) == expected


@pytest.mark.faults
def test_two_orchestrators_on_one_folder_share_the_runs_and_do_none_twice(base, tmp_path):
    arguments = ["run", "--methods", "seq,nsp2[eta=0.5|0.9],pgp", "--jobs", "1", "--set", "passes=5", *base]
    both = [start(tmp_path, *arguments) for _ in range(2)]
    ended = [finish(process) for process in both]
    assert [code for code, _, _ in ended] == [0, 0], [err[-500:] for _, _, err in ended]
    assert ended[0][1] == ended[1][1]  # the same table
    found = records(tmp_path)
    assert len(found) == 4 and all(
        record.status == "done" and len(record.environments) == 1 for record in found
    )
    assert sum(record.tasks[0].first_task_of is None for record in found) == 1


FULL = """
import cl_bench.records.run_files as files
original = files.write_atomically
def full(path, data):
    if path.name == "checkpoint-002.safetensors":
        raise OSError(28, "No space left on device")
    original(path, data)
files.write_atomically = full
"""


@pytest.mark.faults
def test_a_full_disk_stops_before_another_run_is_started(base, tmp_path):
    code, _, err = finish(
        start(tmp_path, "run", "--methods", "seq,pgp", "--jobs", "1", "--set", "passes=2", *base, patch=FULL)
    )
    assert code == 1 and "No space left on device; free space and repeat the command" in err.splitlines()[-1]
    assert learned(tmp_path) == [1]
    assert finish(start(tmp_path, "run", "--methods", "seq,pgp", "--set", "passes=2", *base))[
        0
    ] == 0 and learned(tmp_path) == [4, 4]


OUT_OF_MEMORY = """
import torch
from cl_bench.data.batch import Batch
original = Batch.split
def short_of_memory(self, size):
    if size > 4:
        raise torch.OutOfMemoryError("CUDA out of memory")
    return original(self, size)
Batch.split = short_of_memory
"""


@pytest.mark.faults
def test_out_of_memory_is_a_failure_where_nothing_is_to_be_tried_again(base, tmp_path):
    code, _, err = finish(
        start(
            tmp_path, "run", "--methods", "seq", "--set", "passes=2", *base, "--no-retry", patch=OUT_OF_MEMORY
        )
    )
    assert code == 1 and "CUDA out of memory" in err


@pytest.mark.slow
def test_out_of_memory_is_tried_once_more_in_parts_of_the_same_batch(base, tmp_path):
    code, _, err = finish(
        start(tmp_path, "run", "--methods", "seq", "--set", "passes=2", *base, patch=OUT_OF_MEMORY)
    )
    assert code == 0 and "out of memory, tried again with 2 images at a time" in err
    assert [task.micro_batch for task in records(tmp_path)[0].tasks] == [2, 2, 2, 2]


@pytest.mark.faults
def test_the_time_limit_ends_a_run_that_can_be_continued(whole, tmp_path):
    arguments, expected = whole
    code, _, err = finish(start(tmp_path, *arguments, "--time-limit", "1s"))
    assert code == 1 and "the time limit of 1 s was reached in task" in err
    assert "stopped: vpt-nsp2" in err and records(tmp_path)[0].status == "running"
    code, out, _ = finish(start(tmp_path, "status"))
    assert code == 0 and out.startswith("stopped") and "time limit" in out
    assert finish(start(tmp_path, *arguments))[0] == 0 and outcomes(tmp_path) == expected


@pytest.mark.slow
def test_progress_says_task_pass_loss_and_accuracy(whole, tmp_path):
    finish(start(tmp_path, *whole[0], "--set", "passes=3"))
    [path] = (tmp_path / "results" / "runs").glob("*/progress.json")
    facts = json.loads(path.read_text())
    assert (facts["done"], facts["task"], facts["tasks"], facts["pass"], facts["passes"]) == (1.0, 4, 4, 3, 3)
    assert 0 <= facts["accuracy"] <= 1 and facts["loss"] > 0 and facts["images_per_second"] > 0
