"""Centroids of classes: groups that k-means finds, what is drawn around them, what keeps features apart."""

import math

import pytest
import torch

from cl_bench.nn.centroids import ClassCentroids, k_means
from cl_bench.nn.contrast import contrast

CPU = torch.device("cpu")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def known(*classes: list[list[float]], centroids: int = 2, ridge: float = 1e-8) -> ClassCentroids:
    """The centroids of classes with these features."""
    made = ClassCentroids(len(classes[0][0]), centroids, ridge, 0, CPU)
    made.grow(len(classes))
    labels = torch.arange(len(classes)).repeat_interleave(torch.tensor([len(own) for own in classes]))
    made.describe(torch.tensor([row for own in classes for row in own]), labels)
    return made


def test_k_means_finds_groups_that_lie_apart_whatever_its_seed():
    centers = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    x = centers.repeat(10, 1) + 0.5 * torch.randn(30, 2, generator=generator())
    for seed in range(5):
        groups = k_means(x, 3, seed)
        assert all(len(groups[start::3].unique()) == 1 for start in range(3)) and len(groups.unique()) == 3
    assert torch.equal(k_means(x, 3, 1), k_means(x, 3, 1))


def test_of_groups_as_k_means_leaves_them_every_feature_is_nearest_to_the_mean_of_its_own():
    x = torch.randn(40, 3, generator=generator())
    groups = k_means(x, 5, 0)
    assert groups.unique().tolist() == [0, 1, 2, 3, 4]
    means = torch.stack([x[groups == group].mean(0) for group in range(5)])
    assert torch.equal(torch.cdist(x, means).argmin(1), groups)


@pytest.mark.parametrize(("x", "most"), [([[1.0], [1.0], [1.0]], 1), ([[1.0], [2.0], [2.0]], 2)])
def test_there_are_no_more_groups_than_different_features(x, most):
    assert k_means(torch.tensor(x), 3, 0).unique().tolist() == [*range(most)]


def test_every_group_has_its_mean_its_biased_variance_and_its_size():
    """Around 0 and 10 in the first class; one feature in the second."""
    made = known([[0.0], [10.0], [2.0], [14.0], [1.0]], [[5.0]])
    columns = (made.means[0, :, 0], made.variances[0, :, 0], made.sizes[0])
    found = sorted(zip(*(column.tolist() for column in columns), strict=True))
    assert found == [(1.0, pytest.approx(2 / 3), 3), (12.0, pytest.approx(4.0), 2)]
    assert made.sizes[1].tolist() == [1, 0] and made.means[1, 0].item() == 5
    assert sorted(made.centers(2)[:, 0].tolist()) == [1, 5, 12]
    assert sorted(made.centers(1)[:, 0].tolist()) == [1, 12]
    before = made.means.clone()
    made.describe(torch.tensor([[7.0]]), torch.tensor([1]))
    assert torch.equal(made.means[0], before[0]) and made.means[1, 0].item() == 7


def test_a_pass_draws_as_many_of_every_group_and_batches_are_its_first():
    made = known([[0.0], [0.1], [10.0], [10.1]], [[20.0], [20.1], [30.0], [30.1]])
    batches = list(made.draws(5, 4, generator()))
    assert [len(features) for features, _ in batches] == [5] * 4
    features, labels = (torch.cat(part) for part in zip(*batches, strict=True))
    tens = features[:, 0].div(10).round().long()
    assert tens.bincount().tolist() == [5] * 4 and labels.tolist() == (tens // 2).tolist()
    assert len(batches[0][1].unique()) == 2
    fewer = list(made.draws(5, 2, generator()))
    assert len(fewer) == 2 and all(torch.equal(a[1], b[1]) for a, b in zip(fewer, batches, strict=False))


def test_draws_vary_as_the_groups_feature_by_feature():
    made = known([[0.0, 0.0], [2.0, 6.0]], centroids=1, ridge=3.0)
    [(features, _)] = made.draws(50_000, 1, generator())
    assert torch.allclose(features.mean(0), torch.tensor([1.0, 3.0]), atol=0.1)
    assert torch.allclose(features.T.cov(), torch.diag(torch.tensor([1.0 + 3, 9.0 + 3])), atol=0.3)


def test_groups_of_one_feature_are_left_out_where_the_class_has_others():
    made = known([[0.0], [1.0], [50.0]], [[80.0], [90.0]])
    assert made.drawn().sum(1).tolist() == [1, 2]
    features, labels = (torch.cat(part) for part in zip(*made.draws(4, 3, generator()), strict=True))
    assert labels.bincount().tolist() == [4, 8] and not ((features > 40) & (features < 60)).any()
    assert torch.allclose(
        features[labels == 1, 0].sort().values, torch.tensor([80.0] * 4 + [90.0] * 4), atol=0.1
    )


def test_the_contrast_is_the_cross_entropy_of_every_row_with_itself():
    """Rows (1, 0), (0, 2) and (0, 1): products 1 0 0, 0 4 2, 0 2 1."""
    centers, features = torch.tensor([[1.0, 0.0]], requires_grad=True), torch.tensor([[0.0, 2.0], [0.0, 1.0]])
    features.requires_grad_(True)
    found = contrast(centers, features, 0.5)
    expected = [-(own / 0.5) + math.log(sum(math.exp(p / 0.5) for p in row)) for own, row in (
        (1, (1, 0, 0)), (4, (0, 4, 2)), (1, (0, 2, 1)),
    )]  # fmt: skip
    assert found.item() == pytest.approx(sum(expected) / 3, rel=1e-5) and found.item() > 0
    found.backward()
    assert centers.grad is None and features.grad.any()
    apart = contrast(torch.zeros(0, 2), torch.eye(2) * 9, 0.8).item()
    assert 0 <= apart < contrast(torch.zeros(0, 2), torch.eye(2), 0.8).item()
