"""The search on held-out images: every grid point, the best of each method, a file that runs them."""

import pytest
import runs
import yaml
from made import record

from cl_bench.cli import main
from cl_bench.errors import InputError
from cl_bench.plan import tune
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request, request_from
from cl_bench.records.metrics import Conventions
from cl_bench.records.store import Store

GRID = {"eta": [0.5, 0.97], "temperature": [2, 4]}


@pytest.fixture
def grid_file(tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text(yaml.safe_dump(GRID), encoding="utf-8")
    return path


def test_every_method_is_spread_over_the_options_it_has_and_never_sees_the_test_set(toy_request):
    request = tune.with_grid(Request(**{**toy_request, "methods": "nsp2[b2=off],seq"}), GRID)
    assert (
        request.methods == "vpt-nsp2[b2=off,eta=0.5|0.97,temperature=2|4],vpt-seq[temperature=2|4]"
        and request.validation == 0.25
    )
    specs = make_plan(request).specs
    assert len(specs) == 6 and {spec.validation for spec in specs} == {0.25}
    assert tune.with_grid(Request(**{**toy_request, "validation": 0.5}), GRID).validation == 0.5


@pytest.mark.parametrize(
    ("changes", "grid", "message"),
    [
        ({}, {"etta": [1]}, "unknown option in the grid 'etta'; did you mean 'eta'"),
        ({"methods": "seq"}, {"eta": [1]}, "unknown option in the grid 'eta'"),
        ({"methods": "nsp2[eta=1]"}, {"eta": [1]}, "eta of vpt-nsp2 is both in --methods and in the grid"),
        ({"splits": "2,4"}, {"eta": [1]}, "one benchmark and one backbone at a time"),
    ],
)
def test_grids_that_do_not_fit_are_refused(toy_request, changes, grid, message):
    with pytest.raises(InputError, match=message):
        tune.with_grid(Request(**{**toy_request, "methods": "nsp2", **changes}), grid)


@pytest.mark.parametrize("text", ["", "eta: 0.9", "- 1", "eta: []", "eta: [", "\x00"])
def test_a_grid_file_that_is_none_is_refused(tmp_path, text):
    path = tmp_path / "g.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="g.yaml"):
        tune.read_grid(path)


def test_each_row_of_a_method_has_a_best_point_of_its_own(toy_request, tmp_path):
    methods = "nsp2,nsp2[subspace=iso],nsp2[subspace=iso,b2=off]"
    grid = {"learning_rate": [0.01, 0.03, 0.1]}
    request = tune.with_grid(Request(**{**toy_request, "methods": methods}), grid)
    specs = make_plan(request).specs
    right = [1, 3, 2, 3, 1, 2, 2, 1, 3]  # of each task's eight images, at the three rates of each row
    records = [
        record("vpt-nsp2", [[count] * (t + 1) for t in range(4)]).model_copy(update={"spec": spec})
        for spec, count in zip(specs, right, strict=True)
    ]
    chosen = tune.choose(tune.points(specs, records, grid), Conventions())
    rates = {row: point.options["learning_rate"] for row, point in chosen.items()}
    assert rates == {
        "vpt-nsp2": 0.03,
        "vpt-nsp2[subspace=iso]": 0.01,
        "vpt-nsp2[b2=off,subspace=iso]": 0.1,
    }
    path = tmp_path / "tuned.yaml"
    path.write_text(tune.settings_file(request, specs, chosen, grid, Conventions()), encoding="utf-8")
    again = make_plan(request_from({}, path)).specs
    assert [spec.options["learning_rate"] for spec in again] == [0.03, 0.01, 0.1]
    assert [(spec.options["subspace"], spec.options["b2"]) for spec in again][1:] == [
        ("iso", True),
        ("iso", False),
    ]


@pytest.mark.slow
def test_the_point_with_the_highest_mean_is_chosen_and_runs_from_the_file(toy_request, tmp_path, monkeypatch):
    request = tune.with_grid(Request(**{**toy_request, "methods": "nsp2,seq", "seeds": "2"}), GRID)
    plan = make_plan(request)
    records = [runs.execute(spec, tmp_path / "results") for spec in plan.specs]
    found = tune.points(plan.specs, records, GRID)
    assert len(found) == 6 and all(len(point.records) == 2 for point in found)
    conventions = Conventions()
    chosen = tune.choose(found, conventions)
    for method in ("vpt-nsp2", "vpt-seq"):
        means = [point.mean("accuracy", conventions) for point in found if point.row == method]
        assert chosen[method].mean("accuracy", conventions) == max(means)
        assert chosen[method] is [point for point in found if point.row == method][means.index(max(means))]
    text = tune.settings_file(request, plan.specs, chosen, GRID, conventions)
    path = tmp_path / "tuned.yaml"
    path.write_text(text, encoding="utf-8")
    specs = make_plan(request_from({}, path), "bf16").specs
    assert {spec.precision for spec in specs} == {"fp32"}  # that of the trials
    assert [spec.validation for spec in specs] == [None, None]
    for spec in specs:
        assert all(spec.options[key] == value for key, value in chosen[spec.method].options.items())
        assert spec.options["passes"] == runs.QUICK["passes"]
    table = tune.table(found, chosen, GRID, conventions).splitlines()
    assert len(table) == 8 and sum(line.startswith("| **") for line in table) == 2
    assert Store(tmp_path / "results").load(plan.specs[0]).spec.benchmark_name() in text


@pytest.mark.faults
def test_tune_at_the_command_line_writes_the_table_and_the_file(
    toy_request, grid_file, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    settings = [
        part
        for key, value in runs.QUICK.items()
        if key != "temperature"
        for part in ("--set", f"{key}={value}")
    ]
    base = [
        "--dataset",
        toy_request["dataset"],
        "--backbone",
        "test_vit",
        "--weights",
        toy_request["weights"],
        "--image-size",
        "32",
        "--splits",
        "4",
    ]
    with pytest.raises(SystemExit) as exit_:
        main(["tune", "--methods", "seq", "--grid", str(grid_file), *base, *settings])
    captured = capsys.readouterr()
    assert exit_.value.code == 2 and "unknown option in the grid 'eta'" in captured.err
    grid_file.write_text("temperature: [2, 4, 8]", encoding="utf-8")
    with pytest.raises(SystemExit) as exit_:
        main(["tune", "--methods", "seq", "--grid", str(grid_file), *base, *settings])
    captured = capsys.readouterr()
    assert exit_.value.code == 0, captured.err
    assert (
        "held out and evaluated on, not the test set" in captured.out and captured.out.count("vpt-seq") == 3
    )
    assert "methods: vpt-seq[" in (tmp_path / "tuned.yaml").read_text(encoding="utf-8")
