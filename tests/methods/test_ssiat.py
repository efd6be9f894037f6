"""SSIAT: adapters of all tasks, means that follow their features, and heads that are aligned in a copy."""

import functools

import pytest
import torch
import toys
from cl_bench.methods.ssiat import AsRun as SSIAT
from lessons import TASKS, after
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.training.trainer import Trainer

IMAGES = Batch(torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1)))
PUBLISHED = {"pairs": "unpaired_asis", "old_heads": "carried_asis"}


@functools.cache
def learned(upto: int = 3, **options) -> SSIAT:
    """A method that has learned so many tasks, to be looked at alone."""
    return after(upto, "ssiat", align_samples=32, **{"passes": 1, "later_passes": 1, **options})


def info(index: int):
    return toys.stream(TASKS).info(index)


def covariance(features: torch.Tensor) -> torch.Tensor:
    return torch.cov(features.T.double()) + 1e-3 * torch.eye(32)


def test_alignment_changes_its_own_copy_of_the_heads_and_nothing_that_is_trained():
    aligned, plain = learned(), learned(align_passes=0)
    kept = {name: value for name, value in aligned.state().items() if name.startswith(("adapters", "head."))}
    assert toys.equal(kept, plain.state()) and len(kept) == 7
    assert not toys.equal(aligned.aligned.state_dict(), aligned.head.state_dict())
    first = learned(1)
    assert toys.equal(first.aligned.state_dict(), first.head.state_dict())


def test_one_set_of_adapters_learns_in_every_task_and_a_head_in_its_own():
    one, two = learned(1), learned(2)
    assert not torch.equal(one.adapters.up, two.adapters.up)
    assert torch.equal(one.head.heads[0].weight, two.head.heads[0].weight)
    assert two.adapters.up.shape == one.adapters.up.shape == (2, 32, 4)


def test_means_stay_where_the_network_does_and_follow_it_otherwise_while_covariances_stay():
    first, second = learned(1), learned(2)
    still = toys.method("ssiat", 3, learning_rate=1e-30, passes=1, later_passes=1, align_samples=8)
    toys.learn(still, toys.stream(TASKS), upto=1)
    means = still.gaussians.means.clone()
    toys.learn(still, toys.stream(TASKS), start=1, upto=2)
    assert torch.equal(still.gaussians.means[:2], means)
    assert not torch.equal(second.gaussians.means[:2], first.gaussians.means)
    assert torch.equal(second.gaussians.factors[:2], first.gaussians.factors)
    assert torch.equal(learned(2, shift=False).gaussians.means[:2], first.gaussians.means)


def test_a_shift_of_all_features_by_one_vector_is_that_of_every_old_mean():
    class Given(SSIAT):
        """Its features are the images' first numbers, and later those and one vector more."""

        more = 0.0

        def features(self, batch):
            return batch.images.flatten(1)[:, :32] + self.more

    config = SSIAT.Config(bottleneck=4, sigma=0.5, align_samples=4)
    method, stream = Given(config, toys.backbone(), toys.method("ssiat", 3).stream), toys.stream(TASKS)
    vector = torch.arange(32.0)
    for index in range(2):
        task = stream.task(index)
        method.grow(task)
        method.begin_task(task, Trainer(0))
        before = method.gaussians.means.clone()
        method.more = index * vector
        method.end_task(task, Trainer(0))
    assert torch.allclose(method.gaussians.means[:2] - before[:2], vector.expand(2, 32), atol=1e-4)
    assert len(method.diagnostics()["effective_images"]) == 2
    assert all(1 <= count <= 36 for count in method.diagnostics()["effective_images"])


def test_new_classes_are_described_by_the_network_after_their_task():
    method, task = learned(), toys.stream(TASKS).task(2)
    with torch.no_grad():
        f = torch.cat([method.features(batch) for batch in task.plain(5)])
    for label in (5, 6):
        own = f[task.labels == label]
        assert torch.allclose(method.gaussians.means[label], own.mean(0), atol=1e-5)
        L = torch.zeros(32, 32)
        L[*torch.tril_indices(32, 32)] = method.gaussians.factors[label]
        assert torch.allclose((L @ L.T).double(), covariance(own), atol=1e-4)


