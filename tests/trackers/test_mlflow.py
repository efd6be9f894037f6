"""MLflow's file store, read back."""

import json
import os

import pytest
from runs import execute, run_until, spec_of

from cl_bench.errors import InputError
from cl_bench.records.metrics import accuracy_curve
from cl_bench.records.spec import name
from cl_bench.trackers.contract import TrackedRun
from cl_bench.trackers.mlflow import MLflow

pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")


@pytest.fixture(autouse=True)
def own_variables(monkeypatch):
    for variable in [variable for variable in os.environ if variable.startswith("MLFLOW_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def runs_of(root, experiment="cl-bench"):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=root.absolute().as_uri())
    found = client.get_experiment_by_name(experiment)
    return client, client.search_runs([found.experiment_id])


def curve(client, run, key):
    return [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, key)]


def require_whole(client, run, record):
    losses = [loss for task in record.tasks for loss in task.pass_losses]
    assert curve(client, run, "loss") == [*enumerate(losses, 1)]
    means = accuracy_curve(record.correct, record.test_sizes)
    assert curve(client, run, "accuracy/mean") == [*enumerate(means, 1)]
    assert curve(client, run, "accuracy/task_03") == [(t + 1, record.correct[t][2] / 8) for t in range(2, 4)]
    assert run.info.status == "FINISHED"


def test_curves_matrix_and_configuration_are_those_of_the_run(toy_request, tmp_path):
    spec = spec_of(toy_request)
    record = execute(spec, tmp_path, track=("mlflow",))
    client, [run] = runs_of(tmp_path / "trackers" / "mlflow")
    require_whole(client, run, record)
    assert run.info.run_name == name(spec)
    tags = {"cl_bench.run_id": spec.run_id(), "cl_bench.family_id": spec.family_id()}
    assert tags.items() <= run.data.tags.items()
    assert run.data.params["options.eta1"] == str(spec.options["eta1"])
    assert run.data.params["seeds.data"] == "2024" and run.data.params["environment.threads"] == "1"
    files = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert files == {"configuration.json", "accuracy_matrix.png"}
    folder = next((tmp_path / "trackers" / "mlflow").glob(f"*/{run.info.run_id}/artifacts"))
    told = json.loads((folder / "configuration.json").read_text())
    assert told["options"] == spec.options and told["run_id"] == spec.run_id()


def test_a_run_that_goes_on_is_one_run_there(toy_request, tmp_path, monkeypatch):
    store = tmp_path / "elsewhere"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.as_uri())
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    spec = spec_of(toy_request)
    run_until(spec, tmp_path / "results", 2, 3, track=("mlflow",))
    client, [run] = runs_of(store, "mine")
    assert run.info.status == "KILLED" and len(curve(client, run, "loss")) == 10
    execute(spec_of(toy_request, "seq"), tmp_path / "results", track=("mlflow",))
    record = execute(spec, tmp_path / "results", track=("mlflow",))
    client, found = runs_of(store, "mine")
    assert len(found) == 2 and not (tmp_path / "results" / "trackers").exists()
    require_whole(client, next(each for each in found if each.info.run_id == run.info.run_id), record)


def test_a_file_store_that_would_be_lost_is_refused(tmp_path):
    with pytest.raises(InputError, match="need MLFLOW_TRACKING_URI"):
        MLflow().begin(TrackedRun("a", "b", "c", {}, tmp_path, True, moved=True))
