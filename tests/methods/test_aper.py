"""Aper: what the first task adapts stays, and class means of both networks' features make one cosine."""

import functools

import pytest
import torch
import toys
from lessons import TASKS, after, lesson
from runs import plan
from torch.utils.flop_counter import FlopCounterMode

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.plan.cost import costs
from cl_bench.plugins import registry
from cl_bench.training import work

IMAGES = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(5))
WAYS = ["adapter", "vpt-deep", "vpt-shallow", "ssf", "finetune"]
each_way = pytest.mark.parametrize("adapt", WAYS)
SET = {"passes": 4, "batch": 8}
D, CLASSES = 32, 7  # of the toy network, and of TASKS together
# two blocks: the adapters' matrices with biases, 5 prompts, 11 pairs of D in a block and two besides
TRAINED = {
    "adapter": 2 * (2 * 4 * D + 4 + D), "vpt-deep": 2 * 5 * D, "vpt-shallow": 5 * D, "ssf": 2 * 24 * D,
    "finetune": sum(parameter.numel() for parameter in toys.vit().parameters()),
}  # fmt: skip


@functools.cache
def learned(upto: int, adapt: str):
    """The method after so many tasks, to be looked at alone."""
    return after(upto, "aper", adapt=adapt)


def both(method, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The features of the pre-trained and of the adapted network."""
    return method.backbone.features(images), method.adapted.features(images, method.edits)


def means(method) -> list[torch.Tensor]:
    """The class means of each network's features, by hand."""
    found = ([], [])
    for index in range(len(TASKS)):
        [batch] = toys.stream(TASKS).task(index).plain(1000)
        for own, features in zip(found, both(method, batch.images), strict=True):
            own += [features[batch.labels == k].mean(0) for k in batch.labels.unique()]
    return [torch.stack(own).detach() for own in found]


@each_way
def test_after_the_first_task_nothing_changes_but_class_means(adapt):
    first, last = learned(1, adapt), learned(3, adapt)
    kept = first.state()
    assert toys.equal(kept, last.state(), skip="prototypes.")
    sums, counts = last.prototypes.sums[:2], last.prototypes.counts[:2]
    assert torch.equal(kept["prototypes.sums"], sums) and torch.equal(kept["prototypes.counts"], counts)
    assert not any(parameter.requires_grad for parameter in last.parameters())
    assert last.phases(toys.stream(TASKS).info(1)) == []


@each_way
def test_the_first_task_trains_the_adapted_network_and_leaves_the_other(adapt):
    method = learned(1, adapt)
    start = toys.method("aper", 3, adapt=adapt)
    assert torch.equal(*(one.backbone.features(IMAGES) for one in (method, start)))
    assert not torch.allclose(both(method, IMAGES)[1], both(start, IMAGES)[1], atol=1e-4)


@each_way
def test_prototypes_are_the_class_means_of_both_networks_side_by_side(adapt):
    method = learned(3, adapt)
    assert torch.allclose(method.prototypes.means, torch.cat(means(method), dim=1), atol=1e-5)


def test_a_score_is_one_cosine_of_both_features_which_are_not_normalized_by_themselves():
    method = learned(3, "ssf")
    (f, f_a), (P, P_a) = both(method, IMAGES), means(method)
    product = f @ P.T + f_a @ P_a.T
    lengths = ((f**2).sum(1) + (f_a**2).sum(1)).sqrt(), ((P**2).sum(1) + (P_a**2).sum(1)).sqrt()
    expected = product / (lengths[0][:, None] * lengths[1])
    assert torch.allclose(method.predict(Batch(IMAGES)), expected, atol=1e-5)


def test_the_order_of_later_tasks_does_not_matter():
    usual, other = learned(3, "adapter"), toys.method("aper", 3)
    toys.learn(other, toys.stream([TASKS[0], TASKS[2], TASKS[1]]))
    scores = other.predict(Batch(IMAGES))[:, torch.tensor([0, 1, 4, 5, 6, 2, 3])]
    assert torch.allclose(usual.predict(Batch(IMAGES)), scores, atol=1e-6)


@pytest.mark.parametrize("adapt", ["adapter", "finetune"])
def test_where_nothing_is_adapted_it_is_simplecil(adapt):
    """Adapters and a copy start as the network, and a rate of next to nothing leaves them so."""
    method = after(3, "aper", adapt=adapt, learning_rate=1e-12)
    plain = after(3, "simplecil").predict(Batch(IMAGES))
    assert torch.allclose(method.predict(Batch(IMAGES)), plain, atol=1e-5)


def test_adapters_are_trained_as_in_ranpacs_first_phase():
    aper, ranpac = learned(1, "adapter"), after(1, "ranpac")
    assert toys.equal(aper.edits.state_dict(), ranpac.edits.state_dict())
    assert toys.equal(aper.head.state_dict(), ranpac.head.state_dict())


@pytest.mark.parametrize(("adapt", "shape"), [("vpt-deep", (2, 5, D)), ("vpt-shallow", (5, D))])
def test_prompts_start_within_the_bound_of_vpt(adapt, shape):
    """6 / (3 * 8 * 8 inputs of the projection + 32)."""
    P = toys.method("aper", 3, adapt=adapt).edits.P
    bound = (6 / (192 + 32)) ** 0.5
    assert P.shape == shape and 0.9 * bound < P.abs().max() <= bound


@pytest.mark.parametrize("adapt", ["vpt-deep", "vpt-shallow"])
@pytest.mark.parametrize("init", ["xavier", "zero"])
def test_prompts_of_a_block_that_start_at_zero_stay_one(adapt, init):
    method = after(1, "aper", adapt=adapt, prompt_init=init, learning_rate=1e-3)
    P = method.edits.P.detach()
    spread = (P - P.mean(dim=-2, keepdim=True)).abs().max() / P.abs().max()
    assert (spread < 1e-3) == (init == "zero") and P.abs().max() > 0


def test_as_published_it_differs_in_how_prompts_start_and_images_enter(toy_request):
    names = "aper[adapt=vpt-deep],aper[as_published,adapt=vpt-deep]"
    usual, published = plan(toy_request, set=SET, methods=names).specs
    differing = {name for name in usual.options if usual.options[name] != published.options[name]}
    assert differing == {"prompt_init"}
    assert (usual.transform.normalisation, published.transform.normalisation) == ("checkpoint", "unit01")


@pytest.mark.parametrize(
    ("adapt", "augment"), [*((adapt, "none") for adapt in WAYS), ("adapter", "crop"), ("finetune", "crop")]
)
def test_it_costs_what_it_says(adapt, augment):
    """The first task takes three forward-equivalents an image where all weights get a gradient, else two."""
    stream = toys.stream(TASKS, augment=augment)
    for step in lesson(toys.method("aper", 3, batch=5, adapt=adapt), stream):
        method, new = step.copy(), step.images
        trained = 0 if step.task.index else 3 * (3 if adapt == "finetune" else 2) * new
        assert step.passed_learning == trained + 2 * new == method.forwards(step.task, new, augment != "none")
        assert step.images_seen == method.images_seen(step.task, new)
        assert method.prediction_passes == 2
        # f(x) and f_a(x) of test images are kept
        assert step.passed_evaluating == 2 * stream.test_sizes[step.task.index]


@each_way
def test_what_is_stored_are_the_adapted_part_its_head_and_two_sums_a_class(adapt):
    """A head of two classes and sigma; sums of 2 D and a count for each of seven."""
    stored = learned(3, adapt).state()
    expected = TRAINED[adapt] + 2 * D + 1 + CLASSES * (2 * D + 1)
    assert sum(value.numel() for value in stored.values()) == expected
    first = learned(1, adapt)
    assert sum(value.numel() for value in first.trained().values()) == TRAINED[adapt] + 2 * D + 1


@pytest.mark.parametrize(("adapt", "prompts"), [("vpt-deep", 60), ("vpt-shallow", 12)])
def test_a_pass_through_prompts_takes_as_much_more_as_planned(adapt, prompts):
    trunk = toys.backbone(img_size=32)
    method = toys.method("aper", 1, trunk, adapt=adapt, prompts=prompts)
    method.grow(TaskInfo(0, (0, 1), 0))
    images = torch.randn(8, 3, 32, 32)

    def flops(act) -> int:
        counts = []
        for some in (images, images[:4]):  # of an image more: prompts are projected once for all of them
            with FlopCounterMode(display=False) as counter:
                act(some)
            counts.append(counter.get_total_flops())
        return counts[0] - counts[1]

    more = flops(lambda some: both(method, some)[1]) / flops(trunk.features) - 1
    assert more == pytest.approx(work.of(method, 4).predicting, rel=1e-9) and more > 1.1


def test_scales_and_shifts_take_a_multiply_add_for_each_pair_and_token():
    """Five tokens, 24 pairs of the width."""
    assert toys.method("aper", 3, adapt="ssf").extra().image == 5 * 24 * D


def test_planning_counts_two_passes_at_prediction_and_training_in_the_first_task_alone(toy_request):
    specs = plan(toy_request, set=SET, methods="aper,aper[adapt=finetune]").specs
    adapted, whole = costs(specs).values()
    assert adapted.images == whole.images == (12 * (4 + 2), 24, 24, 24)
    assert adapted.prediction_passes == whole.prediction_passes == 2
    assert adapted.test_images == adapted.predicted == (8, 16, 24, 32)  # f(x) of a test image is kept
    assert whole.forwards[0] - adapted.forwards[0] == 12 * 4
    own = [values.numel() for values in load.load(specs[0].backbone).parameters()]
    assert whole.stored_bytes > 4 * sum(own)
    assert whole.memory_bytes == whole.stored_bytes + 8 * sum(own)  # and their gradients and momentum


def test_a_first_task_of_one_class_and_pooled_shallow_prompts_are_refused(toy_request):
    with pytest.raises(InputError, match="compares the classes of the current task only"):
        plan(toy_request, set=SET, methods="aper", splits="8")
    pooled = toys.backbone(class_token=False, global_pool="avg")
    kind = registry.method_class("aper")
    with pytest.raises(InputError, match="Aper with adapt=vpt-shallow needs a backbone that reads its class"):
        kind(kind.Config(adapt="vpt-shallow"), pooled, StreamInfo(1, 3))
    for adapt in set(WAYS) - {"vpt-shallow"}:
        method = kind(kind.Config(adapt=adapt), pooled, StreamInfo(1, 3))
        method.grow(TaskInfo(0, (0, 1), 0))
        assert method.phi(Batch(IMAGES)).shape == (6, 2 * D)
