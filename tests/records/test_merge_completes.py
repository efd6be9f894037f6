"""A merged run has all that any of its copies has, whatever the order of the folders."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import command
from made import SEQ, diagnosed_record, record, results

from cl_bench.errors import InputError
from cl_bench.files import write_atomically
from cl_bench.records import locks
from cl_bench.records.gather import archive
from cl_bench.records.merge import merge
from cl_bench.records.record import Certificate
from cl_bench.records.store import Store

TRUTH = np.repeat(np.arange(6), 50)
FOUND = Certificate(
    images=10, batch=4, changed_in_batches=0, changed_when_shuffled=0, right_alone=6, right_in_batches=6,
    right_when_shuffled=6,
)  # fmt: skip
LOSSES = ((1.0,), (1.0, 0.5), (1.0, 0.75))
SEED = 2024


def predicted(seed: int) -> list[np.ndarray]:
    """Predictions after each of three tasks, as one machine made them."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 6, TRUTH.size) for _ in SEQ]


def named(found, seed: int = 0):
    """The record of a run with these predictions, and a checkpoint of its own."""
    made = predicted(seed)
    tasks = [
        task.model_copy(
            update={
                "predictions_sha256": hashlib.sha256(made[t].tobytes()).hexdigest(),
                "checkpoint_sha256": hashlib.sha256(f"state {seed}".encode()).hexdigest(),
            }
        )
        for t, task in enumerate(found.tasks)
    ]
    return found.model_copy(update={"tasks": tuple(tasks)})


def folder(root: Path, found, seed: int = 0, files: bool = True, tasks=(0, 1, 2)) -> Store:
    """A results folder of this run with its predictions after some tasks, checkpoint and log."""
    store = results(root, [found])
    if files:
        made = predicted(seed)
        kept = {f"task_{t + 1:03d}": made[t] for t in tasks if t < len(found.tasks)}
        place = store.folder(found.spec)
        write_atomically(place / "predictions.npz", archive({"truth": TRUTH, **kept}))
        write_atomically(place / f"checkpoint-{len(found.tasks):03d}.safetensors", b"state %d" % seed)
        write_atomically(place / "log.txt", b"learned\n")
    return store


def certified(found):
    return found.model_copy(update={"certificate": FOUND, "certificate_seconds": 2.0})


def followed(seed: int = SEED):
    return record("vpt-seq", SEQ, seed, losses=LOSSES)


def content(store: Store) -> dict[str, bytes]:
    runs = store.root / "runs"
    return {str(path.relative_to(runs)): path.read_bytes() for path in runs.rglob("*") if path.is_file()}


@pytest.fixture
def copies(tmp_path) -> list[Store]:
    """Four folders with the same run, each with something that the others lack."""
    plain = record("vpt-seq", SEQ, SEED)
    measured = diagnosed_record(SEED, {"affinity_change": [0.1, 0.2]})
    return [
        folder(tmp_path / "certified", named(certified(plain)), files=False),
        folder(tmp_path / "followed", named(followed()), files=False),
        folder(tmp_path / "diagnosed", named(measured), files=False),
        folder(tmp_path / "stored", named(plain)),
    ]


def complete(store: Store) -> None:
    [found] = store.records()
    assert found.certificate == FOUND and found.certificate_seconds == 2.0
    assert [task.kept_losses for task in found.tasks] == list(LOSSES)
    assert [task.diagnosis is not None for task in found.tasks] == [True, True, True]
    place = store.folder(found.spec)
    with np.load(place / "predictions.npz") as arrays:
        assert set(arrays.files) == {"truth", "task_001", "task_002", "task_003"}
    assert (place / "checkpoint-003.safetensors").read_bytes() == b"state 0"
    assert (place / "log.txt").read_bytes() == b"learned\n"


