"""Who gets which run: shared first tasks are trained once, runs of other processes are left to them."""

import threading

import pytest
import runs

from cl_bench.devices import devices, places
from cl_bench.errors import InputError
from cl_bench.launch.queue import RunQueue
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.records import first_task_files, locks
from cl_bench.records.store import Store


@pytest.fixture
def specs(toy_request):
    return make_plan(Request(**{**toy_request, "methods": "nsp2,nsp2[eta=0.5],seq[prompts=5],pgp"})).specs


def train(store, key):
    folder = first_task_files.folder(store, key)
    folder.mkdir(parents=True)
    (folder / first_task_files.FACTS).write_text("{}")


def test_runs_that_share_a_first_task_wait_for_the_one_that_trains_it(specs, tmp_path):
    store, shared = Store(tmp_path), "a" * 64
    keys = {spec.run_id(): shared for spec in (specs[0], specs[1], specs[3])} | {specs[2].run_id(): "b" * 64}
    queue = RunQueue(specs, store, keys)
    first, second = queue.take(), queue.take()
    assert (first.spec, first.shares_first_task) == (specs[0], True)
    assert (second.spec, second.shares_first_task) == (specs[2], False)  # nobody else has its key
    later = []
    waiting = threading.Thread(target=lambda: later.append(queue.take()))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    train(store, shared)
    waiting.join(5)
    assert (
        later[0].spec == specs[1]
        and later[0].shares_first_task
        and queue.take().spec == specs[3]
        and queue.take() is None
    )


def test_when_the_run_that_trains_it_ends_without_another_one_does(specs, tmp_path):
    queue = RunQueue(specs[:2], Store(tmp_path), {spec.run_id(): "a" * 64 for spec in specs})
    queue.finished(queue.take().spec)
    assert queue.take().spec == specs[1]


def test_a_run_that_another_process_holds_is_taken_later(specs, tmp_path):
    store = Store(tmp_path)
    store.prepare()
    queue = RunQueue(specs[:2], store, {})
    with locks.sole_owner(store, specs[0], print):
        assert locks.is_held(store, specs[0]) and not locks.is_held(store, specs[1])
        assert queue.take().spec == specs[1]
    assert queue.take().spec == specs[0] and queue.take() is None
    queue.give_back(specs[0])
    assert queue.take().spec == specs[0]
    queue.give_back(specs[0])
    queue.stop()
    assert queue.take() is None


def test_places_share_the_cores_and_never_outnumber_the_runs():
    here = places(["cpu"], 100)
    assert {len(place.cores) for place in here} == {here[0].threads} and len(
        frozenset.union(*(place.cores for place in here))
    ) == len(here)
    assert (
        len(places(["cpu"], 3, jobs=10**20)) == len(places(["cuda:0"], 3, per_gpu=10**20)) == 3
    )  # no more than there are runs
    assert len(places(["cpu"], 1)) == 1 and len(places(["cpu"], 100, jobs=1)) == 1
    gpus = places(["cuda:0", "cuda:2"], 100, per_gpu=3)
    assert [place.device for place in gpus] == ["cuda:0", "cuda:2"] * 3 and gpus[0].cores is None
    assert len(places(["cuda:0", "cuda:2"], 2, per_gpu=3)) == 2


def test_runs_that_leave_cores_free_are_not_kept_on_the_first_ones(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    assert [place.cores for place in places(["cpu"], 9, jobs=2, threads=1)] == [None, None]
    assert [place.cores for place in places(["cpu"], 9, jobs=2)] == [{0, 1}, {2, 3}]
    assert [place.cores for place in places(["cpu"], 9, jobs=3, threads=2)] == [None] * 3


@pytest.mark.parametrize("asked", ["cuda:7", "cpu,cuda:7", "gpu", "", "cpu,cpu,x", "cuda"])
def test_devices_that_do_not_exist_are_refused(asked):
    with pytest.raises(InputError, match="--device"):
        devices(asked)


@pytest.mark.slow
def test_every_record_is_the_same_with_shared_first_tasks_and_without(toy_request, tmp_path):
    from rich.console import Console

    from cl_bench.launch.orchestrator import LaunchOptions, execute

    specs = make_plan(Request(**{**toy_request, "methods": "nsp2[eta=0.5|0.9],seq"})).specs
    together = execute(
        specs, Store(tmp_path / "shared"), LaunchOptions(device="cpu", jobs=2), Console(quiet=True)
    )
    alone = execute(
        specs,
        Store(tmp_path / "alone"),
        LaunchOptions(device="cpu", jobs=2, share=False),
        Console(quiet=True),
    )
    assert [outcome.failure for outcome in (*together, *alone)] == [None] * 6
    assert [one.record.outcome() for one in together] == [one.record.outcome() for one in alone]
    assert [bool(one.record.tasks[0].first_task_of) for one in together].count(False) == 1
    assert (
        len(list((tmp_path / "shared" / "first-tasks").iterdir())) == 1
        and not (tmp_path / "alone" / "first-tasks").exists()
    )
    assert all(runs.execute(one.spec, tmp_path / "shared") == one.record for one in together)
