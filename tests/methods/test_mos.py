"""MOS: adapters that merge and are kept, guesses of an image's task, and a head that is aligned."""

import functools

import pytest
import torch
import toys
from cl_bench.methods._merging import Moved, mean_of, move
from cl_bench.methods.mos import AsRun as MOS
from lessons import TASKS, after
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.plugins import registry

IMAGES = Batch(torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1)))
PUBLISHED = {key: value for key, value in MOS.AS_PUBLISHED.items() if key in MOS.Config.model_fields}
SHORT = {"passes": 1, "align_passes": 2, "align_samples": 16}


@functools.cache
def learned(upto: int = 3, **options) -> MOS:
    """A method that has learned so many tasks, to be looked at alone."""
    return after(upto, "mos", **{**SHORT, **options})


def info(index: int):
    return toys.stream(TASKS).info(index)


def tensors(method: MOS, index: int) -> list[torch.Tensor]:
    return [*method.adapters[index].parameters()]


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_kept_adapters_stay_bit_for_bit_and_the_next_start_where_the_last_are():
    one, three = learned(1), learned(3)
    assert same(tensors(one, 0), tensors(three, 0)) and same(tensors(learned(2), 1), tensors(three, 1))
    assert same([*one.start().parameters()], tensors(one, 0))
    assert not same(tensors(three, 1), tensors(three, 2)) and len(three.adapters) == 3
    assert not any(part.requires_grad for adapters in three.adapters[:2] for part in adapters.parameters())


def test_after_each_step_the_adapters_move_a_tenth_toward_the_mean_of_those_kept():
    method = after(2, "mos", **SHORT)
    method.grow(info(2))
    method.begin_task(info(2), None)
    before = [part.detach().clone() for part in tensors(method, 2)]
    method.phases(info(2))[0].after_step()
    for old, new, *kept in zip(
        before, tensors(method, 2), tensors(method, 0), tensors(method, 1), strict=True
    ):
        assert torch.allclose(new, 0.9 * old + 0.1 * (kept[0] + kept[1]) / 2, atol=1e-7)
    first = toys.method("mos", 3)
    first.grow(info(0))
    first.begin_task(info(0), None)
    start = [part.detach().clone() for part in tensors(first, 0)]
    first.phases(info(0))[0].after_step()
    assert same(start, tensors(first, 0))


def test_merging_identical_adapters_changes_nothing():
    method = learned(2)
    own = method.start()
    move(own, mean_of([method.adapters[1]] * 3), 0.3)
    assert all(
        torch.allclose(a, b, atol=1e-7) for a, b in zip(own.parameters(), tensors(method, 1), strict=True)
    )
    moved = Moved(method.adapters[1], [method.adapters[1]] * 3, [0.3] * 2)
    with torch.no_grad():
        found, plain = (method.backbone.features(IMAGES.images, e) for e in (moved, method.adapters[1]))
    assert torch.allclose(found, plain, atol=1e-5)


def test_without_momentum_nothing_merges_however_often():
    step, forward = (learned(merge=0.0, merging=merging) for merging in ("step", "forward_asis"))
    for index in range(3):
        pairs = zip(tensors(step, index), tensors(forward, index), strict=True)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)
    assert not torch.equal(tensors(step, 2)[0], tensors(learned(), 2)[0])


def test_with_one_task_the_answer_is_of_its_head_and_its_prototypes():
    method = learned(1)
    with torch.no_grad():
        f = method.backbone.features(IMAGES.images, method.adapters[0])
        head = method.head.heads[0]
        s = F.cosine_similarity(f[:, None], method.P.means[None], dim=2)
        expected = (f @ head.weight.T + head.bias).softmax(1) + s.softmax(1)
        assert torch.allclose(method.predict(IMAGES), expected, atol=1e-6)
        assert torch.equal(method.predict(IMAGES), method.predict(IMAGES))


def test_cosines_weigh_more_the_more_tasks_there_are_and_may_be_left_out():
    method, alone = learned(3), learned(3, ensemble=False)
    with torch.no_grad():
        f = method.features(IMAGES)
        s, Z = method.P(f[:, 0]), method.scores(f)
        z = Z[torch.arange(6), method.guessed(s, Z)]
        assert torch.allclose(method.predict(IMAGES), z.softmax(1) + (3 * s).softmax(1), atol=1e-6)
        assert torch.allclose(alone.predict(IMAGES), z, atol=1e-5)


