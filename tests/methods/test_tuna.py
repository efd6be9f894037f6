"""TUNA: adapters of every task, universal ones made of them, and the surest answer of all."""

import functools
import math

import pytest
import torch
import toys
from cl_bench.methods.tuna import AsRun as TUNA
from cl_bench.methods.tuna import directions, united
from lessons import TASKS, after
from torch.nn import functional as F

from cl_bench.data.batch import Batch

IMAGES = Batch(torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1)))
PUBLISHED = {key: value for key, value in TUNA.AS_PUBLISHED.items() if key in TUNA.Config.model_fields}
SHORT = {"passes": 1, "align_passes": 2, "align_samples": 16}


@functools.cache
def learned(upto: int = 3, **options) -> TUNA:
    """A method that has learned so many tasks, to be looked at alone."""
    return after(upto, "tuna", **{**SHORT, **options})


def info(index: int):
    return toys.stream(TASKS).info(index)


def tensors(adapters) -> list[torch.Tensor]:
    return [*adapters.parameters()]


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_entries_are_united_by_the_sign_of_their_mean_and_the_largest_size_that_has_it():
    """Means are 1, -1/6, 0 and 2/3; of the last only the first entry is positive."""
    values = torch.tensor([[1.0, -2.0, 0.0, 4.0], [3.0, 1.0, 0.0, -1.0], [-1.0, 0.5, 0.0, -1.0]])
    assert united(values).tolist() == [3.0, -2.0, 0.0, 4.0]
    assert torch.equal(united(values[[2, 0, 1]]), united(values))
    many = torch.randn(50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(united(many.expand(4, 50)), many)


def test_the_universal_adapters_are_made_of_those_of_all_tasks():
    method = learned(3)
    for own, *parts in zip(method.universal.parameters(), *map(tensors, method.adapters), strict=True):
        assert torch.equal(own, united(torch.stack(parts)))
    assert not any(part.requires_grad for part in method.universal.parameters())


def test_kept_adapters_and_old_rows_stay_bit_for_bit_and_the_next_start_where_the_last_are():
    one, three, plain = learned(1), learned(3), {"align_passes": 0}
    assert same(tensors(one.adapters[0]), tensors(three.adapters[0]))
    assert same(tensors(learned(2).adapters[1]), tensors(three.adapters[1]))
    assert same(tensors(one.start()), tensors(one.adapters[0]))
    assert not same(tensors(three.adapters[1]), tensors(three.adapters[2]))
    old = [learned(upto, **plain).head.heads[0].weight for upto in (1, 3)]
    assert torch.equal(*old) and not torch.equal(old[0], three.head.heads[0].weight)


def test_after_one_task_scores_are_scaled_cosines():
    method = learned(1)
    with torch.no_grad():
        f = method.backbone.features(IMAGES.images, method.adapters[0])
        expected = 20 * F.cosine_similarity(f[:, None], method.head.heads[0].weight[None], dim=2)
        assert torch.allclose(method.predict(IMAGES), expected, atol=1e-4)


@pytest.mark.parametrize("universal", ["merged", "latest_asis"])
def test_the_surest_adapters_answer_beside_the_universal_or_as_published_the_latest(universal):
    method = learned(3, universal=universal)
    second = method.adapters[-1] if universal == "latest_asis" else method.universal
    with torch.no_grad():
        z = [method.head(method.backbone.features(IMAGES.images, one)) for one in (*method.adapters, second)]
        p = torch.stack(z).softmax(2)  # (t + 1, B, K)
        entropies = -(p[:3] * p[:3].log()).sum(2)
        expected = [p[int(entropies[:, b].argmin()), b] + p[3, b] for b in range(6)]
        assert torch.allclose(method.predict(IMAGES), torch.stack(expected), atol=1e-5)
    passes = 3 if universal == "latest_asis" else 4
    assert (method.prediction_passes, method.settled_passes) == (passes, 3)
    assert any(name.startswith("universal") for name in method.state()) == (universal == "merged")


def test_likeness_is_the_mean_over_blocks_of_mean_products_of_unit_rows():
    method = after(2, "tuna", **SHORT)
    method.grow(info(2))
    method.begin_task(info(2), None)
    newest, *kept = (F.normalize(method.adapters[k].up.detach(), dim=2) for k in (2, 0, 1))  # (L, D, r)
    expected = sum((newest[l] @ old[l].T).mean().abs() / 2 for old in kept for l in range(2))
    assert float(method.likeness(method.old).detach()) == pytest.approx(float(expected), rel=1e-4)
    assert directions(method.adapters).shape == (3, 2, 4)


def test_the_loss_has_a_margin_for_the_true_class_and_counts_likeness_less_the_later_the_task():
    method = after(1, "tuna", margin=0.2, orthogonality=0.5, **SHORT)
    method.grow(info(1))
    method.begin_task(info(1), None)
    batch = Batch(IMAGES.images, torch.tensor([2, 3, 4, 2, 3, 4]))
    with torch.no_grad():
        f = method.backbone.features(batch.images, method.adapters[1])
        cosines = F.cosine_similarity(f[:, None], method.head.heads[1].weight[None], dim=2)
        total = 0.0
        for row, label in zip(cosines, batch.labels - 2, strict=True):
            own = math.exp(20 * (row[label] - 0.2))
            others = sum(math.exp(20 * row[j]) for j in range(3) if j != label)
            total -= math.log(own / (own + others)) / 6
        expected = total + 0.5 * math.exp(-2) * float(method.likeness(method.old))
        assert float(method.loss(batch, info(1))) == pytest.approx(expected, rel=1e-4)


def test_draws_are_around_smaller_means_of_old_classes_or_as_published_of_new_ones():
    """Of classes in tasks of 2, 3 and 2; as published class k counts as of task 1 - ceil(k / 2)."""
    means = learned(3).gaussians.means.clone()
    for options, expected in (
        ({}, [1.0] * 7),
        ({"mean_decay": 0.3}, [0.8, 0.8, 0.9, 0.9, 0.9, 1.0, 1.0]),
        ({"mean_decay": 0.3, "mean_tasks": "negative_asis"}, [0.8, 0.7, 0.7, 0.6, 0.6, 0.5, 0.5]),
    ):
        method = learned(3, **options)
        assert method.decay().tolist() == pytest.approx(expected, abs=1e-6)
        factors = torch.tensor(expected)[:, None]
        assert torch.allclose(method.drawn().means, factors * method.gaussians.means, atol=1e-5)
        assert torch.allclose(method.gaussians.means[:2], means[:2], atol=1e-5)


def test_the_rate_of_the_alignment_falls_once_or_as_published_again_and_again():
    usual, waves = (
        toys.method("tuna", 3, align_passes=10, align_schedule=kind) for kind in ("cosine", "waves_asis")
    )
    assert [usual.align_rate(done) for done in (0, 5, 9)] == pytest.approx([1, 0.5, 0.024472], abs=1e-6)
    found = [waves.align_rate(done) for done in range(11)]
    half = [1, 0.904508, 0.654508, 0.345492, 0.095492, 0]
    assert found == pytest.approx(half + half[4::-1], abs=1e-6)


def test_as_published_old_rows_shrink_and_old_up_projections_learn_on():
    options = {"align_passes": 0, "weight_decay": 0.1, "orthogonality": 0.1}
    odd = {**options, "head_decay": "all_asis", "kept": "trained_asis"}
    one, two = learned(1, **odd), learned(2, **odd)
    ratio = (two.head.heads[0].weight / one.head.heads[0].weight).flatten()
    assert torch.allclose(ratio, ratio[0].expand_as(ratio), atol=1e-4) and ratio[0] < 1 - 1e-3
    changed = {
        name: not torch.equal(value, two.adapters[0].get_parameter(name))
        for name, value in one.adapters[0].named_parameters()
    }
    assert changed == {"down": False, "down_bias": False, "up": True, "up_bias": False}
    assert (two.settled_passes, two.prediction_passes) == (0, 3)
    without = learned(2, **{**odd, "orthogonality": 0.0})
    assert same(
        tensors(without.adapters[0]), tensors(learned(1, **{**odd, "orthogonality": 0.0}).adapters[0])
    )
    assert without.settled_passes == 2


def test_as_published_and_restored_it_goes_on_bit_for_bit():
    stream, whole, interrupted = toys.stream(TASKS), learned(**PUBLISHED), learned(2, **PUBLISHED)
    resumed = toys.method("tuna", 3, **SHORT, **PUBLISHED)
    for index in range(2):
        resumed.grow(stream.info(index))
    resumed.load_state({key: value.clone() for key, value in interrupted.state().items()})
    toys.learn(resumed, stream, start=2)
    assert toys.equal(whole.state(), resumed.state()) and set(whole.state()) == set(resumed.state())


def test_what_it_costs_and_keeps():
    """Of 24 and 36 images; one pass each, forward and backward, and one for the Gaussians."""
    for options, passes in (({}, [1, 3]), (PUBLISHED, [1, 2])):
        method = toys.method("tuna", 3, **SHORT, **options)
        for index, images in enumerate((24, 36)):
            [trainer] = toys.learn(method, toys.stream(TASKS), index + 1, index)
            assert method.statistics_images(info(index), images) == images
            assert trainer.images_seen == 2 * images
            assert method.forwards(info(index), images, True) == 3 * images
            assert method.prediction_passes == passes[index]
    extra, state, tokens = learned(3).extra(), learned(3).state(), 5
    assert extra.image == tokens * 2 * (4 * 32 + 4 + 32 * 4 + 32)
    assert extra.task == 2 * 16 * 7 * 32 * (32 / 2 + 3 * 7)
    assert state["gaussians.factors"].shape == (7, 32 * 33 // 2)
    assert sum(key.startswith("adapters.") for key in state) == 3 * 4
    assert sum(key.startswith("universal.") for key in state) == 4
    assert learned(3).keeps == "one Gaussian of features per class"
