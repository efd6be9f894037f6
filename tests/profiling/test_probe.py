"""`cl-bench plan --probe` tells the time of runs whose methods never ran here."""

import json

import pytest
import runs
import torch

from cl_bench import cli
from cl_bench.devices import places
from cl_bench.errors import RunFailed
from cl_bench.plan.forecast import forecast
from cl_bench.plan.measured import Speed, kind
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.plugins import registry
from cl_bench.profiling import probe
from cl_bench.records.store import Store


def specs_of(toy_request, methods):
    return make_plan(Request(**{**toy_request, "methods": methods})).specs


def measured(specs):
    said = []
    return probe.measure(specs, "cpu", False, said.append), said


def test_each_kind_of_run_is_timed_once(toy_request):
    specs = specs_of({**toy_request, "seeds": "2"}, "nsp2[eta=0.5|0.9],simplecil,joint")
    found, said = measured(specs)
    assert set(found) == {kind(spec) for spec in specs} and len(found) == 3
    assert all(speed.learning > 0 and speed.predicting > 0 for speed in found.values())
    assert [line.split(":")[0] for line in said] == ["probe 1/3", "probe 2/3", "probe 3/3"]


def test_the_steps_are_as_many_as_announced(toy_request, monkeypatch):
    """Ten batches are timed, after the two of the task before them."""
    [spec], sizes = specs_of(toy_request, "seq"), []
    spec = spec.model_copy(update={"options": {**spec.options, "batch": 2, "passes": 7}})
    kind_of_method = registry.method_class("vpt-seq")
    learn = kind_of_method.learn
    monkeypatch.setattr(
        kind_of_method,
        "learn",
        lambda self, task, trainer: (sizes.append(len(task)), learn(self, task, trainer))[1],
    )
    seen = []
    monkeypatch.setattr(probe, "speed", lambda method, spent: seen.append(spent) or Speed(1, 1))
    measured([spec])
    assert sizes == [probe.WARM_UP * 2, min(probe.STEPS * 2, 12)]  # the data set has 12 images a task
    [spent] = seen
    assert spent.images == 12 and [images for _, images in spent.tasks] == [12]
    assert spent.predicted == 16  # all test images of two tasks: fewer than ten batches


def test_a_plan_takes_the_time_from_the_probe_until_a_run_is_there(toy_request, tmp_path):
    specs = specs_of(toy_request, "nsp2,seq")
    store, where, asked = Store(tmp_path), places(["cpu"], 2, jobs=1), []

    def probed(wanted):
        asked.append([spec.method for spec in wanted])
        return {kind(spec): Speed(2.0, 3.0) for spec in wanted}

    assert forecast(specs, store, where).values["to_do"]["seconds"] is None and not asked
    made = forecast(specs, store, where, share=False, probe=probed)
    assert asked == [["vpt-nsp2", "vpt-seq"]] and "from a few steps of 2 of the methods" in made.lines[-1]
    assert [run["probed"] for run in made.values["runs"]] == [True, True]
    seq = made.values["runs"][1]["seconds"]
    images, predicted = 4 * 12 * 4, 8 + 16 + 24 + 32  # four passes
    assert seq == pytest.approx(2.0 * images + 3.0 * predicted, rel=0.1)  # prompts add a little
    runs.execute(specs[1], tmp_path)
    made = forecast(specs, store, where, probe=probed)
    assert asked[1:] == [["vpt-nsp2"]] and [run["probed"] for run in made.values["runs"]] == [True, False]


def test_what_cannot_be_timed_stays_unknown_and_says_why(toy_request, tmp_path, monkeypatch):
    specs = specs_of(toy_request, "nsp2,seq")

    def fail(self, task, trainer):
        raise failures.pop()

    failures = [
        RunFailed("third"),
        torch.OutOfMemoryError("out of memory\nby much"),
        RunFailed("the loss is not finite"),
    ]
    monkeypatch.setattr(registry.method_class("vpt-seq"), "learn", fail)
    for expected in ("the loss is not finite", "out of memory"):
        found, said = measured(specs[1:])
        assert not found and said[-1] == f"warning: the time of {specs[1].label} stays unknown: {expected}"
    where = places(["cpu"], 2, jobs=1)
    made = forecast(specs, Store(tmp_path), where, probe=lambda wanted: measured(wanted)[0])
    assert made.values["to_do"]["seconds"] is None
    assert made.values["runs"][0]["seconds"] > 0 and made.lines[-1].startswith("time: unknown for 1 runs")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(registry.plugins("methods")))
def test_every_method_can_be_timed(toy_request, name):
    if name == "dualp-lgcl" or name.startswith("clip-"):
        pytest.skip("learns from class names, which these images lack")
    options = {"coda-prompt": {"components": 8}, "ranpac": {"projection": 8}}.get(name, {})
    found, said = measured(specs_of({**toy_request, "set": options}, name))
    assert len(found) == 1, said


@pytest.mark.slow
def test_the_command_prints_times_and_trains_no_run(toy_request, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    asked = ["plan", "--methods", "seq", "--devices", "cpu", "--probe", "--json"]
    for key in ("dataset", "backbone", "weights", "splits"):
        asked += [f"--{key}", str(toy_request[key])]
    with pytest.raises(SystemExit) as ended:
        cli.main([*asked, "--image-size", "32"])
    said = capfd.readouterr()
    assert not ended.value.code and "probe 1/1: 10 steps of vpt-seq" in said.err
    assert json.loads(said.out)["to_do"]["seconds"] > 0 and not list(tmp_path.iterdir())