def test_guesses_follow_each_other_until_one_stays_or_there_are_enough():
    """Of four tasks with one class each: the scores under task k say which task is guessed next."""
    following = torch.tensor([[1, 2, 2, 0], [1, 0, 2, 0], [0, 0, 0, 0], [1, 2, 3, 0]])
    Z, s = F.one_hot(following, 4).float(), F.one_hot(torch.tensor([0, 0, 2, 0]), 4).float()
    for rounds, expected in ((1, [0, 0, 2, 0]), (2, [1, 1, 0, 1]), (3, [2, 0, 0, 2]), (4, [2, 1, 0, 3])):
        method = toys.method("mos", 4, rounds=rounds)
        for _ in range(4):
            method.head.grow(1, torch.Generator(), "normal", torch.device("cpu"))
        assert method.guessed(s, Z).tolist() == expected


def test_classes_are_described_by_the_adapters_of_their_task_and_by_the_first():
    method, task = learned(3), toys.stream(TASKS).task(2)
    with torch.no_grad():
        images = torch.cat([batch.images for batch in task.plain(50)])
        first, own = (method.backbone.features(images, method.adapters[k]) for k in (0, 2))
    for label in (5, 6):
        chosen = task.labels == label
        assert torch.allclose(method.gaussians.means[label], own[chosen].mean(0), atol=1e-5)
        assert torch.allclose(method.P.means[label], first[chosen].mean(0), atol=1e-5)
    assert torch.equal(method.gaussians.means[:5], learned(2).gaussians.means)
    assert torch.equal(learned(1).gaussians.means, learned(1).P.means)


def test_the_head_is_aligned_from_the_second_task_on_and_goes_on_from_there():
    plain = {"align_passes": 0}
    assert torch.equal(learned(1).head.heads[0].weight, learned(1, **plain).head.heads[0].weight)
    assert torch.equal(learned(2, **plain).head.heads[0].weight, learned(1).head.heads[0].weight)
    assert not torch.equal(learned(2).head.heads[0].weight, learned(1).head.heads[0].weight)
    assert same(tensors(learned(2), 1), tensors(learned(2, **plain), 1))
    assert len(learned(2).diagnostics()["alignment_losses"]) == 2
    method = after(2, "mos", **SHORT)
    aligned = method.head.heads[1].weight.clone()
    method.grow(info(2))
    assert torch.equal(method.head.heads[1].weight, aligned)
    assert not method.head.heads[1].weight.requires_grad and method.head.heads[2].weight.requires_grad


def test_rates_fall_along_half_a_cosine_and_that_of_the_head_is_a_tenth():
    method = toys.method("mos", 3, passes=4, learning_rate=0.02, head_share=0.1)
    method.grow(info(0))
    [phase] = method.phases(info(0))
    groups = phase.optimizer().param_groups
    assert [group["lr"] for group in groups] == pytest.approx([0.02, 0.002])
    assert [group["weight_decay"] for group in groups] == [5e-4, 5e-4]
    assert [len(group["params"]) for group in groups] == [4, 2]
    found = [phase.rate(done, groups[0]) for done in range(4)]
    assert found == pytest.approx([1, 0.853553, 0.5, 0.146447], abs=1e-6)


def test_the_second_loss_compares_features_with_each_other_and_with_old_means():
    method = after(1, "mos", **SHORT)
    method.grow(info(1))
    batch = Batch(IMAGES.images, torch.tensor([2, 3, 4, 2, 3, 4]))
    with torch.no_grad():
        f = method.backbone.features(batch.images, method.adapters[1])
        ce = F.cross_entropy(method.head.heads[1](f), batch.labels - 2)
        m = torch.cat([method.gaussians.means[:2], f])
        con = -(m @ m.T / 0.8).log_softmax(1).diagonal().mean()
        assert float(method.loss(batch, info(1))) == pytest.approx(float(ce + 0.1 * con), rel=1e-5)


