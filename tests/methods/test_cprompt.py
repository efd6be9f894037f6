"""CPrompt: both consistencies by hand, keys that route, and what stays of old tasks."""

import pytest
import torch
import toys
from lessons import after
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo
from cl_bench.errors import InputError
from cl_bench.plugins import registry

TASKS = [[2, 0], [1, 3, 4], [5, 6]]


def grown(count: int = 3, **options):
    """A method about to learn the last of so many tasks, that task, and a batch of it."""
    method, stream = after(count - 1, "cprompt", **options), toys.stream(TASKS)
    task = stream.task(count - 1)
    method.grow(task)
    return method, task, next(task.augmented_batches([(torch.arange(6).numpy(), 0)]))


def test_a_task_starts_from_the_prompts_before_it():
    method = grown()[0]
    assert torch.equal(method.prompts.P[2], method.prompts.P[1])
    assert not torch.equal(method.prompts.P[1], method.prompts.P[0])
    assert [P.requires_grad for P in method.prompts.P] == [False, False, True]


def test_what_old_tasks_have_learned_stays_bit_for_bit():
    before, now = after(1, "cprompt").state(), after(3, "cprompt").state()
    assert {"prompts.P.0", "keys.K.0", "head.heads.0.weight"} < set(before)
    assert all(torch.equal(value, now[key]) for key, value in before.items())
    assert not any("aux" in key for key in now)


def test_classifier_consistency_is_the_cross_entropy_with_flattened_scores_where_the_new_head_is_not_surer():
    method, _, _ = grown(tau=1.5, margin=0.1, alpha=0.6)
    f = torch.randn(12, 32)
    *old, z = (head(f).detach() for head in method.head.heads)
    terms, surer = [], []
    for o in old:
        for b in range(len(f)):
            surer.append(bool(z[b].max() > o[b].max() + 0.1))
            target = torch.exp(o[b] / (1.0 if surer[-1] else 1.5))
            terms.append(-(target / target.sum() * (o[b] - o[b].exp().sum().log())).sum())
    assert 0 < sum(surer) < len(surer)
    assert method.consistency(f).item() == pytest.approx(0.6 * float(sum(terms)) / 12 / 2, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "flattens"), [({"tau": 1.0}, False), ({"margin": -1e9}, False), ({}, True)]
)
def test_old_heads_are_flattened_only_by_a_temperature_and_where_they_are_surer(options, flattens):
    method, _, _ = grown(**{"tau": 1.5, "margin": 1e9, **options})
    f = torch.randn(12, 32, requires_grad=True)
    method.consistency(f).backward()
    assert (float(f.grad.abs().max()) > 1e-5) == flattens
    if flattens:
        with torch.no_grad():
            entropies = [
                sum(-(head(x).softmax(1) * head(x).log_softmax(1)).sum() for head in method.head.heads[:-1])
                for x in (f, f - 0.1 * f.grad)
            ]
        assert entropies[1] > entropies[0]


def test_an_image_has_the_feature_of_the_prompts_that_it_draws_with_a_gradient_for_those_of_the_task():
    method, _, batch = grown()
    with torch.no_grad():
        method.prompts.P[2].normal_()
    f = method.prompted(batch.images, [2])
    found = method.under_drawn(batch, f, 2)
    each = torch.stack([method.prompted(batch.images, [j]) for j in range(3)]).detach()  # (3, B, D)
    differences = (each - found.detach()).abs().amax(dim=2)
    j = differences.argmin(dim=0)
    assert len(j.unique()) > 1 and float(differences.min(dim=0).values.max()) < 1e-5
    [gradient] = torch.autograd.grad(found.sum(), f)
    assert torch.equal(gradient.abs().sum(dim=1) > 0, j == 2)


def test_draws_depend_on_the_showing_of_an_image_and_not_on_its_batch():
    method, task, batch = grown()
    f = torch.full((6, 32), torch.nan)  # in the place of the task's own prompts

    def drawn(part: Batch) -> list[bool]:
        return method.under_drawn(part, f[: len(part)], 2).isnan().any(dim=1).tolist()

    parts = [one for part in batch.split(2) for one in drawn(part)]
    order = torch.tensor([4, 1, 5, 0, 3, 2]).numpy()
    shuffled = drawn(next(task.augmented_batches([(order, 0)])))
    assert drawn(batch) == parts == [shuffled[order.tolist().index(place)] for place in range(6)]
    many = [drawn(next(task.augmented_batches([(batch.turns, number)]))) for number in range(40)]
    assert 0.25 < sum(map(sum, many)) / 240 < 0.42 and len(set(map(tuple, many))) > 10


