"""`cl-bench bench` measures the real training loop beside the bare network."""

import json

import pytest
import torch

from cl_bench.errors import InputError
from cl_bench.plan.request import Request
from cl_bench.profiling import throughput
from cl_bench.profiling.stopwatch import Stopwatch

QUIET = {
    "device": "cpu",
    "threads": 1,
    "pairs": 1,
    "random_weights": False,
    "compiled": False,
    "say": lambda line: None,
}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["nsp2", "pgp", "seq"])
def test_what_is_measured_is_there_and_adds_up(toy_request, method, monkeypatch):
    monkeypatch.setattr(throughput, "start_up", lambda: 1.0)
    found = throughput.measure(Request(**{**toy_request, "methods": method}), **QUIET)
    assert sum(found.shares.values()) == pytest.approx(1) and min(found.shares.values()) >= 0
    speeds = dict(found.images_per_second)
    assert (
        (speeds.pop("statistics") is None) == (method == "seq") == (found.statistics_ratio_to_forward is None)
    )
    assert all(speed > 0 for speed in speeds.values()) and found.training_ratio_to_bare_network > 0
    assert found.training_time_to_own_minimum > 0
    assert (found.statistics_time_to_own_minimum is None) == (method == "seq")
    assert found.utilisation == pytest.approx(found.flops_per_image * speeds["training"] / found.peak_flops)
    assert (
        json.loads(found.model_dump_json())["training_ratio_to_bare_network"]
        == found.training_ratio_to_bare_network
    )
    assert all(
        word in found.text()
        for word in ("images/s", "training", "evaluation", "utilisation", "start-up 1.0 s")
    )


@pytest.mark.parametrize("method", ["simplecil", "ranpac"])
def test_what_trains_nothing_in_the_second_task_is_measured_without_training(
    toy_request, method, monkeypatch
):
    monkeypatch.setattr(throughput, "start_up", lambda: 1.0)
    asked = {**toy_request, "methods": method, "set": {} if method == "simplecil" else {"projection": 8}}
    found = throughput.measure(Request(**asked), **QUIET)
    assert found.training_ratio_to_bare_network is None and found.shares == {} and found.utilisation is None
    assert found.images_per_second["training"] is None and found.images_per_second["statistics"] > 0
    assert "it trains nothing in the second task" in found.text() and "a step" not in found.text()
    assert found.statistics_ratio_to_forward > 0.5  # its features are made in that pass, and not known before
    assert throughput.Measured.model_validate_json(found.model_dump_json()) == found


def test_statistics_count_an_image_for_every_network_it_passes(toy_request):
    """EASE's first task has one subspace and its second two: a pass takes as long in each."""
    spec = throughput.make_plan(Request(**{**toy_request, "methods": "ease", "set": {"batch": 8}})).specs[0]
    clock = Stopwatch(spec, torch.device("cpu"))
    clock.learn_first_task()
    clock.method.minimize(clock.task, clock.trainer)
    clock.trainer.images = 0
    clock.method.end_task(clock.task, clock.trainer)
    assert clock.trainer.images == 2 * len(clock.task)


def test_the_bare_step_goes_through_every_block_and_leaves_nothing_behind(toy_request):
    built = Stopwatch(throughput.make_plan(Request(**toy_request)).specs[0], torch.device("cpu"))
    built.learn_first_task()
    entered = [0] * built.backbone.depth
    for index, block in enumerate(built.backbone.vit.blocks):
        block.register_full_backward_hook(
            lambda module, inputs, outputs, index=index: entered.__setitem__(index, entered[index] + 1)
        )
    built.bare_step()
    assert entered == [1] * built.backbone.depth
    assert not built.backbone.vit.patch_embed._forward_hooks and all(
        parameter.grad is None for parameter in built.backbone.parameters()
    )


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"methods": "seq,pgp"}, "one method on one benchmark, got 2 runs"),
        ({"methods": "joint"}, "learns all classes at once, and has no second task"),
    ],
)
def test_what_cannot_be_measured_is_said(toy_request, asked, message):
    with pytest.raises(InputError, match=message):
        throughput.measure(Request(**{**toy_request, **asked}), **QUIET)


def test_random_weights_are_for_timm_backbones_alone(toy_request):
    with pytest.raises(InputError, match="needs --backbone with a timm name"):
        throughput.measure(Request(**toy_request), **{**QUIET, "random_weights": True})
    with pytest.raises(InputError, match="'resnet50' is not a timm vision transformer"):
        throughput.measure(
            Request(**{**toy_request, "weights": None, "backbone": "resnet50"}),
            **{**QUIET, "random_weights": True},
        )
