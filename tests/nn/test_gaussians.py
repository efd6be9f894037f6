"""One Gaussian per class: positive definite, with the moments of its features."""

import torch

from cl_bench.nn import gaussians


def test_a_gaussian_is_positive_definite_and_its_draws_have_its_moments():
    x = (
        torch.randn(20, 12, generator=torch.Generator().manual_seed(0)) * 3 + 1
    )  # fewer images than twice the width
    mean, packed = gaussians.fit(x[:5], 1e-4)
    factor = gaussians.unpack(packed[None], 12)[0].double()
    assert torch.linalg.eigvalsh(factor @ factor.T).min() >= 1e-4 * (1 - 1e-2)  # stored in float32
    mean, packed = gaussians.fit(x, 1e-4)
    count = 100_000
    draws = gaussians.sample(
        mean.expand(2, -1), packed.expand(2, -1), count, torch.Generator().manual_seed(1)
    )
    assert draws.shape == (2, count, 12) and not torch.equal(draws[0], draws[1])
    expected = torch.cov(x.T.double()) + 1e-4 * torch.eye(12)
    error = expected.diagonal().sqrt() / count**0.5
    assert ((draws[0].double().mean(0) - x.double().mean(0)).abs() < 5 * error).all()
    assert torch.allclose(torch.cov(draws[0].T.double()), expected, atol=0.15)
    single, packed = gaussians.fit(x[:1], 1e-4)
    assert torch.equal(single, x[0]) and torch.allclose(
        gaussians.unpack(packed[None], 12)[0], 1e-2 * torch.eye(12), atol=1e-6
    )


def test_more_classes_than_are_unpacked_at_a_time_draw_the_same(monkeypatch):
    means, packed = torch.randn(5, 3), torch.rand(5, 6)
    whole = gaussians.sample(means, packed, 4, torch.Generator().manual_seed(0))
    assert torch.allclose(whole[4], means[4] + (whole[4] - means[4]))
    monkeypatch.setattr(gaussians, "CLASSES", 2)
    assert gaussians.sample(means, packed, 4, torch.Generator().manual_seed(0)).shape == whole.shape