def test_a_run_ends_with_what_any_copy_has_in_whatever_order(tmp_path, copies):
    merge(Store(tmp_path / "all"), copies, compact=False)
    merge(Store(tmp_path / "back"), copies[::-1], compact=False)
    complete(Store(tmp_path / "all"))
    assert content(Store(tmp_path / "all")) == content(Store(tmp_path / "back"))


@pytest.mark.parametrize("place", range(4))
def test_a_run_that_is_there_gets_what_it_lacks_and_loses_nothing(tmp_path, copies, place):
    target, sources = copies[place], [copy for copy in copies if copy is not copies[place]]
    done = merge(target, sources, compact=False)
    complete(target)
    assert (done.copied, done.kept, len(done.added), done.warnings, done.lacking) == (0, 1, 1, [], [])
    before = content(target)
    again = merge(target, sources[::-1], compact=False)
    assert (again.copied, again.kept, again.added) == (0, 1, []) and content(target) == before


def test_the_order_of_sources_does_not_choose_between_copies_that_differ(tmp_path):
    one, other = (named(record("vpt-seq", SEQ, SEED, seconds=s), s) for s in (1, 2))
    a, b = folder(tmp_path / "a", one, 1), folder(tmp_path / "b", other, 2)
    for name, sources in (("all", [a, b]), ("back", [b, a])):
        merge(Store(tmp_path / name), sources, compact=False)
    assert content(Store(tmp_path / "all")) == content(Store(tmp_path / "back"))


def test_what_older_records_do_not_say_is_brought_from_newer_ones(tmp_path):
    older = record("vpt-seq", SEQ)
    tasks = [task.model_copy(update={"prediction_passes": 2}) for task in older.tasks]
    newer = older.model_copy(update={"duplicates": 3, "tasks": tuple(tasks)})
    target = results(tmp_path / "all", [older])
    [line] = merge(target, [results(tmp_path / "a", [newer])], compact=False).added
    assert line.endswith("count of duplicates, passes at prediction of 3 tasks")
    assert list(target.records()) == [newer]


def test_times_stay_those_of_the_execution_that_the_target_has(tmp_path):
    target = results(tmp_path / "all", [record("vpt-seq", SEQ, seconds=1.0)])
    merge(target, [results(tmp_path / "a", [certified(record("vpt-seq", SEQ, seconds=9.0))])], compact=False)
    [found] = target.records()
    assert found.certificate == FOUND and [task.learn_seconds for task in found.tasks] == [1.0, 1.0, 1.0]


def test_the_further_copy_keeps_what_only_the_target_had_measured(tmp_path):
    begun = named(record("vpt-seq", SEQ[:2], losses=LOSSES, status="running"))
    target = folder(tmp_path / "all", begun)
    last = folder(tmp_path / "a", named(record("vpt-seq", SEQ)), tasks=(2,))
    done = merge(target, [last], compact=False)
    [found] = target.records()
    assert done.copied == 1 and found.status == "done"
    assert [task.kept_losses for task in found.tasks] == [*LOSSES[:2], None]
    with np.load(target.folder(found.spec) / "predictions.npz") as arrays:
        assert set(arrays.files) == {"truth", "task_001", "task_002", "task_003"}


def test_predictions_and_checkpoints_that_the_record_does_not_name_stay_out_and_are_told(tmp_path):
    target = folder(tmp_path / "all", named(record("vpt-seq", SEQ), 1), files=False)
    before = content(target)
    done = merge(target, [folder(tmp_path / "a", named(record("vpt-seq", SEQ), 2))], compact=False)
    [line] = done.warnings
    assert "predictions and checkpoint" in line and "names" in line
    assert set(content(target)) - set(before) <= {
        f"{target.folder(record('vpt-seq', SEQ).spec).name}/log.txt",
        f".{target.folder(record('vpt-seq', SEQ).spec).name}.lock",
    }


