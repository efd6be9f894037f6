"""The command that every specification carries."""

import shlex

import pytest
import typer

from cl_bench.cli import options
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request


def request_of(words):
    """What the command line makes of these words."""
    caught, app = [], typer.Typer()
    app.command()(options.takes_request(lambda request: caught.append(request)))
    app(args=words, standalone_mode=False)
    return caught[0]


@pytest.mark.parametrize(
    "asked",
    [
        {"methods": "nsp2[eta=0.123456789|1e-07]", "set": {"learning_rate": 0.0123456789}},
        {
            "methods": "nsp2[eta=0.9|0.97],joint",
            "seeds": "2024,2031",
            "splits": "2,4",
            "set": {"passes": 3, "eta": 0.95, "input_norm": "half"},
        },
        {
            "methods": "l2p[as_published],seq",
            "as_published": True,
            "order": "natural",
            "init_seed": 3,
            "data_seed": 4,
            "set": {"precision": "bf16"},
        },
        {
            "methods": "seq",
            "validation": 0.5,
            "preset": "none",
            "limit": 8,
            "losses": True,
            "augmenter": "torchvision",
            "set": {"augment": "crop"},
        },
    ],
)
def test_the_command_in_a_specification_makes_that_run_and_no_other(toy_request, asked):

    for spec in make_plan(Request(**{**toy_request, **asked})).specs:
        words = shlex.split(spec.command)
        assert words[:2] == ["cl-bench", "run"]
        [again] = make_plan(request_of(words[2:])).specs
        assert (
            again.run_id() == spec.run_id() and again.losses == spec.losses and again.command == spec.command
        )


def test_the_command_names_the_precision_that_was_this_machines_default(toy_request):
    [spec] = make_plan(Request(**{**toy_request, "methods": "seq"}), "bf16").specs
    [again] = make_plan(request_of(shlex.split(spec.command)[2:])).specs
    assert spec.precision == again.precision == "bf16" and again.run_id() == spec.run_id()


def test_augmenter_says_who_augments():
    request = request_of(["--methods", "seq", "--augmenter", "torchvision", "--set", "passes=3"])
    assert request.set == {"passes": 3} and request.augmenter == "torchvision"
