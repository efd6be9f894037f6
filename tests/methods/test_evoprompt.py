"""EvoPrompt: a unit of the memory moves as far as it served, and nothing else of old tasks does."""

import pytest
import torch
import toys
from lessons import TASKS, after
from runs import plan

from cl_bench.errors import InputError
from cl_bench.nn.heads import transferred


def parts(method) -> list[torch.Tensor]:
    return [part.detach() for part in method.memory.parameters()]


def test_without_alpha_the_memory_stays_as_the_first_task_left_it():
    first, last = after(1, "evoprompt", alpha=0.0), after(3, "evoprompt", alpha=0.0)
    assert all(torch.equal(one, two) for one, two in zip(parts(first), parts(last), strict=True))
    changed = parts(after(3, "evoprompt"))
    assert not any(torch.equal(one, two) for one, two in zip(parts(first), changed, strict=True))


def test_a_unit_moves_between_the_memory_before_and_the_aligned_one():
    """Per unit of V and of U, the new weights lie on the line between both, with alpha = 0.5 between them."""
    method, stream = after(1, "evoprompt"), toys.stream(TASKS)
    trained = []
    evolve = method.evolve

    def watched(o):
        trained.extend(method.memory.aligned(l, method.R) for l in range(2))
        return evolve(o)

    method.evolve = watched
    toys.learn(method, stream, upto=2, start=1)
    for l in range(2):
        for part, R, (aligned, _) in zip(parts(method), method.R, trained[l], strict=True):
            way, moved = aligned - R[l], part[l].double() - R[l]
            share = (way * moved).sum(1) / way.square().sum(1)
            assert torch.allclose(moved, share[:, None] * way, atol=1e-5)
            assert share.min() > -1e-4 and share.max() < 1 + 1e-4


def test_importance_never_falls_and_starts_as_the_first_tasks():
    method, stream = toys.method("evoprompt", 3), toys.stream(TASKS)
    known = [method.Omega.clone()]
    for index in range(3):
        toys.learn(method, stream, upto=index + 1, start=index)
        known.append(method.Omega.clone())
    assert not known[0].any() and known[1].any()
    assert all((later >= earlier).all() for earlier, later in zip(known, known[1:], strict=False))


def test_a_task_starts_its_head_from_old_rows_by_class_means():
    method, stream = after(1, "evoprompt"), toys.stream(TASKS)
    old = method.head.heads[0].weight.detach().clone()
    started = []
    minimize = method.minimize

    def watched(task, trainer):
        started.append(method.head.heads[-1].weight.detach().clone())
        minimize(task, trainer)

    method.minimize = watched
    toys.learn(method, stream, upto=2, start=1)
    [batch] = stream.task(1).plain(1000)
    features = method.backbone.features(batch.images)
    means = torch.stack([features[batch.labels == k].mean(0) for k in (2, 3, 4)])
    assert torch.allclose(method.prototypes.means[2:5], means, atol=1e-5)
    expected = transferred(old, method.prototypes.means[:5], 4, 0.05)
    assert torch.allclose(started[0], expected, atol=1e-5)


def test_where_no_image_is_right_nothing_is_said_to_have_served():
    method, stream = after(1, "evoprompt"), toys.stream(TASKS)
    with torch.no_grad():
        method.head.heads[0].weight.zero_()
        method.head.heads[0].bias.copy_(torch.tensor([0.0, 1.0]))
    task, trainer = stream.task(0), toys.Trainer(data_seed=0)
    assert method.attribution(task, trainer).any()
    task.labels = torch.zeros_like(task.labels)  # every image is taken for the second class
    assert not method.attribution(task, trainer).any()


def test_one_task_alone_needs_no_statistics():
    method, stream = toys.method("evoprompt", 1), toys.stream(TASKS[:1])
    [trainer] = toys.learn(method, stream)
    assert trainer.images_seen == 24 * method.config.passes
    assert not method.Omega.any() and not method.prototypes.counts.any()


def test_groups_of_features_must_divide_them(toy_request):
    with pytest.raises(InputError, match="transfer_width=5, but the backbone has 64 features"):
        plan(toy_request, set={"passes": 1}, methods="evoprompt[transfer_width=5]")


def test_as_published_the_images_that_serve_are_right_among_all_classes(toy_request):
    usual, published = plan(toy_request, set={"passes": 1}, methods="evoprompt,evoprompt[as_published]").specs
    assert (usual.options["attribution"], published.options["attribution"]) == ("seen", "all")
    assert (usual.transform.normalisation, published.transform.normalisation) == ("checkpoint", "unit01")
