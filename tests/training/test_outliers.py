"""Virtual outliers: where they lie, which are kept, and what they ask of scores."""

import math

import pytest
import torch

from cl_bench.nn.neighbors import kth_distances
from cl_bench.training import outliers
from cl_bench.training.outliers import OutlierConfig, boundary_of, in_batches, regularization
from cl_bench.training.outliers import virtual_outliers as made

KEY = (1, "outliers", 0, 3)
PUBLISHED = outliers.AS_PUBLISHED


def features(count: int = 30, width: int = 6) -> torch.Tensor:
    return 3 * torch.randn(count, width, generator=torch.Generator().manual_seed(0))


def unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=1, keepdim=True)


def test_the_boundary_are_the_features_whose_direction_is_farthest_from_their_neighbors():
    degrees = [0.0, 1.0, 2.0, 90.0, 91.0, 200.0]
    lengths = [1.0, 5.0, 2.0, 3.0, 1.0, 0.5]  # which do not matter
    f = torch.tensor([[r * math.cos(math.radians(a)), r * math.sin(math.radians(a))]
                      for a, r in zip(degrees, lengths, strict=True)])  # fmt: skip
    # the second neighbor besides itself is 2, 1, 2, 88, 89 and 110 degrees away
    assert boundary_of(f, OutlierConfig(neighbors=3, boundary=3)).tolist() == [5, 4, 3]


def test_outliers_are_noisy_copies_of_the_boundary_with_noise_of_their_own():
    f, config = features(), OutlierConfig(neighbors=4, boundary=5, candidates=8, noise=1e-3, outliers=10)
    found = made(f, 2, config, KEY)
    distances = torch.cdist(found, f[boundary_of(f, config)])
    assert len(found) == len(found.unique(dim=0)) == 20
    assert float(distances.min(dim=1).values.max()) < 6e-3
    offsets = found - f[boundary_of(f, config)][distances.argmin(dim=1)]
    assert len((offsets / 1e-4).round().unique(dim=0)) == 20


@pytest.mark.parametrize("length", ["unit", "own"])
def test_those_copies_are_kept_that_are_farthest_from_their_neighbors(length, monkeypatch):
    f = features()
    config = OutlierConfig(
        neighbors=3, boundary=4, candidates=5, noise=0.5, outliers=3, outlier_length=length,
        outlier_order="farthest",
    )  # fmt: skip
    noise = torch.randn(4, 5, 6)
    monkeypatch.setattr(outliers, "normal", lambda shape, key: noise)
    copies = torch.cat([f[center] + 0.5 * noise[n] for n, center in enumerate(boundary_of(f, config))])
    compared = unit(copies) if length == "unit" else copies
    third = (compared[:, None] - unit(f)[None]).square().sum(2).sqrt().sort(dim=1).values[:, 2]
    assert torch.allclose(made(f, 2, config, KEY), copies[third.argsort(descending=True)[:6]])


def test_outliers_come_shuffled_unless_the_farthest_are_to_come_first():
    f, sizes = features(), {"neighbors": 3, "boundary": 4, "candidates": 9, "outliers": 15}
    first, mixed = (
        made(f, 2, OutlierConfig(**sizes, outlier_order=order), KEY) for order in ("farthest", "shuffled")
    )
    far = kth_distances(unit(first), unit(f), 3)
    assert torch.equal(far, far.sort(descending=True).values)
    assert not torch.equal(first, mixed)
    assert torch.equal(first.unique(dim=0), mixed.unique(dim=0))  # which sorts them
    assert torch.equal(mixed, made(f, 2, OutlierConfig(**sizes), KEY))
    assert not torch.equal(mixed, made(f, 2, OutlierConfig(**sizes), (*KEY[:3], 4)))


@pytest.mark.parametrize(("classes", "kept", "vectors"), [(10, 400, 8), (20, 800, 16)])
def test_the_published_outliers_are_a_few_vectors_around_zero_fifty_times_each(classes, kept, vectors):
    f = features(80) + 100
    found = made(f, classes, OutlierConfig(**PUBLISHED), KEY)
    assert found.shape == (kept, 6) and float(found.abs().max()) < 1
    values, counts = found.unique(dim=0, return_counts=True)
    assert len(values) == vectors and set(counts.tolist()) == {50}
    assert torch.equal(found[::50].repeat_interleave(50, dim=0), found)  # one after the other


def test_each_published_fault_can_be_repaired_by_itself():
    f, sizes = features(80) + 100, {"outliers": 7, "candidates": 40, "noise": 0.5}

    def found(**changes):
        return made(f, 10, OutlierConfig(**{**PUBLISHED, **sizes, **changes}), KEY)

    around_features = found(outlier_center="boundary")
    assert float(around_features.mean()) > 90 and len(around_features.unique(dim=0)) == 70
    own_noise = found(outlier_noise="each")
    assert float(own_noise.mean()) < 1 and len(own_noise.unique(dim=0)) == 70
    assert len(found().unique(dim=0)) == 2


def test_a_task_with_few_images_has_fewer_outliers_and_neighbors():
    f = features(3)
    found = made(f, 10, OutlierConfig(candidates=4), KEY)
    assert len(found) == 3 * 4
    assert torch.equal(boundary_of(f, OutlierConfig()), boundary_of(f, OutlierConfig(neighbors=3)))


@pytest.mark.parametrize(
    ("images", "batch", "count", "shares"),
    [
        (8, 4, 10, [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]),
        (9, 4, 10, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),  # the rest is left
        (6, 2, 2, [[0], [1], [0]]),  # fewer than batches: they come again
    ],
)
def test_batches_have_equal_shares_of_the_outliers(images, batch, count, shares):
    f, labels = torch.arange(float(images))[:, None], torch.arange(images)
    found = list(in_batches(f, labels, torch.arange(float(count))[:, None], batch))
    assert [samples.outliers[:, 0].tolist() for samples in found] == shares
    assert torch.equal(torch.cat([samples.features for samples in found]), f)
    assert torch.cat([samples.labels for samples in found]).tolist() == labels.tolist()
    assert [len(samples) for samples in found[:-1]] == [batch] * (len(found) - 1)


def test_scores_within_both_thresholds_cost_nothing_and_others_the_huber_loss():
    config = OutlierConfig(tau_id=-10.0, tau_out=-3.0)
    high, low = torch.tensor([[10.0, 10.0], [12.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    assert regularization(high, low, config).item() == 0
    # logsumexp of one score is it: 0.5 and 4 short of 10, then 2 above 3
    z_id, z_out = torch.tensor([[9.5], [6.0]]), torch.tensor([[5.0]])
    expected = (0.5 * 0.5**2 + (4 - 0.5)) / 2 + (2 - 0.5)
    assert regularization(z_id, z_out, config).item() == pytest.approx(expected)
