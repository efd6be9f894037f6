"""Planning allocates nothing, takes no longer for more passes or prompts, and counts work as torch does."""

import math

import pytest
import torch
import toys
from torch.utils.flop_counter import FlopCounterMode

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo
from cl_bench.devices import places
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.plan import outline
from cl_bench.plan.cost import costs
from cl_bench.plan.forecast import forecast
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.plugins import registry
from cl_bench.records.store import Store
from cl_bench.training import work
from cl_bench.training.gradient_method import GradientMethod
from cl_bench.training.phase import Phase

IMAGES = 16
LARGE = {
    "vpt-nsp2": {"prompts": 300},
    "vpt-seq": {"prompts": 300},
    "vpt-cpg": {"prompts": 60, "experts": 40},
    "l2p": {"pool_size": 20, "prompt_length": 30, "top_k": 4, "layers": 2},
    "l2p-nsp2": {"pool_size": 20, "prompt_length": 10, "top_k": 4, "layers": 2},
    "dualprompt": {"g_length": 100, "e_length": 400, "g_layers": 1, "e_layers": 1},
    "seq-lora": {"rank": 60},
    "seq-adapter": {"bottleneck": 100},
    "aper": {"bottleneck": 100},
    "slca": {"plusplus": True, "rank": 12},
    "ssiat": {"bottleneck": 100},
    "mos": {"bottleneck": 100},
    "tuna": {"bottleneck": 100},
    "hide-prompt": {"prompt_length": 400, "layers": 1},
    "ease": {"bottleneck": 100},
    "evoprompt": {"prompt_length": 20, "hidden": 60},
    "ranpac": {"bottleneck": 60, "projection": 2000},
    "esn": {"prompts": 20},
    "cprompt": {"prompts": 40, "second_block": 1},
    "ovor": {"g_length": 200, "e_length": 400, "g_layers": 1, "e_layers": 1},
    "coda-prompt": {"components": 30, "prompt_length": 400, "layers": 2},
    "lae": {"pet": "prefix", "prompt_length": 100},
}


def flops(function) -> int:
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def grown(name: str, **options):
    """The method in its second task on two classes each, and a stream for it.

    Adapters leave out most tokens of the last block of a deep network.
    """
    stream = toys.stream([[0, 1], [2, 3]])
    method = toys.method(
        name, 2, toys.backbone(img_size=32, depth=8 if "bottleneck" in options else 2), **options
    )
    for index in range(2):
        method.grow(stream.info(index))
    return method, stream


@pytest.mark.parametrize("name", LARGE)
def test_a_prediction_takes_as_much_more_than_the_bare_network_as_planned(name):
    method, _ = grown(name, **LARGE[name])
    images = torch.randn(2 * IMAGES, 3, 32, 32)
    bare, prompted = (  # what one image more takes: prompts are projected once for all of them
        flops(lambda act=act: act(images)) - flops(lambda act=act: act(images[:IMAGES]))
        for act in (method.backbone.features, lambda some: method.predict(Batch(some)))
    )
    expected, own = work.of(method, IMAGES).predicting, method.prediction_passes - method.queries
    # the query is a pass of its own
    assert prompted / bare - method.queries == pytest.approx(own * expected, rel=0.1)
    assert expected > 1.3


@pytest.mark.parametrize("name", ["vpt-seq", "vpt-nsp2", "l2p-nsp2"])
def test_a_step_takes_as_much_more_than_the_bare_networks_as_planned(name):
    method, stream = grown(name, **LARGE[name], batch=IMAGES, b2=True)
    method.backbone.requires_grad_(False)
    images = torch.randn(IMAGES, 3, 32, 32)
    batch = Batch(images, torch.full((IMAGES,), 2))
    task = stream.task(1)
    method.begin_task(task, None)
    optimizer = method.make_optimizer(task)

    def step():
        method.loss(batch, task).backward()
        optimizer.step()

    pixels = images.clone().requires_grad_(True)
    bare = flops(lambda: method.backbone.features(pixels).sum().backward())
    query = flops(lambda: method.backbone.frozen_features(images)) if method.queries else 0
    assert (flops(step) - query) / bare == pytest.approx(work.of(method, IMAGES).learning, rel=0.35)


def test_more_prompts_are_more_work_in_everything_that_is_planned(toy_request):
    few, many = (
        next(
            iter(costs(make_plan(Request(**{**toy_request, "methods": f"nsp2[prompts={M}]"})).specs).values())
        )
        for M in (4, 4000)
    )
    assert many.images == few.images and many.test_images == few.test_images
    assert min(b / a for a, b in zip(few.forwards[:3], many.forwards[:3], strict=True)) > 50
    assert many.evaluating[0] > 5 * few.evaluating[0] and many.learning[0] > 50 * few.learning[0]
    assert (
        many.stored_bytes > 5 * 4000**2 * 8 and many.memory_bytes > many.stored_bytes
    )  # C2 and B2 of five blocks