def test_scores_are_scaled_cosines_whatever_the_length_of_a_head():
    method = after(2, "ssiat", align_samples=8, passes=1, later_passes=1)
    f, W = method.features(IMAGES), torch.cat([head.weight for head in method.aligned.heads])
    expected = 20 * F.cosine_similarity(f[:, None], W[None], dim=2)
    assert torch.allclose(method.predict(IMAGES), expected, atol=1e-4)
    with torch.no_grad():
        method.aligned.heads[0].weight *= 7.0
    assert torch.allclose(method.predict(IMAGES), expected, atol=1e-4)


def test_later_tasks_are_shorter_and_the_rate_falls_along_half_a_cosine_in_each():
    method = toys.method("ssiat", 3, passes=4, later_passes=2, learning_rate=0.02)
    for index, rates in ((0, [1, 0.853553, 0.5, 0.146447]), (1, [1, 0.5])):
        method.grow(info(index))
        [phase] = method.phases(info(index))
        [group] = phase.optimizer().param_groups
        assert group["lr"] == 0.02 and group["weight_decay"] == 5e-4
        assert phase.passes == len(rates)
        assert [phase.rate(done, group) for done in range(phase.passes)] == pytest.approx(rates, abs=1e-6)
        names = set(method.trained())
        assert names == {
            *(f"adapters.{part}" for part in ("down", "down_bias", "up", "up_bias")),
            f"head.heads.{index}.weight",
        }


def test_as_published_the_next_task_goes_on_from_the_aligned_heads_and_decay_shrinks_them():
    second, last = (learned(upto, weight_decay=0.1, **PUBLISHED) for upto in (2, 3))
    old, new = second.aligned.heads[0].weight, last.head.heads[0].weight
    ratio = (new / old).flatten()
    assert torch.allclose(ratio, ratio[0].expand_as(ratio), atol=1e-4) and ratio[0] < 1 - 1e-3
    meant = learned(3, weight_decay=0.1)
    assert torch.equal(meant.head.heads[0].weight, learned(1, weight_decay=0.1).head.heads[0].weight)


def test_as_published_and_restored_it_goes_on_bit_for_bit():
    stream, whole, interrupted = toys.stream(TASKS), learned(**PUBLISHED), learned(2, **PUBLISHED)
    resumed = toys.method("ssiat", 3, align_samples=32, passes=1, later_passes=1, **PUBLISHED)
    for index in range(2):
        resumed.grow(stream.info(index))
    resumed.load_state({key: value.clone() for key, value in interrupted.state().items()})
    toys.learn(resumed, stream, start=2)
    assert toys.equal(whole.state(), resumed.state()) and set(whole.state()) == set(resumed.state())


def test_what_it_costs_and_keeps():
    """Of 24 and 36 images in the first two tasks; one pass each, forward and backward."""
    keeps = "one Gaussian of features per class"
    for options, statistics, kept in (
        ({}, (24, 72), keeps), (PUBLISHED, (24, 108), keeps), ({"shift": False}, (24, 36), keeps),
        ({"align_passes": 0}, (0, 0), ""),
    ):  # fmt: skip
        method = toys.method("ssiat", 3, passes=1, later_passes=1, align_samples=8, **options)
        trainers = toys.learn(method, toys.stream(TASKS), upto=2)
        for index, images in enumerate((24, 36)):
            assert method.statistics_images(info(index), images) == statistics[index]
            assert trainers[index].images_seen == images + statistics[index]
            assert method.forwards(info(index), images, True) == 2 * images + statistics[index]
        assert method.keeps == kept and method.prediction_passes == 1
    extra, tokens = learned(2).extra(), 5
    assert extra.image == tokens * 2 * (4 * 32 + 4 + 32 * 4 + 32)
    assert extra.task == 5 * 5 * 32 * 32 * (32 / 2 + 3 * 5)
    assert learned(2).state()["gaussians.factors"].shape == (5, 32 * 33 // 2)
