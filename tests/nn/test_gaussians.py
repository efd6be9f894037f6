"""One Gaussian per class: positive definite, with the moments of its features."""

import math

import pytest
import torch

from cl_bench.nn import gaussians
from cl_bench.nn.gaussians import ClassGaussians, closeness

CPU = torch.device("cpu")


def of_classes(*features: torch.Tensor, ridge: float = 1e-4) -> ClassGaussians:
    """The Gaussians of classes with these features, (n, D) each."""
    made = ClassGaussians(features[0].shape[1], ridge, CPU)
    made.grow(len(features))
    labels = torch.arange(len(features)).repeat_interleave(torch.tensor([len(own) for own in features]))
    made.describe(torch.cat(features), labels)
    return made


def covariances(made: ClassGaussians) -> torch.Tensor:
    factors = gaussians.unpack(made.factors, made.means.shape[1]).double()
    return factors @ factors.mT


def test_a_gaussian_is_positive_definite_and_its_draws_have_its_moments():
    x = (
        torch.randn(20, 12, generator=torch.Generator().manual_seed(0)) * 3 + 1
    )  # fewer images than twice the width
    assert torch.linalg.eigvalsh(covariances(of_classes(x[:5]))).min() >= 1e-4 * (1 - 1e-2)  # in float32
    count = 100_000
    draws = of_classes(x, x).sample(count, torch.Generator().manual_seed(1))
    assert draws.shape == (2, count, 12) and not torch.equal(draws[0], draws[1])
    expected = torch.cov(x.T.double()) + 1e-4 * torch.eye(12)
    error = expected.diagonal().sqrt() / count**0.5
    assert ((draws[0].double().mean(0) - x.double().mean(0)).abs() < 5 * error).all()
    assert torch.allclose(torch.cov(draws[0].T.double()), expected, atol=0.15)
    single = of_classes(x[:1])
    assert torch.equal(single.means[0], x[0]) and torch.allclose(
        gaussians.unpack(single.factors, 12)[0], 1e-2 * torch.eye(12), atol=1e-6
    )


def test_batches_of_draws_are_the_first_of_a_shuffled_pass_in_which_classes_are_equally_often():
    made = of_classes(torch.zeros(2, 3), torch.full((2, 3), 9.0), torch.full((2, 3), 20.0))
    batches = list(made.draws(4, 3, torch.Generator().manual_seed(0)))
    assert [len(features) for features, _ in batches] == [4, 4, 4]
    features, labels = (torch.cat(part) for part in zip(*batches, strict=True))
    assert labels.bincount().tolist() == [4, 4, 4] and len(batches[0][1].unique()) > 1
    assert torch.allclose(features, made.means[labels], atol=0.1) and torch.equal(
        made.centers(2), made.means[:2]
    )
    fewer = list(made.draws(4, 1, torch.Generator().manual_seed(0)))
    assert len(fewer) == 1 and torch.equal(fewer[0][0], batches[0][0])


def test_more_classes_than_are_unpacked_at_a_time_draw_the_same(monkeypatch):
    made = of_classes(*torch.randn(5, 8, 3))
    noise = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    whole = made.sample(4, torch.Generator().manual_seed(0))
    factors = gaussians.unpack(made.factors, 3)
    assert torch.allclose(whole, made.means[:, None] + noise @ factors.mT, atol=1e-6)
    monkeypatch.setattr(gaussians, "CLASSES", 2)
    parts = made.sample(4, torch.Generator().manual_seed(0))
    assert parts.shape == whole.shape
    # each part draws its own noise: the first two classes
    own = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(parts[:2], made.means[:2, None] + own @ factors[:2].mT, atol=1e-6)


def test_two_classes_have_the_mean_and_covariance_of_their_own_features():
    """Of (0, 0), (2, 0), (4, 6): mean (2, 2), deviations squared 8 and 24, their product 12, over n - 1."""
    one, other = torch.tensor([[0.0, 0.0], [2.0, 0.0], [4.0, 6.0]]), torch.tensor([[1.0, 5.0], [1.0, 7.0]])
    made = of_classes(one, other, ridge=0.5)
    assert made.means.tolist() == [[2.0, 2.0], [1.0, 6.0]] and made.factors.shape == (2, 3)
    expected = torch.tensor([[[4.5, 6.0], [6.0, 12.5]], [[0.5, 0.0], [0.0, 2.5]]]).double()
    assert torch.allclose(covariances(made), expected, atol=1e-5)


def test_new_classes_and_classes_without_features_leave_the_others_as_they_are():
    made = of_classes(torch.randn(6, 4), torch.randn(6, 4))
    before = made.means.clone(), made.factors.clone()
    made.grow(2)
    assert made.means.shape == (4, 4) and made.factors.shape == (4, 10)
    made.describe(torch.randn(5, 4), torch.full((5,), 3))  # nothing of class 2
    assert torch.equal(made.means[:2], before[0]) and torch.equal(made.factors[:2], before[1])
    assert made.means[2].eq(0).all() and made.means[3].ne(0).any()


def test_near_features_count_more_for_a_mean_and_far_ones_all_alike():
    """At distances 0 and 2 with sigma 1 they count 1 and e^-2; at 100 and 200 the least of all is left."""
    features = torch.tensor([[0.0, 0.0], [0.0, 2.0]])
    near, far = closeness(torch.tensor([[0.0, 0.0], [0.0, -100.0]]), features, 1.0)
    share = (math.exp(-2) + 1e-5) / (1 + math.exp(-2) + 2e-5)
    assert near.tolist() == pytest.approx([1 - share, share])
    assert far.tolist() == pytest.approx([0.5, 0.5])
