"""LAE: when each module moves and by how much, which of both predicts, what the published loader leaves."""

import copy

import pytest
import torch
import toys
from lessons import TASKS, after
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.data.stream import TaskInfo
from cl_bench.errors import InputError
from cl_bench.plugins import registry

IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
SECOND = TaskInfo(1, (1, 3, 4), 2)
PETS = ["adapter", "lora", "prefix"]
each_module = pytest.mark.parametrize("pet", PETS)


def values(module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> list[bool]:
    return [torch.equal(a, b) for a, b in zip(one, two, strict=True)]


def watched(method, upto: int, start: int) -> list[tuple]:
    """(theta_on, theta_off) before the first and after every step of the tasks start..upto-1."""
    seen = []
    original = method.accumulate

    def accumulate():
        if not seen:
            seen.append((None, values(method.offline)))
        original()
        seen.append((values(method.edits), values(method.offline)))

    method.accumulate = accumulate
    toys.learn(method, toys.stream(TASKS), upto, start)
    return seen


@pytest.mark.parametrize("pet", ["adapter", "lora"])
def test_the_network_starts_as_it_is(pet):
    method = toys.method("lae", 3, pet=pet)
    assert torch.equal(method.features(Batch(IMAGES)), method.backbone.features(IMAGES))


@each_module
def test_the_offline_module_starts_as_the_online_one_before_the_second_task(pet):
    method = after(1, "lae", pet=pet)
    assert method.offline is None and method.prediction_passes == 1
    method.grow(SECOND)
    assert all(same(values(method.edits), values(method.offline))) and method.prediction_passes == 2
    assert not any(parameter.requires_grad for parameter in method.offline.parameters())


@each_module
def test_the_online_module_rests_for_the_first_passes_and_the_offline_one_follows_it_all_along(pet):
    method = after(2, "lae", pet=pet, decay=0.9)  # a pass of three rests
    before = values(method.edits)
    seen = watched(method, upto=3, start=2)
    steps = (len(seen) - 1) // 3
    assert steps * 3 == len(seen) - 1 == 9  # 24 images in batches of 8
    assert all(all(same(on, before)) for on, _ in seen[1 : 1 + steps])
    assert not any(same(seen[1 + steps][0], before))
    for (_, earlier), (on, off) in zip(seen, seen[1:], strict=False):
        for old, own, new in zip(earlier, on, off, strict=True):
            assert torch.allclose(new, 0.9 * old + 0.1 * own, atol=1e-6)
    far, near = ([(a - b).norm() for a, b in zip(before, seen[k][1], strict=True)] for k in (0, steps))
    assert all(0 < b < a for a, b in zip(far, near, strict=True))


@pytest.mark.parametrize(("passes", "share", "rest"), [(5, 0.6, 3), (50, 0.6, 30), (1, 0.6, 0), (2, 1.0, 2)])
def test_three_of_five_passes_train_the_head_alone_at_the_cost_of_a_forward_pass(passes, share, rest):
    method = toys.method("lae", 3, passes=passes, frozen_share=share)
    [first] = method.phases(TaskInfo(0, (2, 0), 0))
    assert (first.passes, first.forwards) == (passes, 2)
    expected = [(count, forwards) for count, forwards in ((rest, 1), (passes - rest, 2)) if count]
    assert [(phase.passes, phase.forwards) for phase in method.phases(SECOND)] == expected


def test_a_falling_rate_goes_on_where_the_passes_of_the_head_alone_ended():
    method = toys.method("lae", 3, passes=4, frozen_share=0.5, schedule="cosine")
    alone, both = method.phases(SECOND)
    rates = [phase.rate(done, {}) for phase in (alone, both) for done in range(2)]
    assert rates == pytest.approx([1, 0.853553, 0.5, 0.146447], abs=1e-6)


def test_the_heads_moments_go_on_when_the_online_module_joins():
    method = after(1, "lae")
    method.grow(SECOND)
    task = toys.stream(TASKS).task(1)
    alone, both = method.phases(SECOND)
    head_adam = alone.optimizer()
    assert [*head_adam.param_groups[0]["params"]] == [*method.head.heads[-1].parameters()]
    alone.loss(next(task.plain(8))).backward()
    head_adam.step()
    assert all(parameter.grad is None for parameter in method.offline.parameters())
    state = both.optimizer().state
    assert {*state} == {*method.head.heads[-1].parameters()} and all(
        one["step"] == 1 for one in state.values()
    )


@each_module
def test_the_larger_of_both_modules_probabilities_of_a_class_is_its_score(pet):
    method = after(3, "lae", pet=pet, temperature=1.0)
    p_on, p_off = (
        F.softmax(method.head(method.backbone.features(IMAGES, module)), dim=1)
        for module in (method.edits, method.offline)
    )
    assert not torch.allclose(p_on, p_off, atol=1e-3)
    assert torch.allclose(method.predict(Batch(IMAGES)).exp(), torch.maximum(p_on, p_off), atol=1e-6)
    alone = copy.deepcopy(method)
    alone.offline = None
    assert torch.allclose(alone.predict(Batch(IMAGES)).exp(), p_on, atol=1e-6)


def test_a_temperature_divides_the_scores_of_both_modules_and_the_loss_is_that_of_the_probabilities():
    method, task = after(2, "lae", temperature=4.0), toys.stream(TASKS).task(1)
    batch = next(task.plain(36))
    p = torch.stack(
        [
            F.softmax(method.head(method.backbone.features(batch.images, module)) / 4, dim=1)
            for module in (method.edits, method.offline)
        ]
    ).amax(dim=0)
    own = p[:, 2:5] / p[:, 2:5].sum(dim=1, keepdim=True)
    expected = -own[range(36), batch.labels - 2].log().sum()
    assert method.loss_within(batch, task).item() == pytest.approx(expected.item(), rel=1e-5)


def test_as_published_the_last_partial_batch_is_left_out():
    published = {
        key: value
        for key, value in registry.method_class("lae").AS_PUBLISHED.items()
        if key in registry.method_class("lae").Config.model_fields
    }
    assert published == {"drop_last": True}
    stream = toys.stream(TASKS)
    methods = [toys.method("lae", 3, batch=10, passes=5, **options) for options in ({}, published)]
    assert [toys.learn(method, stream, 1)[0].images_seen for method in methods] == [5 * 24, 5 * 20]
    assert not any(same(*(values(method.edits) for method in methods)))


def test_more_blocks_than_the_network_has_are_refused():
    with pytest.raises(InputError, match="layers=5, but backbone 'toy' has 2 blocks"):
        toys.method("lae", 3, layers=5)
