"""Records: what they say, resume after a kill at any moment, locks, identity."""

import hashlib
import itertools
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import QUICK, execute, run_until, spec_of

from cl_bench.errors import InputError, RunFailed
from cl_bench.plugins import registry
from cl_bench.records.record import RunRecord
from cl_bench.records.store import Store, read_record, write_spec
from cl_bench.run import assemble, checkpoints


def test_a_record_says_what_happened(whole_run):
    spec, record, root = whole_run
    assert (
        record.status == "done"
        and len(record.tasks) == 4
        and [len(row) for row in record.correct] == [1, 2, 3, 4]
    )
    assert record.test_sizes == (8, 8, 8, 8)
    for index, task in enumerate(record.tasks):
        assert (
            task.classes == spec.task_classes[index]
            and task.training_images == 12
            and len(task.pass_losses) == 4
        )
        assert task.images_seen == 12 * (
            4 + (index < 3)
        )  # one pass of statistics after all but the last task
        assert all(
            within >= right for within, right in zip(task.correct_within_task, task.correct, strict=True)
        )
    depth, width = 6, 64
    assert record.tasks[0].trainable_parameters == depth * 4 * width + 2 * (width + 1)
    assert record.environments[0]["torch"] == torch.__version__
    with np.load(Store(root).folder(spec) / "predictions.npz") as predictions:
        truth = registry.source_class("folder")(spec.dataset_argument).images("test").labels
        last = predictions["task_004"]
        assert int((last == truth).sum()) == sum(record.tasks[-1].correct)
        assert (predictions["task_001"] == -1).sum() == 24
        np.testing.assert_array_equal(predictions["truth"], truth)


def test_repeating_a_finished_run_trains_nothing(whole_run):
    spec, record, root = whole_run
    said = []
    again = execute(spec, root, said, progress=lambda p: pytest.fail("it trained"))
    assert again == record and "already finished" in said[0]


@pytest.mark.parametrize(
    ("task", "method"), [(0, "vpt-seq"), *itertools.product((1, 3), ("vpt-nsp2", "vpt-pgp", "vpt-seq"))]
)
def test_an_interrupted_run_goes_on_to_the_same_record(toy_request, tmp_path, method, task):
    spec = spec_of(toy_request, method)
    whole = execute(spec, tmp_path / "whole")
    run_until(spec, tmp_path / "cut", task, 2)
    said = []
    resumed = execute(spec, tmp_path / "cut", said)
    assert (f"resuming after task {task} of 4" in said) == (task > 0)
    assert resumed.outcome() == whole.outcome() and len(resumed.environments) == 2


def kill_and_repeat(spec, root, moments, threads="1"):
    """Start `run-one`, SIGKILL it after each given number of seconds, then let it finish."""
    path = write_spec(spec, Store(root).folder(spec))
    command = [
        sys.executable,
        "-m",
        "cl_bench",
        "run-one",
        str(path),
        "--results",
        str(root),
        "--threads",
        threads,
    ]
    for seconds in moments:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return Store(root).load(spec)