def test_as_published_evaluation_sees_kept_adapters_as_the_mean_of_those_before():
    method = learned(3, **PUBLISHED)
    with torch.no_grad():
        f = method.features(IMAGES)
        mean = method.start()
        move(mean, mean_of(method.adapters[:2]), 0.0)
        expected = [method.backbone.features(IMAGES.images, e) for e in (*[method.adapters[0]] * 2, mean)]
    assert torch.allclose(f, torch.stack(expected, dim=1), atol=1e-5)


def test_as_published_a_step_merges_once_for_every_block_and_once_more():
    method = after(1, "mos", merging="forward_asis", learning_rate=1e-30, **SHORT)
    method.grow(info(1))
    with torch.no_grad():
        for part in method.adapters[1].parameters():
            part += 1.0
    method.begin_task(info(1), None)
    [phase] = method.phases(info(1))
    phase.after_backward()
    phase.after_step()
    for new, kept in zip(tensors(method, 1), tensors(method, 0), strict=True):
        assert torch.allclose(new, kept + 0.9**3, atol=1e-6)


def test_as_published_weight_decay_shrinks_the_rows_of_all_tasks():
    options = {"head_decay": "all_asis", "weight_decay": 0.1, "align_passes": 0}
    one, two = learned(1, **options), learned(2, **options)
    ratio = (two.head.heads[0].weight / one.head.heads[0].weight).flatten()
    assert torch.allclose(ratio, ratio[0].expand_as(ratio), atol=1e-5) and ratio[0] < 1 - 1e-3
    assert two.head.left.item() == pytest.approx(ratio[0].item() * one.head.left.item(), rel=1e-5)
    resting = {"weight_decay": 0.1, "align_passes": 0}
    assert torch.equal(learned(2, **resting).head.heads[0].weight, learned(1, **resting).head.heads[0].weight)


def test_as_published_later_prototypes_are_of_adapters_with_dropout():
    with_dropout = {"dropout": 0.5, "align_passes": 0}
    plain, odd = (learned(2, prototypes=kind, **with_dropout) for kind in ("plain", "dropout_asis"))
    assert torch.equal(plain.P.means[:2], odd.P.means[:2])
    assert not torch.equal(plain.P.means[2:], odd.P.means[2:])
    assert not any(adapters.training for adapters in odd.adapters)


def test_as_published_and_restored_it_goes_on_bit_for_bit():
    options = {**SHORT, **PUBLISHED}
    stream, whole, interrupted = toys.stream(TASKS), learned(**PUBLISHED), learned(2, **PUBLISHED)
    assert 0 < float(interrupted.left) < 1
    resumed = toys.method("mos", 3, **options)
    for index in range(2):
        resumed.grow(stream.info(index))
    resumed.load_state({key: value.clone() for key, value in interrupted.state().items()})
    toys.learn(resumed, stream, start=2)
    assert toys.equal(whole.state(), resumed.state()) and set(whole.state()) == set(resumed.state())


def test_what_it_costs_and_keeps():
    """Of 24, 36 and 24 images; one pass each, forward and backward, and statistics in one or two networks."""
    for options in ({}, {"merging": "forward_asis"}):
        method = toys.method("mos", 3, **SHORT, **options)
        trainers = toys.learn(method, toys.stream(TASKS))
        for index, images in enumerate((24, 36, 24)):
            statistics = images * (1 + (index > 0))
            assert method.statistics_images(info(index), images) == statistics
            assert trainers[index].images_seen == images + statistics
            assert method.forwards(info(index), images, True) == 2 * images + statistics
        assert method.prediction_passes == method.settled_passes == 3
    extra, state, tokens = learned(3).extra(), learned(3).state(), 5
    assert extra.image == tokens * 2 * (4 * 32 + 4 + 32 * 4 + 32)
    assert extra.step == 2 * 32 * (7 + 8) ** 2
    assert extra.task == 2 * 16 * 7 * 32 * (32 / 2 + 3 * 7)
    assert state["gaussians.factors"].shape == (7, 32 * 33 // 2) and state["P.sums"].shape == (7, 32)
    assert sum(key.startswith("adapters.") for key in state) == 3 * 4
    assert learned(3).keeps == registry.plugins("methods")["mos"].keeps