def test_the_time_of_a_setting_that_was_not_measured_is_scaled_by_its_work(toy_request, whole_run):
    spec, _, root = whole_run
    here = places(["cpu"], 1, jobs=1, threads=1)
    seconds = {}
    for M in (4, 5, 40_000):
        [asked] = make_plan(Request(**{**toy_request, "methods": f"nsp2[prompts={M},eta=0.5]"})).specs
        row = forecast([asked], Store(root), here).lines[1].split()
        seconds[M] = sum(
            float(part) * unit
            for part, unit in zip(reversed(row[-1].split(":")), (1, 60, 3600), strict=False)
        )
    assert seconds[4] == pytest.approx(seconds[5], abs=1) and seconds[40_000] > 1000 * (1 + seconds[4])


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("nsp2[prompts=100000]", "needs .* TB of memory besides the network; give smaller sizes"),
        ("seq[prompts=100000000000]", "TB of memory"),
        ("nsp2[prompts=10000000000]", "too large for any machine"),
        ("l2p[pool_size=1000000000000,layers=2]", "TB of memory"),
        ("l2p[prompt_length=1000000000000000000000000,layers=2]", "too large for any machine"),
        ("dualprompt[e_length=100000000000,e_layers=1]", "TB of memory"),
    ],
)
def test_sizes_for_which_no_machine_has_memory_are_refused_before_anything_is_allocated(
    toy_request, methods, message
):
    with pytest.raises(InputError, match=message) as raised:
        make_plan(Request(**{**toy_request, "methods": methods, "set": {}}))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("passes", [10**9, 10**30])
def test_the_number_of_passes_does_not_matter_to_planning(toy_request, passes):
    specs = make_plan(
        Request(
            **{
                **toy_request,
                "methods": f"nsp2[passes={passes}],seq[passes={passes}],coda[passes={passes},components=8]",
            }
        )
    ).specs
    assert costs(specs)[specs[1].run_id()].images == (12 * passes,) * 4


@pytest.mark.parametrize("name", registry.plugins("methods"))
def test_planning_builds_every_method_without_a_number_in_it(name):
    trunk = outline.of(toys.backbone_for(name))
    kind = registry.method_class(name)
    options = kind.SMALL
    planned = outline.build(kind, kind.Config(**options), trunk, StreamInfo(1, 3), name)
    with planned.device:
        for index in range(3):
            planned.grow(toys.stream([[0, 1], [2, 3], [4, 5]]).info(index))
    real = toys.method(name, 3, **options)
    stream = toys.stream([[0, 1], [2, 3], [4, 5]])
    for index in range(3):
        real.grow(stream.info(index))
    assert all(value.is_meta for value in planned.state().values() if value.numel() > 1)
    assert {key: value.shape for key, value in planned.state().items()} == {
        key: value.shape for key, value in real.state().items()
    }


class LooksAtValues(GradientMethod):
    """A method that reads a number of its network while it is made."""

    from cl_bench.methods.vpt_seq import METHOD

    Config = METHOD.Config
    learn = predict = grow = loss = make_optimizer = lambda self, *arguments: None

    def __init__(self, config, backbone, stream):
        super().__init__(config, backbone, stream)
        self.first = float(next(backbone.parameters()).flatten()[0])


def test_a_method_that_looks_at_values_is_built_in_earnest(toy_request):
    [spec] = make_plan(Request(**{**toy_request, "methods": "seq"})).specs

    built = outline.build(
        LooksAtValues, LooksAtValues.Config(), outline.of(load.load(spec.backbone)), StreamInfo(1, 2), "x"
    )
    assert math.isfinite(built.first)


@pytest.mark.parametrize("images", [1, 7, 24])
@pytest.mark.parametrize("passes", [1, 9, 10, 25])
@pytest.mark.parametrize(("together", "batch"), [(1, 8), (10, 8), (2, 100)])
@pytest.mark.parametrize("drop", [False, True])
def test_the_image_passes_of_a_task_are_those_of_all_its_shuffles(images, passes, together, batch, drop):
    phase = Phase(loss=None, optimizer=None, batch=batch, passes=passes, repeats=together, drop_last=drop)
    shuffles = [min(together, passes - first) * images for first in range(0, passes, together)]
    assert phase.image_passes(images) == sum(count - count % batch if drop else count for count in shuffles)
