"""What a plan prints before anything is trained: states, costs, what is shared, and the time."""

import pytest
import runs

from cl_bench.console import short, size
from cl_bench.devices import places
from cl_bench.plan.cost import costs
from cl_bench.plan.forecast import forecast
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.plugins import registry
from cl_bench.records.store import Store


@pytest.fixture
def specs(toy_request):
    return make_plan(Request(**{**toy_request, "methods": "nsp2[eta=0.5|0.9],seq"})).specs


def test_the_cost_is_what_the_record_says_afterwards(specs, tmp_path):
    found = costs(specs)
    for spec in specs[1:]:
        record, cost = runs.execute(spec, tmp_path), found[spec.run_id()]
        assert cost.images == tuple(task.images_seen for task in record.tasks)
        assert cost.parameters == record.tasks[-1].trainable_parameters
        assert [task.prediction_passes for task in record.tasks] == [cost.prediction_passes] * 4 == [1] * 4
        assert cost.test_images == (8, 16, 24, 32)
        [checkpoint] = Store(tmp_path).folder(spec).glob("checkpoint-*")
        assert 0 <= checkpoint.stat().st_size - cost.stored_bytes < 10_000  # the file's own header
    assert (
        found[specs[1].run_id()].forwards == (12 * 9, 12 * 9, 12 * 9, 12 * 8)
        and found[specs[2].run_id()].forwards == (12 * 8,) * 4
    )
    assert found[specs[1].run_id()].evaluating == (8, 16, 24, 32 + 3 * 32)


def test_a_network_for_each_task_makes_predictions_dearer_from_task_to_task(specs, monkeypatch):
    one = costs(specs)[specs[2].run_id()]
    of_each_task = property(lambda self: len(self.head.heads))
    monkeypatch.setattr(registry.method_class("vpt-seq"), "prediction_passes", of_each_task)
    four = costs(specs)[specs[2].run_id()]
    assert four.predicted == (8, 2 * 16, 3 * 24, 4 * 32) and one.predicted == (8, 16, 24, 32)
    assert four.evaluating == (8, 2 * 16, 3 * 24, 4 * 32 + 3 * 4 * 32)  # the certificate asks three times
    assert (four.forwards, four.test_images) == (one.forwards, one.test_images)


def test_a_forecast_counts_a_shared_first_task_once_and_learns_the_time(specs, tmp_path):
    store, where = Store(tmp_path), places(["cpu"], 3, jobs=1)
    lines = forecast(specs, store, where).lines
    alone = forecast(specs, store, where, share=False).lines
    assert [line.split()[0] for line in lines[1:4]] == [
        "missing"
    ] * 3 and "time: unknown for 3 runs" in lines[-1]
    total = 2 * (12 * 35 + 176) + 12 * 32 + 176
    assert f"to do: {short(total)} forward-equivalents" in alone[-2]
    saved = 2 * 96 + 12  # the second run's and the third's training, the second's statistics
    assert (
        f"to do: {short(total - saved)} forward-equivalents" in lines[-3]
        and f"saved by shared first tasks: {saved} forward" in lines[-2]
    )
    runs.execute(specs[2], tmp_path)
    runs.run_until(specs[0], tmp_path, 2)
    lines = forecast(specs, store, where).lines
    assert (
        lines[1].startswith("stopped after 2")
        and lines[3].startswith("finished")
        and "3 runs: 1 finished, 1 stopped, 1 missing" in lines
    )
    assert lines[-1].startswith("time: about 0:0") and lines[1].split()[-1] != "–"


@pytest.mark.slow
def test_ten_values_of_eta_over_ten_tasks_cost_at_most_92_percent(tmp_path):
    etas = "|".join(f"0.{digit}" for digit in range(10))
    specs = make_plan(Request(methods=f"nsp2[eta={etas}]", set={"passes": 15})).specs
    [line] = [
        line
        for line in forecast(specs, Store(tmp_path), places(["cpu"], 1)).lines
        if line.startswith("saved")
    ]
    assert float(line.rpartition(", ")[2].rstrip("%")) >= 8.0


def test_numbers_are_short():
    assert [short(number) for number in (7, 12_345, 4_560_000)] == ["7", "12.3k", "4.56M"]
    assert [size(number) for number in (0, 640, 64_000, 12e6, 2_345_678_901)] == [
        "0 bytes", "640 bytes", "64.00 kB", "12.00 MB", "2.35 GB",
    ]  # fmt: skip


def test_run_dry_run_and_plan_print_the_same_and_train_nothing(toy_request, tmp_path, monkeypatch, capsys):
    from cl_bench.cli import main

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "experiment.yaml"
    path.write_text(
        "methods: [seq, nsp2]\n"
        + "".join(f"{key}: {toy_request[key]}\n" for key in ("dataset", "backbone", "weights", "splits"))
        + "image_size: 32\n",
        encoding="utf-8",
    )
    said = []
    for arguments in (["plan", str(path)], ["run", str(path), "--dry-run"]):
        with pytest.raises(SystemExit) as exit_:
            main([*arguments, "--devices", "cpu"])
        assert not exit_.value.code
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and "2 runs: 2 missing" in said[0] and not (tmp_path / "results").exists()
