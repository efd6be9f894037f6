"""EASE: what is measured stays, what is not is a mixture of what is, and each subspace has its weight."""

import pytest
import torch
import toys
from lessons import TASKS, after
from runs import plan
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.data.stream import TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.edits import NONE
from cl_bench.plan.cost import costs
from cl_bench.plugins import registry

FIRST, OLD = slice(0, 2), slice(0, 5)  # classes of the first task, and of the first two


SET = {"passes": 4, "batch": 8}


def some_images(count: int = 6) -> torch.Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(5))


def means(method, adapters, index: int) -> torch.Tensor:
    """The mean features of a task's classes under some adapters."""
    [batch] = toys.stream(TASKS).task(index).plain(1000)
    features = method.backbone.features(batch.images, adapters).detach()
    return torch.stack([features[batch.labels == k].mean(0) for k in batch.labels.unique()])


def test_old_adapters_and_what_was_measured_stay_bit_equal():
    second, third = after(2, "ease"), after(3, "ease")
    for old, kept in zip(second.adapters, third.adapters, strict=False):
        assert toys.equal(old.state_dict(), kept.state_dict())
        assert not any(parameter.requires_grad for parameter in kept.parameters())
    assert torch.equal(third.P[FIRST, 0], second.P[FIRST, 0])
    assert torch.equal(third.P[2:5, :2], second.P[2:5, :2])


def test_prototypes_are_class_means_in_every_subspace_up_to_the_classs_own():
    method = after(3, "ease")
    for index, rows in enumerate((slice(0, 2), slice(2, 5), slice(5, 7))):
        for i in range(index + 1):
            expected = means(method, method.adapters[i], index)
            assert torch.allclose(method.P[rows, i], expected, atol=1e-5), (index, i)


@pytest.mark.parametrize(("completion", "others"), [("recomputed", slice(2, 7)), ("once", slice(2, 5))])
def test_a_prototype_that_was_not_measured_is_a_mixture_by_likeness_where_both_were(completion, others):
    """In the second subspace, of the classes measured there by now, or when it was new."""
    method = after(3, "ease", completion=completion)
    P = method.P
    for k in range(2):
        likeness = F.cosine_similarity(P[k, :1], P[others, 0]).exp()
        expected = (likeness[:, None] * P[others, 1]).sum(0) / likeness.sum()
        assert torch.allclose(P[k, 1], expected, atol=1e-5)
    for k in range(5):  # in the newest subspace there are its own classes alone
        a = 0 if k < 2 else 1
        likeness = F.cosine_similarity(P[k, a : a + 1], P[5:, a]).exp()
        assert torch.allclose(P[k, 2], (likeness[:, None] * P[5:, 2]).sum(0) / likeness.sum(), atol=1e-5)


def test_a_completion_that_is_made_once_stays():
    options = {"completion": "once"}
    second, third = after(2, "ease", **options), after(3, "ease", **options)
    assert torch.equal(third.P[OLD, :2], second.P[OLD])
    assert not torch.equal(after(3, "ease").P[FIRST, 1], second.P[FIRST, 1])


def test_where_a_later_task_has_one_class_it_stands_for_the_old_ones():
    method = toys.method("ease", 2)
    for index in range(2):
        method.grow(TaskInfo(index, (index,), index))
    method.P = torch.randn(2, 2, 32, generator=torch.Generator().manual_seed(0))
    method.complete()
    assert torch.equal(method.P[0, 1], method.P[1, 1])


def test_after_one_task_it_is_the_nearest_class_mean_under_its_adapters():
    method, images = after(1, "ease"), some_images()
    features = method.backbone.features(images, method.adapters[0])
    own = means(method, method.adapters[0], 0)
    expected = F.cosine_similarity(features[:, None], own[None], dim=2)
    assert torch.allclose(method.predict(Batch(images)), expected, atol=1e-5)


@pytest.mark.parametrize(("others", "weight"), [("mean", 0.3 / 2), ("sum", 0.3)])
def test_a_score_is_the_cosine_in_the_classs_own_subspace_and_alpha_times_the_others(others, weight):
    method, images = after(3, "ease", alpha=0.3, others=others), some_images()
    f = [method.backbone.features(images, adapters) for adapters in method.adapters]
    scores = method.predict(Batch(images))
    for k, a in enumerate((0, 0, 1, 1, 1, 2, 2)):
        cosines = [F.cosine_similarity(f[i], method.P[k : k + 1, i]) for i in range(3)]
        expected = cosines[a] + weight * (sum(cosines) - cosines[a])
        assert torch.allclose(scores[:, k], expected, atol=1e-5)


def test_without_alpha_a_class_is_judged_in_its_own_subspace_alone():
    method, images = after(3, "ease", alpha=0.0), some_images()
    before = method.predict(Batch(images))
    method.P[FIRST, 1:] = torch.randn(2, 2, 32)
    assert torch.allclose(method.predict(Batch(images)), before, atol=1e-6)


def test_new_adapters_leave_the_network_as_it_is():
    method, images = toys.method("ease", 3), some_images()
    method.grow(toys.stream(TASKS).info(0))
    found = method.backbone.features(images, method.adapters[0])
    assert torch.allclose(found, method.backbone.features(images), atol=1e-6)


def test_beta_adds_the_cosine_in_the_features_of_the_bare_network():
    plain, method, images = after(3, "ease"), after(3, "ease", beta=0.5), some_images()
    raw = torch.cat([means(method, NONE, t) for t in range(3)])
    bare = F.cosine_similarity(method.backbone.features(images)[:, None], raw[None], dim=2)
    scores = method.predict(Batch(images))
    assert torch.allclose(scores, plain.predict(Batch(images)) + 0.5 * bare, atol=1e-5)
    assert (plain.prediction_passes, method.prediction_passes) == (3, 4)
    assert method.queries and not plain.queries


def test_the_first_task_is_shared_by_all_that_differ_in_how_subspaces_are_used():
    kind = registry.method_class("ease")
    usual = kind.trunk(kind.Config())
    assert usual == kind.trunk(kind.Config(alpha=1.0, beta=1.0, others="sum", completion="once"))
    assert usual != kind.trunk(kind.Config(bottleneck=8))


def test_planning_counts_a_pass_for_every_subspace_that_an_image_has_not_been_in(toy_request):
    [spec] = plan(toy_request, set=SET, methods="ease").specs
    cost = costs([spec])[spec.run_id()]
    assert cost.test_images == cost.predicted == (8, 16, 24, 32) and cost.prediction_passes == 4
    certificate = 3 * 4 * 32  # all images thrice, in every subspace
    assert cost.evaluating == (8, 2 * 8 + 8, 3 * 8 + 16, 4 * 8 + 24 + certificate)
    assert cost.images == tuple(12 * (4 + t) for t in (1, 2, 3, 4))  # 4 passes of training


def test_one_class_a_task_gives_nothing_to_learn(toy_request):
    with pytest.raises(InputError, match="compares the classes of the current task only"):
        plan(toy_request, set=SET, methods="ease", splits="8")


def test_as_published_it_differs_in_how_images_enter_alone(toy_request):
    usual, published = plan(toy_request, set=SET, methods="ease,ease[as_published]").specs
    assert usual.options == published.options
    assert (usual.transform.normalisation, published.transform.normalisation) == ("checkpoint", "unit01")
