"""Nullities, projections and the projected Adam, worked out by hand."""

import numpy as np
import pytest
import torch

from cl_bench.nn.heads import TaskHeads
from cl_bench.nn.projection import ProjectedAdam, fused_projection, null_projector, nullity


def covariance(n: int, seed: int = 0) -> torch.Tensor:
    basis = torch.linalg.qr(
        torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    )[0]
    return basis @ torch.diag(torch.exp(-torch.arange(n, dtype=torch.float64) / 3)) @ basis.T


@pytest.mark.parametrize("eta", [0.0, 0.9, 1.0])
def test_the_fused_projection_has_two_eigenvalues(eta):
    B, R = fused_projection(covariance(20), eta, "official", "fro")
    expected = sorted([1 - eta] * (20 - R) + [eta / R**0.5 + 1 - eta] * R)
    assert torch.allclose(B, B.T)
    assert np.allclose(torch.linalg.eigvalsh(B).numpy(), expected)
    if eta == 1:
        assert torch.linalg.norm(B).item() == pytest.approx(1.0)


def test_the_controls_shrink_as_much_as_a_null_direction():
    C, generator = covariance(20), torch.Generator().manual_seed(3)
    null, R = fused_projection(C, 0.9, "official", "fro")
    iso, _ = fused_projection(C, 0.9, "official", "fro", "iso")
    random, _ = fused_projection(C, 0.9, "official", "fro", "random", generator)
    assert torch.allclose(iso, torch.eye(20, dtype=torch.float64) * (0.9 / R**0.5 + 0.1))
    assert torch.allclose(torch.linalg.eigvalsh(random), torch.linalg.eigvalsh(null))
    assert not torch.allclose(random, null, atol=1e-2)


@pytest.mark.parametrize(
    ("spectrum", "official", "paper"),
    [
        ((10, 1, 0.5, 0.1), 3, 2),
        ((10, 8, 0.1, 0.05), 2, 1),
        (1 / np.arange(1, 769), 750, 766),
        (np.exp(-np.arange(1, 769) / 40), 739, 766),
    ],
)
def test_nullities_worked_out_by_hand(spectrum, official, paper):
    assert nullity(np.array(spectrum), "official") == official
    assert nullity(np.array(spectrum), "paper") == paper


def test_two_singular_values_have_no_corner():
    with pytest.raises(ValueError, match="at least 3"):
        nullity(np.array([2.0, 1.0]), "paper")


@pytest.mark.parametrize("n", [8, 40])
def test_exact_zeros_behind_one_direction_are_all_null(n):
    assert nullity(np.array([2.0, *[0.0] * (n - 1)]), "official") == n - 1
    C = torch.zeros(n, n, dtype=torch.float64)
    C[0, 0] = 2.0
    assert torch.equal(null_projector(C, "official")[0], torch.diag((C.diagonal() == 0).double()))


def test_adams_moments_see_the_unprojected_gradient_and_only_the_update_is_projected():
    B1, B2 = covariance(6).float(), covariance(3, 1).float()
    P = torch.nn.Parameter(torch.randn(3, 6))
    twin = torch.nn.Parameter(P.detach().clone())
    optimizer = ProjectedAdam([P], [(P, lambda U: B2 @ U @ B1)], lr=0.1, weight_decay=0.01)
    m, v, expected = torch.zeros(3, 6), torch.zeros(3, 6), twin.detach().clone()
    for step in range(1, 4):
        gradient = torch.randn(3, 6, generator=torch.Generator().manual_seed(step))
        P.grad = gradient.clone()
        optimizer.step()
        g = gradient + 0.01 * expected
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        U = -0.1 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
        expected = expected + B2 @ U @ B1
        assert torch.allclose(P.detach(), expected, atol=1e-6)
    projected_gradient = torch.nn.Parameter(twin.detach().clone())
    wrong = torch.optim.Adam([projected_gradient], lr=0.1, weight_decay=0.01)
    for step in range(1, 4):
        projected_gradient.grad = B2 @ torch.randn(3, 6, generator=torch.Generator().manual_seed(step)) @ B1
        wrong.step()
    assert not torch.allclose(projected_gradient, P, atol=1e-2)


def test_heads_start_as_published():
    heads = TaskHeads(32)
    generator = torch.Generator().manual_seed(0)
    for classes in (3, 3, 3):
        heads.grow(classes, generator, "warm", torch.device("cpu"))
        if len(heads.heads) == 1:
            assert heads.heads[0].bias.abs().max() == 0 and heads.heads[0].weight.std() < 0.03
            with torch.no_grad():
                heads.heads[0].bias += 1.0  # stands for training
    assert torch.equal(heads.heads[1].weight, heads.heads[0].weight) and torch.equal(
        heads.heads[1].bias, heads.heads[0].bias
    )
    assert not torch.equal(heads.heads[2].weight, heads.heads[0].weight)
    assert heads.heads[2].weight.abs().max() <= 32**-0.5
    assert [p.requires_grad for head in heads.heads for p in head.parameters()] == [False] * 4 + [True] * 2
