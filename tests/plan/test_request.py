"""What is asked for, as the command line and files say it."""

import pytest

from cl_bench.errors import InputError
from cl_bench.notation import parse_methods, parse_seeds
from cl_bench.plan.request import parse_settings, request_from


def test_methods_options_and_grids_are_read_in_order():
    assert parse_methods("nsp2[b1=on,b2=off,ln=on], pgp ,nsp2[eta=0.9|0.97|1,ln_red=l1]") == [
        ("nsp2", {"b1": True, "b2": False, "ln": True}),
        ("pgp", {}),
        ("nsp2", {"eta": 0.9, "ln_red": "l1"}),
        ("nsp2", {"eta": 0.97, "ln_red": "l1"}),
        ("nsp2", {"eta": 1, "ln_red": "l1"}),
    ]
    assert parse_settings(["eta=1e-3", "layers=null", "lr_milestones=paper"]) == {
        "eta": 0.001,
        "layers": None,
        "lr_milestones": "paper",
    }


@pytest.mark.parametrize(
    "text",
    ["nsp2[eta=0.9", "nsp2[eta]", "nsp2[eta=]", "nsp2[eta=1|]", "nsp2]", "nsp2[eta=1,eta=2]", "", " , "],
)
def test_method_lists_that_cannot_be_read_are_refused(text):
    with pytest.raises(InputError):
        parse_methods(text)


def test_seeds_are_a_number_or_a_list():
    assert (
        parse_seeds("3") == [2024, 2025, 2026]
        and parse_seeds("2024,2031") == [2024, 2031]
        and parse_seeds("7,") == [7]
    )
    for text in ("0", "-1", "-1,", "x", "2024", ""):
        with pytest.raises(InputError, match="--seeds"):
            parse_seeds(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"validation": 1.5}, "validation=1.5 is not usable"),
        ({"limit": "500"}, "limit='500' is not usable"),
        ({"init_seed": -1}, "init_seed=-1 is not usable"),
        ({"dataset": 5}, "dataset=5 is not usable"),
    ],
)
def test_options_of_the_wrong_kind_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        request_from(given, None)


def test_a_list_of_seeds_in_a_file_is_a_list_and_1e_3_is_a_number(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("seeds: [3]\nsplits: [10, 20]\nset: {learning_rate: 1e-3, 1: off}\n", encoding="utf-8")
    request = request_from({}, file)
    assert (
        parse_seeds(request.seeds) == [3]
        and request.splits == "10,20"
        and request.set == {"learning_rate": 0.001, "1": False}
    )
    for text in ("eta={", "eta=@x"):
        with pytest.raises(InputError, match="cannot read the value"):
            parse_settings([text])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds: 1\nmethod: nsp2", "x.yaml, line 2: unknown option 'method'; did you mean 'methods'"),
        ("- a", "must hold a mapping"),
        ("a: [", "cannot read"),
        ("set: 3", "and so must its set"),
        ("grid: {eta: 0.9}", "x.yaml, line 1: eta in the grid needs a list of values"),
    ],
)
def test_configuration_files_that_cannot_be_used_are_refused(tmp_path, text, message):
    file = tmp_path / "x.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        request_from({}, file)
    with pytest.raises(InputError, match="cannot read"):
        request_from({}, tmp_path / "none.yaml")
