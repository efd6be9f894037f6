"""Plans of several experiments in a file, and plans without data and weights, by what is declared."""

from collections import Counter

import numpy as np
import pytest
from commands import command
from paper_runs import PAPER

from cl_bench.data.declared import declared
from cl_bench.errors import InputError
from cl_bench.notation import parse_methods, parse_seeds
from cl_bench.plan.cost import Shapes, costs
from cl_bench.plan.expand import parts
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request, request_from
from cl_bench.plugins import registry
from cl_bench.report import spec as report

EXPERIMENT = PAPER.with_suffix(".yaml")


def asked(request: Request) -> Counter:
    """(method, its options, benchmark) of every part of a request."""
    return Counter(
        (registry.find("methods", name).name, tuple(sorted(options.items())), f"{part.dataset}/{cut}")
        for part in parts(request)
        for cut in part.splits.split(",")
        for name, options in parse_methods(part.methods)
    )


def test_the_papers_experiments_are_the_rows_of_its_tables_each_once():
    found, wanted = asked(request_from({}, EXPERIMENT)), set()
    for table in report.read(PAPER).tables:
        for row in table.rows:
            for column in table.columns if row.select else ():
                name, options = report.selector(row.select)
                wanted.add((name, tuple(sorted(options.items())), column.benchmark))
    assert set(found) == wanted and set(found.values()) == {1}
    assert {len(parse_seeds(part.seeds)) for part in parts(request_from({}, EXPERIMENT))} == {3}


def write(folder, text: str):
    path = folder / "several.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_stands_above_experiments_is_of_all_and_the_command_line_wins(tmp_path):
    path = write(
        tmp_path,
        "seeds: 2\nset: {batch: 8}\nexperiments:\n- {methods: seq, splits: 5}\n"
        "- {methods: [nsp2, pgp], seeds: 1, set: {passes: 3}}\n",
    )
    one, two = request_from({"dataset": "glyphs", "set": {"passes": 1}}, path).experiments
    assert (one.methods, one.splits, one.seeds, one.set) == ("seq", "5", "2", {"batch": 8, "passes": 1})
    assert (two.methods, two.splits, two.seeds, two.set) == ("nsp2,pgp", "10", "1", {"batch": 8, "passes": 1})
    assert len(parts(request_from({}, path))) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("experiments: 3\n", "line 1: experiments needs a list of mappings"),
        ("experiments: []\n", "line 1: experiments needs a list of mappings"),
        ("seeds: 1\nexperiments:\n- {method: seq}\n", "line 2, experiment 1: unknown option 'method'"),
        ("experiments:\n- {set: 3}\n", "experiment 1 must hold a mapping"),
    ],
)
def test_experiments_that_cannot_be_used_are_named(text, message, tmp_path):
    with pytest.raises(InputError, match=message):
        request_from({}, write(tmp_path, text))


def test_a_declared_data_set_has_its_numbers_and_no_images():
    source = declared(registry.source_class("domainnet200"))
    for side, count in (("train", 47_532), ("test", 20_450)):
        images = np.bincount(source.labels(side), minlength=200)
        assert images.sum() == count and len(images) == 200 and images.max() - images.min() <= 1
    with pytest.raises(InputError, match="is declared, and has no images"):
        source.images("train")
    assert "47,532 train and 20,450 test images" in source.remarks()[0]


def test_a_run_costs_what_its_declared_images_make_it_cost():
    [spec] = make_plan(Request(methods="nsp2", benchmarks="cifar100/10"), counted=True).specs
    [cost] = costs([spec], Shapes(counted=True)).values()
    # 5,000 images in 100 passes a task, forward and backward, and one of statistics but after the last task
    assert sum(cost.images) == 10 * 5000 * 100 + 9 * 5000
    assert sum(cost.forwards) == 2 * 10 * 5000 * 100 + 9 * 5000
    assert sum(cost.test_images) == 1000 * sum(range(1, 11))


def test_a_plan_of_declared_images_at_an_assumed_speed_says_so(capsys, tmp_path):
    words = ("plan", "--methods", "seq", "--benchmarks", "cifar100/10", "--declared", "--speed", "10000")
    assert command(*words, "--device", "cpu", "--jobs", "1", "--results", tmp_path) == 0
    out, err = capsys.readouterr()
    # 10 tasks of 5,000 images, 100 passes forward and backward; predictions of 55,000 images, certificate
    seconds = (2 * 10 * 5000 * 100 + 55_000 + 3 * 512) / 10_000
    assert f"{seconds / 3600:.1f} hours of such a place in all" in out
    assert "taking 10,000 forward-equivalents a second where none was measured" in out
    assert "by declared numbers of images and without weights" in out
    assert "declared: cifar100 has 50,000 train and 10,000 test images" in err


def test_a_probe_needs_what_a_declared_plan_is_without(capsys):
    assert command("plan", "--probe", "--declared") == 2
    assert "--probe needs the data, and --declared does without" in capsys.readouterr().err
