"""Planning and running from Python do what the commands do, with their errors as exceptions."""

import pytest

import cl_bench
from cl_bench.errors import InputError, RunFailed


@pytest.fixture
def asked(toy_request):
    """The toy experiment as arguments."""
    options = {**toy_request, "set": {"passes": 1, "batch": 8, "precision": "fp32"}}
    return {"benchmark": f"{options.pop('dataset')}/{options.pop('splits')}", **options}


def test_a_plan_is_a_row_a_run_with_its_state_and_cost(asked, tmp_path):
    found = cl_bench.plan("seq,nsp2", **asked, seeds=2, results=tmp_path)
    assert [label.partition("[")[0] for label in found.label] == ["vpt-seq", "vpt-nsp2"] * 2
    assert set(found.state) == {"missing"} and (found.forwards > found.images).all()
    assert found.prediction_passes.tolist() == [1] * 4 and (found.stored_bytes > 0).all()


@pytest.mark.slow
def test_running_returns_the_runs_and_trains_none_twice(asked, tmp_path, capfd):
    runs = cl_bench.run(["seq"], **asked, seeds=[5], results=tmp_path, threads=1)
    assert runs.table().status.tolist() == ["finished"] and runs.table().order_seed.tolist() == [5]
    assert cl_bench.plan("seq", **asked, seeds=[5], results=tmp_path).state.tolist() == ["finished"]
    capfd.readouterr()
    again = cl_bench.run("seq", **asked, seeds=[5], results=tmp_path, quiet=True)
    assert again.metrics().equals(runs.metrics()) and "task" not in capfd.readouterr().err


def test_mistakes_are_exceptions(asked, tmp_path):
    with pytest.raises(InputError, match="unknown method 'nsp3'; did you mean"):
        cl_bench.run("nsp3", **asked, results=tmp_path)
    with pytest.raises(InputError, match="optoin"):
        cl_bench.plan("seq", **asked, optoin=1, results=tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        cl_bench.lod  # noqa: B018


@pytest.mark.slow
def test_a_failed_run_is_an_exception_that_says_why(asked, tmp_path):
    asked["set"] = {**asked["set"], "learning_rate": 1e30}
    with pytest.raises(RunFailed, match="lower learning_rate"):
        cl_bench.run("seq", **asked, results=tmp_path, quiet=True)


def test_tasks_of_any_size_are_asked_for_by_name(asked, tmp_path):
    dataset = asked.pop("benchmark").rpartition("/")[0]
    asked["set"] = {}
    found = cl_bench.plan("simplecil", dataset=dataset, base=4, increment=2, **asked, results=tmp_path)
    assert found.benchmark.item().endswith("/B4-Inc2")
