"""An experiment becomes runs: methods with grids, benchmarks, backbones and seeds, from a file or options."""

import pytest
import toys

from cl_bench.errors import InputError
from cl_bench.plan.expand import parts, spread
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request, request_from


def written(tmp_path, text):
    path = tmp_path / "experiment.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_lists_methods_a_grid_benchmarks_and_backbones(tmp_path):
    path = written(
        tmp_path,
        "methods: [seq, 'nsp2[b2=off|on]']\nbenchmarks: [glyphs/10, cifar100/20, glyphs/20]\n"
        "backbones: [a, b]\nseeds: 2\ngrid:\n  eta: [0.9, 1e-1]\n  passes: [3]\nset: {batch: 64}\n",
    )
    found = parts(request_from({}, path))
    assert [(part.dataset, part.splits, part.backbone) for part in found] == [
        ("glyphs", "10,20", "a"), ("glyphs", "10,20", "b"), ("cifar100", "20", "a"), ("cifar100", "20", "b"),
    ]  # fmt: skip
    assert {part.methods for part in found} == {"vpt-seq[passes=3],vpt-nsp2[b2=off|on,eta=0.9|0.1,passes=3]"}
    assert all(part.set == {"batch": 64} and not part.grid for part in found)


def test_the_runs_of_several_benchmarks_are_those_of_each(tmp_path):
    toys.write_folder(tmp_path / "data", classes=4)
    weights = toys.write_weights(tmp_path / "w.safetensors")
    base = {"methods": "seq,nsp2", "backbone": "test_vit", "weights": str(weights), "image_size": 32}
    folder = f"folder:{tmp_path / 'data'}"
    together = make_plan(Request(**base, benchmarks=f"{folder}/2,{folder}/1", grid={"eta": [0.5, 0.9]})).specs
    assert [spec.label for spec in together] == ["vpt-seq", "vpt-nsp2[eta=0.5]", "vpt-nsp2[eta=0.9]"] * 2
    apart = [
        make_plan(Request(**base, dataset=folder, splits=splits, set={"eta": 0.5})).specs[1]
        for splits in ("2", "1")
    ]
    assert [together[1].run_id(), together[4].run_id()] == [spec.run_id() for spec in apart]


MANY = ", ".join(f"0.{i:03d}" for i in range(999))


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        (
            "methods: seq\nbenchmark: glyphs/10", {},
            "experiment.yaml, line 2: unknown option 'benchmark'; did you mean 'benchmarks'",
        ),
        (
            "methods: nsp2\n\nset:\n  eta: 1\n  pases: 2", {},
            "experiment.yaml, line 5: unknown --set option 'pases'; did you mean 'passes'",
        ),
        (
            "methods: nsp2\ngrid:\n  etta: [1]", {},
            "experiment.yaml, line 3: unknown option in the grid 'etta'; did you mean 'eta'",
        ),
        ("methods: nsp2\ngrid: [1]", {}, "must hold a mapping"),
        ("benchmarks: [glyphs]", {}, "'glyphs' is not a benchmark; expected DATASET/SPLITS"),
        ("benchmarks: [glyphs/10]", {"splits": "20"}, "not both"),
        ("backbones: [a, b]\nweights: c", {}, "belong to one backbone"),
        ("methods: 'nsp2[eta=0.1]'\ngrid: {eta: [1]}", {}, "both in --methods and in the grid"),
        (
            "methods: seq\nseeds: 1000\nsplits: [1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100]", {},
            "this makes 11,000 runs; give --yes",
        ),
        ("methods: nsp2\ngrid: {eta: [%s], eta1: [%s], eta2: [%s]}" % ((MANY,) * 3), {}, "997,002,999 runs"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_line_with_its_place(tmp_path, text, given, message):
    with pytest.raises(InputError, match=message) as error:
        make_plan(request_from(given, written(tmp_path, text)))
    assert "\n" not in str(error.value)


def test_more_than_ten_thousand_runs_are_a_choice():
    assert (
        len(parts(Request(methods="seq", seeds="1000", splits="1,2,4,5,8,10,20,25,40,50,100", yes=True))) == 1
    )


def test_a_grid_spreads_over_the_methods_that_have_the_option():
    assert (
        spread("seq,nsp2[b1=on]", {"eta": [0.5, 1], "passes": [2]})
        == "vpt-seq[passes=2],vpt-nsp2[b1=on,eta=0.5|1,passes=2]"
    )


def test_a_grid_of_more_points_than_could_ever_be_listed_is_refused_at_once(tmp_path, monkeypatch, capsys):
    from cl_bench.cli import main

    monkeypatch.chdir(tmp_path)
    options = ",".join(f"o{number}={'|'.join(map(str, range(10)))}" for number in range(12))
    with pytest.raises(SystemExit) as exit_:
        main(["run", "--methods", f"seq[{options}]"])
    assert exit_.value.code == 2 and "this makes 1,000,000,000,000 runs" in capsys.readouterr().err