@pytest.mark.faults
def test_sigkill_while_training_leaves_a_run_that_finishes_to_the_same_record(toy_request, tmp_path):
    spec = spec_of(toy_request, set={**QUICK, "passes": 60})
    whole = execute(spec, tmp_path / "whole")
    path = write_spec(spec, Store(tmp_path / "cut").folder(spec))
    command = [sys.executable, "-m", "cl_bench", "run-one", str(path), "--results", str(tmp_path / "cut")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    record = Store(tmp_path / "cut").folder(spec) / "record.json"
    while process.poll() is None and not (record.exists() and len(read_record(record).tasks) >= 2):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert Store(tmp_path / "cut").load(spec).outcome() == whole.outcome()


@pytest.mark.faults
def test_sigkill_at_random_moments_never_changes_the_record(toy_request, tmp_path):
    spec = spec_of(toy_request, set={**QUICK, "passes": 100})
    whole = execute(spec, tmp_path / "whole")
    random.seed(0)
    for attempt in range(4):
        found = kill_and_repeat(spec, tmp_path / str(attempt), [random.uniform(2.0, 7.0) for _ in range(3)])
        assert found.outcome() == whole.outcome()


def test_a_failed_run_keeps_its_finished_tasks_and_says_why(toy_request, tmp_path, monkeypatch):
    spec = spec_of(toy_request, "seq")
    kind = registry.method_class("vpt-seq")
    original = kind.loss
    monkeypatch.setattr(
        kind,
        "loss",
        lambda self, batch, task: original(self, batch, task) * (np.nan if task.index == 2 else 1.0),
    )
    with pytest.raises(RunFailed, match="training loss of task 3 became nan"):
        execute(spec, tmp_path)
    failed = Store(tmp_path).load(spec)
    assert failed.status == "failed" and len(failed.tasks) == 2 and "task 3 became nan" in failed.failure
    monkeypatch.setattr(kind, "loss", original)
    assert execute(spec, tmp_path).outcome() == execute(spec, tmp_path / "whole").outcome()


def test_an_error_inside_a_method_fails_the_run_by_its_name(toy_request, tmp_path, monkeypatch):
    spec = spec_of(toy_request, "seq")
    monkeypatch.setattr(
        registry.method_class("vpt-seq"), "predict", lambda self, batch: torch.zeros(len(batch), 99)
    )
    with pytest.raises(RunFailed, match="RuntimeError: predict returned scores of shape"):
        execute(spec, tmp_path)


@pytest.mark.slow
def test_two_processes_on_one_run_train_it_once(toy_request, tmp_path):
    spec = spec_of(toy_request, "seq", set={**QUICK, "passes": 40})
    path = write_spec(spec, Store(tmp_path).folder(spec))
    command = [sys.executable, "-m", "cl_bench", "run-one", str(path), "--results", str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted("already finished" in text for text in said) == [False, True]
    record = Store(tmp_path).load(spec)
    assert record.status == "done" and len(record.environments) == 1


def test_images_or_weights_changed_after_planning_are_refused(toy_request, tmp_path):
    spec = spec_of(toy_request, "seq")
    with pytest.raises(InputError, match="has changed since this run was planned"):
        execute(spec.model_copy(update={"manifest_digest": "0" * 64}), tmp_path)
    with pytest.raises(InputError, match="weights of 'test_vit' have changed"):
        execute(spec.model_copy(update={"weights_sha256": "0" * 64}), tmp_path)
    with pytest.raises(
        InputError, match="weights of 'test_vit' were named by their file when this run was planned"
    ):
        execute(
            spec.model_copy(
                update={
                    "weights_sha256": hashlib.sha256(Path(spec.backbone.weights).read_bytes()).hexdigest()
                }
            ),
            tmp_path,
        )
    with pytest.raises(InputError, match="planned for core version 99"):
        execute(spec.model_copy(update={"core_version": 99}), tmp_path)
    with pytest.raises(InputError, match="planned for version 99"):
        execute(spec.model_copy(update={"method_version": 99}), tmp_path)


def test_validation_never_reads_the_test_side(toy_request, tmp_path, monkeypatch):
    kind = registry.source_class("folder")
    spec = spec_of(toy_request, "seq", validation=0.34)
    original = kind.images
    monkeypatch.setattr(
        kind,
        "images",
        lambda self, side: original(self, side) if side == "train" else pytest.fail("read the test side"),
    )
    record = execute(spec, tmp_path)
    assert record.test_sizes == (4, 4, 4, 4) and record.tasks[0].training_images == 8
    assert "held out" in record.spec.benchmark_name()


def test_bf16_runs_the_same_path(toy_request, tmp_path):
    record = execute(spec_of(toy_request, "nsp2", set={**QUICK, "precision": "bf16"}), tmp_path)
    assert record.status == "done" and isinstance(record, RunRecord)


def test_losses_of_the_first_two_tasks_are_followed_where_asked_for_and_change_nothing_else(
    toy_request, tmp_path, whole_run
):
    spec, plain, _ = whole_run
    asked = spec_of(toy_request, losses=True)
    record = execute(asked, tmp_path)
    assert asked.run_id() == spec.run_id() and record.correct == plain.correct
    assert [task.checkpoint_sha256 for task in record.tasks] == [
        task.checkpoint_sha256 for task in plain.tasks
    ]
    assert plain.tasks[-1].kept_losses is None and [len(task.kept_losses) for task in record.tasks] == [
        1,
        2,
        2,
        2,
    ]
    method, stream = after_the_last_task(record, tmp_path)
    for index in (0, 1):
        task = stream.task(index)
        batch = next(task.plain(batch=100))
        scores = (
            method.predict(batch).detach().double().numpy()[:, list(range(2 * index, 2 * index + 2))] / 4.0
        )  # the tests' temperature
        right = np.exp(scores)[np.arange(len(batch)), batch.labels.numpy() - 2 * index] / np.exp(scores).sum(
            1
        )
        assert record.tasks[-1].kept_losses[index] == pytest.approx(-np.log(right).mean(), rel=1e-4)


def after_the_last_task(record, root):
    source = assemble.open_source(record.spec)
    stream = assemble.build_stream(record.spec, source, torch.device("cpu"))
    method = assemble.build_method(record.spec, source, torch.device("cpu"), stream.num_tasks)
    checkpoints.restore(record, Store(root).folder(record.spec), method, stream, lambda line: None)
    return method, stream