def test_broken_predictions_of_the_target_are_replaced_by_those_its_record_names(tmp_path, copies):
    stored = copies[-1]
    shutil.copytree(stored.root, tmp_path / "all")
    target = Store(tmp_path / "all")
    [found] = target.records()
    (target.folder(found.spec) / "predictions.npz").write_bytes(b"broken")
    assert "predictions after 3 tasks" in merge(target, [stored], compact=False).added[0]
    with np.load(target.folder(found.spec) / "predictions.npz") as arrays:
        assert (arrays["task_002"] == predicted(0)[1]).all() and (arrays["truth"] == TRUTH).all()


def test_a_compact_merge_completes_without_checkpoint_and_earlier_predictions(tmp_path, copies):
    target = copies[0]
    assert len(merge(target, copies[1:], compact=True).added) == 1
    [found] = target.records()
    names = {path.name for path in target.folder(found.spec).iterdir()}
    assert names == {"record.json", "predictions.npz", "spec.json"}
    with np.load(target.folder(found.spec) / "predictions.npz") as arrays:
        assert set(arrays.files) == {"truth", "task_003"}
    merge(target, copies[1:], compact=False)
    complete(target)


def test_a_run_that_a_process_works_on_is_not_completed(tmp_path, copies):
    target = copies[1]
    [found] = target.records()
    with locks.sole_owner(target, found.spec, print):
        before = content(target)
        assert merge(target, [copies[2]], compact=False).lacking[0].startswith("not completed")
        assert merge(target, [target], compact=False).lacking == []  # nothing to add, nothing to wait for
        assert content(target) == before
    assert len(merge(target, [copies[2]], compact=False).added) == 1


def test_of_two_certificates_the_targets_is_kept_with_a_warning(tmp_path):
    other = FOUND.model_copy(update={"changed_in_batches": 1})
    mine, theirs = certified(record("vpt-seq", SEQ)), record("vpt-seq", SEQ)
    target = results(tmp_path / "all", [mine])
    source = results(tmp_path / "a", [theirs.model_copy(update={"certificate": other})])
    done = merge(target, [source], compact=False)
    assert len(done.warnings) == 1 and "certificate" in done.warnings[0] and done.added == []
    assert list(target.records()) == [mine]


def test_the_command_says_what_it_added(tmp_path, copies, capsys):
    assert command("merge", copies[1].root, copies[2].root) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("added to ") and first.endswith("diagnosis of 3 tasks")
    assert "1 were there already, 1 of which lacked something that was added" in last
    assert command("merge", copies[1].root, copies[2].root) == 0
    assert "added" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("correct_within_task", (99, 98)),
        ("training_images", 11),
        ("images_seen", 11),
        ("trainable_parameters", 2),
        ("stored_values", 2),
    ],
)
@pytest.mark.parametrize("fewer", [False, True])
def test_whatever_must_agree_between_machines_is_compared(tmp_path, name, value, fewer):
    found = record("vpt-seq", SEQ)
    changed = found.tasks[1].model_copy(update={name: value})
    tasks = (found.tasks[0], changed) if fewer else (found.tasks[0], changed, found.tasks[2])
    status = "running" if fewer else "done"
    other = found.model_copy(update={"tasks": tasks, "status": status})
    target = results(tmp_path / "all", [found])
    before = content(target)
    with pytest.raises(InputError, match=rf"different results \({name} of task 2"):
        merge(target, [results(tmp_path / "a", [other])], compact=False)
    assert content(target) == before


def test_losses_and_digests_may_differ_between_machines(tmp_path):
    found = record("vpt-seq", SEQ)
    tasks = [
        task.model_copy(update={"pass_losses": (1.5,), "checkpoint_sha256": "x", "peak_memory_bytes": 7})
        for task in found.tasks
    ]
    other = results(tmp_path / "a", [found.model_copy(update={"tasks": tuple(tasks)})])
    target = results(tmp_path / "all", [found])
    done = merge(target, [other], compact=False)
    assert (done.kept, done.added, done.warnings) == (1, [], []) and list(target.records()) == [found]
