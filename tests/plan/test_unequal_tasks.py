"""A first task of another size and tasks of given sizes: planned, named, run and reported as they are."""

import pytest
from runs import execute, plan

from cl_bench.cli import main
from cl_bench.errors import InputError
from cl_bench.plan.request import request_from
from cl_bench.records.store import Store


@pytest.fixture
def eight(toy_request):
    """A request on eight classes, every setting as it is."""
    return {**{key: value for key, value in toy_request.items() if key != "splits"}, "set": {}}


def sizes(spec):
    return [len(task) for task in spec.task_classes]


@pytest.mark.parametrize(
    ("given", "name", "tasks"),
    [
        ({"base": 4, "increment": 2}, "B4-Inc2", [4, 2, 2]),
        ({"base": 0, "increment": 2}, "4", [2] * 4),
        ({"tasks": "2,5,1"}, "2-5-1", [2, 5, 1]),
        ({"splits": "B4-Inc2"}, "B4-Inc2", [4, 2, 2]),
    ],
)
def test_they_are_benchmarks_of_their_own(eight, given, name, tasks):
    [spec] = plan(eight, methods="simplecil", **given).specs
    assert sizes(spec) == tasks and spec.split == name and spec.benchmark_key().endswith(f"/{name}")
    assert f"--splits {name}" in spec.command
    same = plan(eight, methods="simplecil", splits=name).specs[0]
    assert same.run_id() == spec.run_id()
    equal = plan(eight, methods="simplecil", splits="4").specs[0]
    assert (equal.benchmark_id() == spec.benchmark_id()) == (name == "4")


def test_two_ways_to_write_a_split_are_one_run(eight):
    assert len(plan(eight, methods="simplecil", splits="4,B0-Inc2,2-2-2-2").specs) == 1


def test_a_file_may_list_the_sizes(tmp_path):
    (tmp_path / "experiment.yaml").write_text("methods: simplecil\ntasks: [100, 60, 40]\n", encoding="utf-8")
    [spec] = plan(request_from({}, tmp_path / "experiment.yaml").model_dump(exclude_unset=True)).specs
    assert sizes(spec) == [100, 60, 40] and spec.benchmark_key() == "glyphs/100-60-40"


def test_one_of_the_ways_to_say_it_is_enough(eight):
    with pytest.raises(InputError, match="give --splits or benchmarks, or the sizes of tasks"):
        plan(eight, methods="simplecil", splits="4", base=4, increment=2)


def test_a_task_of_one_class_is_refused_wherever_it_comes(eight):
    with pytest.raises(InputError, match=r"with one class in 1 of 3 tasks \(--splits 2-5-1\) its loss is"):
        plan(eight, methods="seq", tasks="2,5,1")


def test_it_runs_and_tables_name_it(eight, tmp_path, capsys):
    spec = plan(eight, methods="simplecil", base=4, increment=2, order="pilot:1993").specs[0]
    record = execute(spec, tmp_path / "results")
    assert [len(task.classes) for task in record.tasks] == [4, 2, 2]
    assert record.test_sizes == (16, 8, 8) and spec.seed_name().startswith("pilot:1993/")
    layout = tmp_path / "report.toml"
    layout.write_text(
        'title = "x"\n[[table]]\nname = "t"\ntitle = "x"\n'
        f'columns = ["{spec.benchmark_key()}"]\nrows = ["simplecil"]\n',
        encoding="utf-8",
    )
    with pytest.raises(SystemExit) as ended:
        main(["report", str(layout), "--results", str(tmp_path / "results"), "--out", str(tmp_path / "out")])
    assert not ended.value.code
    assert "/B4-Inc2" in (tmp_path / "out" / "t.md").read_text(encoding="utf-8")
    assert [found.spec.split for found in Store(tmp_path / "results").records()] == ["B4-Inc2"]