def test_the_loss_is_the_sum_of_its_terms_and_of_three_in_the_first_task():
    for count in (1, 3):
        method, task, batch = grown(count)
        t, y, first = task.index, batch.labels, task.first_label
        f = method.prompted(batch.images, [t])
        cos = method.keys.similarity(method.query(batch), first, first + len(task.classes))
        drawn = method.under_drawn(batch, f, t) if t else f
        expected = F.cross_entropy(method.aux[0](f), y - first) + F.cross_entropy(cos, y)
        expected = expected + F.cross_entropy(method.head.heads[t](drawn), y - first)
        expected = expected + (method.consistency(f) if t else 0)
        assert method.loss(batch, task).item() == pytest.approx(expected.item(), rel=1e-5)
        assert [phase.forwards for phase in method.phases(task)] == [3 if t else 2]


def test_the_query_is_the_class_token_before_the_final_norm():
    method, batch = after(1, "cprompt"), Batch(torch.randn(4, 3, 16, 16))
    vit, q = method.backbone.vit, method.query(batch)
    assert torch.allclose(vit.norm(q), vit.forward_head(vit.forward_features(batch.images)), atol=1e-5)


def test_the_task_is_chosen_by_keys_and_the_frozen_network_whatever_the_prompts_are():
    method, images = after(3, "cprompt"), torch.randn(20, 3, 16, 16)
    q = method.query(Batch(images))
    chosen = method.keys.nearest_task(q, 3)
    with torch.no_grad():
        for P in method.prompts.P:
            P.normal_()
    assert torch.equal(method.keys.nearest_task(method.query(Batch(images)), 3), chosen)
    assert len(chosen.unique()) > 1
    for task in chosen.unique():
        own = chosen == task
        expected = method.head(method.prompted(images[own], [int(task)]))
        assert torch.allclose(method.predict(Batch(images))[own], expected, atol=1e-5)


def test_published_weight_decay_shortens_the_keys_of_classes_to_come_too():
    kind = registry.method_class("cprompt")
    options = {**toys.QUICK, **kind.SMALL, "weight_decay": 0.1}
    config = {key: value for key, value in options.items() if key in kind.Config.model_fields}
    info = StreamInfo(init_seed=1, num_tasks=3, task_sizes=(2, 3, 2))
    every, own = (
        kind(kind.Config(**config, keys_trained=trained), toys.backbone(), info)
        for trained in ("all", "task")
    )
    for method in (every, own):
        toys.learn(method, toys.stream(TASKS), upto=1)
    assert [len(K) for K in every.keys.K] == [2, 3, 2] and [len(K) for K in own.keys.K] == [2]
    lengths = torch.cat([*every.keys.K][1:]).detach().norm(dim=1)
    assert float(lengths.max()) < 0.99 and torch.allclose(lengths, lengths[0].expand(5), atol=1e-5)
    assert torch.equal(every.keys.K[0], own.keys.K[0])
    for method in (every, own):
        toys.learn(method, toys.stream(TASKS), start=1, upto=2)
    ratio = (every.keys.K[0] / own.keys.K[0]).detach()  # the old ones are shorter, and point where they did
    assert torch.allclose(ratio, ratio[0, 0].expand(2, 32), atol=1e-4) and float(ratio[0, 0]) < 0.99


def test_what_only_later_tasks_need_does_not_part_first_tasks():
    kind = registry.method_class("cprompt")
    first, second = kind.Config(), kind.Config(tau=1.02, margin=0.05, alpha=0.5)
    assert kind.trunk(first) == kind.trunk(second) != kind.trunk(kind.Config(prompts=10))


def test_blocks_that_the_network_does_not_have_are_refused():
    with pytest.raises(InputError, match="prompts at second_block=2 need 3 blocks"):
        toys.method("cprompt", 3, second_block=2)
