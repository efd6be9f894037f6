"""What trackers are told of a run, once each, and that they cannot change or fail it."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
from runs import QUICK, execute, plan, run_until, spec_of

from cl_bench.records.metrics import accuracy_curve
from cl_bench.records.spec import name
from cl_bench.records.store import Store, write_spec
from cl_bench.trackers import named
from cl_bench.trackers.contract import Tracker


class Recording(Tracker):
    """Keeps what it is told; raises in the method that `breaks` names."""

    told: list = []
    breaks = ""

    def begin(self, run):
        self.note("begin", run)

    def log(self, values, at):
        self.note("log", dict(values), at)

    def image(self, name, pixels, at):
        self.note("image", name, pixels, at)

    def end(self, status):
        self.note("end", status)

    def note(self, *facts):
        if facts[0] == type(self).breaks:
            raise SystemExit("the service\nis away")
        type(self).told.append(facts)


@pytest.fixture(autouse=True)
def recording(monkeypatch):
    monkeypatch.setattr(Recording, "told", [])
    monkeypatch.setattr(Recording, "breaks", "")
    monkeypatch.setattr(named, "find", lambda name: Recording)
    return Recording


def logged(axis=None):
    return [
        (at.axis, at.count, at.step, values)
        for kind, values, at in (each for each in Recording.told if each[0] == "log")
        if axis in (None, at.axis)
    ]


def test_a_run_tells_its_passes_tasks_and_matrix(toy_request, whole_run, tmp_path):
    spec, whole, _ = whole_run
    record = execute(spec, tmp_path, track=("one",))
    assert record.outcome() == whole.outcome()
    assert [each[0] for each in Recording.told] == ["begin", *["log"] * 4 * 5, "image", "end"]
    assert Recording.told[-1] == ("end", "finished")
    passes, tasks = logged("pass"), logged("task")
    losses = [loss for task in whole.tasks for loss in task.pass_losses]
    assert [values["loss"] for *_, values in passes] == losses
    assert [count for _, count, _, _ in passes] == list(range(1, 17))
    rate = spec.options["learning_rate"]  # a tenth after 40 and after 70 % of the passes
    assert [values["learning_rate"] for *_, values in passes] == pytest.approx(
        [rate, rate, rate / 10, rate / 100] * 4
    )
    assert all(values["images_per_second"] > 0 for *_, values in passes)
    assert [step for *_, step, _ in logged()] == list(range(1, 21))
    means = accuracy_curve(whole.correct, whole.test_sizes)
    assert [values.pop("accuracy/mean") for *_, values in tasks] == means
    for count, (_, at, step, values) in enumerate(tasks, 1):
        assert (at, step) == (count, 5 * count)
        each = [right / 8 for right in whole.tasks[count - 1].correct]
        assert values == {f"accuracy/task_{j:02d}": rate for j, rate in enumerate(each, 1)}
    _, title, pixels, at = Recording.told[-2]
    assert title == "accuracy_matrix" and (at.axis, at.count, at.step) == ("task", 4, 21)
    assert pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.std() > 20


def test_a_tracker_knows_the_run_and_no_path_of_the_machine(toy_request, tmp_path):
    spec = spec_of(toy_request)
    record = execute(spec, tmp_path, track=("one",))
    run = Recording.told[0][1]
    assert (run.run_id, run.family_id, run.name) == (spec.run_id(), spec.family_id(), name(spec))
    assert run.fresh and not run.moved and run.folder == tmp_path / "trackers"
    told = run.configuration
    assert told["options"] == spec.options and told["environment"] == record.environments[0]
    assert told["seeds"] == {"order": "2024", "init": 2024, "data": 2024}
    assert told["backbone"]["name"] == "test_vit" and told["benchmark"]["task_sizes"] == [2, 2, 2, 2]
    assert told["run_id"] == spec.run_id() and told.pop("command") == spec.command
    assert json.loads(json.dumps(told)) == told
    assert spec.dataset_argument not in json.dumps(told) and spec.backbone.weights not in json.dumps(told)


@pytest.mark.parametrize("task", [0, 2])
def test_a_run_that_goes_on_repeats_nothing_and_leaves_nothing_out(toy_request, tmp_path, task):
    spec = spec_of(toy_request)

    def points(root):
        execute(spec, root, track=("one",))
        found = [(*where, values.get("loss"), values.get("accuracy/mean")) for *where, values in logged()]
        Recording.told.clear()
        return found

    whole = points(tmp_path / "whole")
    run_until(spec, tmp_path / "cut", task, 3, track=("one",))
    cut = [each[0] for each in Recording.told]
    assert cut == ["begin", *["log"] * (5 * task + 2), "end"]
    assert Recording.told[-1] == ("end", "stopped")
    assert points(tmp_path / "cut") == whole


def test_what_was_learned_before_anyone_was_told_is_told_from_the_record(toy_request, tmp_path):
    spec = spec_of(toy_request)
    run_until(spec, tmp_path, 2, 3)
    assert not Recording.told
    record = execute(spec, tmp_path, track=("one",))
    assert Recording.told[0][1].fresh
    assert [step for *_, step, _ in logged()] == list(range(1, 21))
    losses = [loss for task in record.tasks for loss in task.pass_losses]
    assert [values["loss"] for *_, values in logged("pass")] == losses
    assert [len(values) for *_, values in logged("pass")] == [1] * 8 + [3] * 8


@pytest.mark.parametrize("left", ["[1]", "null", '{"one": "x"}', "{", ""])
def test_a_broken_note_of_what_was_sent_is_none(toy_request, tmp_path, left):
    spec = spec_of(toy_request, "seq")
    folder = Store(tmp_path).folder(spec)
    folder.mkdir(parents=True)
    (folder / "trackers.json").write_text(left)
    execute(spec, tmp_path, track=("one",))
    assert [step for *_, step, _ in logged()] == list(range(1, 21)) and Recording.told[0][1].fresh


def test_a_shared_first_task_is_told_by_every_run(toy_request, tmp_path):
    for method in ("seq", "nsp2"):
        Recording.told.clear()
        execute(spec_of(toy_request, method), tmp_path, track=("one",), share_first_task=True)
        assert [step for *_, step, _ in logged()] == list(range(1, 21))


def test_passes_shuffled_together_are_told_one_by_one(toy_request, tmp_path):
    spec = spec_of(toy_request, set={**QUICK, "epoch_mode": "repeat2"})
    record = execute(spec, tmp_path, track=("one",))
    losses = [loss for task in record.tasks for loss in task.pass_losses]
    assert [values["loss"] for *_, values in logged("pass")] == losses and len(losses) == 16


def test_all_classes_at_once_are_one_task(toy_request, tmp_path):
    record = execute(spec_of(toy_request, "joint"), tmp_path, track=("one",))
    [(_, at, step, values)] = logged("task")
    assert (at, step) == (4, len(record.tasks[0].pass_losses) + 1) and len(values) == 5
    assert Recording.told[-2][0] == "image"


@pytest.mark.parametrize("method", ["begin", "log", "image", "end"])
def test_a_tracker_that_fails_is_a_warning_and_nothing_else(
    toy_request, whole_run, tmp_path, method, recording
):
    recording.breaks, said = method, []
    spec, whole, _ = whole_run
    record = execute(spec, tmp_path, said, track=("one",))
    assert record.status == "done" and record.outcome() == whole.outcome()
    [warning] = [line for line in said if "warning" in line]
    assert warning == (
        "warning: the tracker one failed, nothing more of this run is sent to it: SystemExit: "
        "the service is away"
    )
    last = {"begin": ("end", "failed"), "log": ("end", "failed"), "image": ("end", "failed")}
    assert Recording.told[-1] == last.get(method, Recording.told[-1])
    kinds = [each[0] for each in Recording.told]
    assert kinds.count("log") == {"begin": 0, "log": 0, "image": 20, "end": 20}[method]


def test_the_time_of_a_tracker_is_not_that_of_learning(toy_request, tmp_path, monkeypatch):
    monkeypatch.setattr(Recording, "note", lambda self, kind, *facts: slow(kind, facts))

    def slow(kind, facts):
        if kind == "log" and facts[1].count <= 4 and facts[1].axis == "pass":
            time.sleep(0.6)

    record = execute(spec_of(toy_request, "seq"), tmp_path, track=("one",))
    assert record.tasks[0].learn_seconds < 2.4


def test_a_tracker_that_is_not_there_when_the_run_begins_is_a_warning(toy_request, tmp_path, monkeypatch):
    monkeypatch.undo()
    said = []
    assert execute(spec_of(toy_request, "seq"), tmp_path, said, track=("gone",)).status == "done"
    assert [line for line in said if line.startswith("warning: the tracker gone failed")]


def test_the_end_of_a_run_is_told(toy_request, tmp_path):
    def progress(now):
        raise ArithmeticError("a singular matrix")

    with pytest.raises(Exception, match="a singular matrix"):
        execute(spec_of(toy_request), tmp_path, progress=progress, track=("one",))
    assert Recording.told[-1] == ("end", "failed")
    with pytest.raises(Exception, match="the time limit"):
        execute(spec_of(toy_request), tmp_path, track=("one",), seconds=0.0)
    assert Recording.told[-1] == ("end", "stopped")


def test_trackers_are_no_part_of_what_a_run_is(toy_request):
    [plain], [tracked] = plan(toy_request).specs, plan(toy_request, track="tensorboard,mlflow").specs
    assert tracked == plain and tracked.run_id() == plain.run_id() and "track" not in tracked.command


@pytest.mark.slow
def test_a_run_without_trackers_imports_none_and_writes_nothing(toy_request, tmp_path):
    spec = spec_of(toy_request, "seq")
    path = write_spec(spec, Store(tmp_path).folder(spec))
    code = (
        "import sys; from cl_bench.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print([name for name in sys.modules if name.startswith('cl_bench.trackers.')])"
    )
    words = ["run-one", str(path), "--results", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    imported = done.stdout.splitlines()[-1]
    assert done.returncode == 0 and "trackers.tracking" in imported, done.stderr
    assert not [name for name in (*named.BUILT_IN, "picture") if f"trackers.{name}" in imported]
    assert not (tmp_path / "trackers").exists()
    assert not (Store(tmp_path).folder(spec) / "trackers.json").exists()
