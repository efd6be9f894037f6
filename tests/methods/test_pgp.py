"""The invariants of VPT-PGP, worked out independently of its code."""

import pytest
import torch
import toys

from cl_bench.nn.subspaces import grown_basis

TASKS = [[2, 0], [1, 3, 4], [5, 6]]


def after(upto, name="vpt-pgp", **options):
    method = toys.method(name, 3, **options)
    toys.learn(method, toys.stream(TASKS), upto=upto)
    return method


def bases(method):
    return [M[:, M.any(0)] for M in method.subspaces.M]


def test_bases_are_orthonormal_nested_and_grow():
    one, two = bases(after(1, energy=0.9)), bases(after(2, energy=0.9))
    for M, later in zip(one, two, strict=True):
        assert torch.allclose(M.T @ M, torch.eye(M.shape[1], dtype=M.dtype), atol=1e-6)
        assert torch.allclose(later @ (later.T @ M), M, atol=1e-6)
        assert M.shape[1] <= later.shape[1] <= 31


@pytest.mark.parametrize(("energy", "rank"), [(0.0, 0), (0.4, 1), (0.5, 2), (0.9, 3), (1.0, 4)])
def test_the_rank_is_the_fewest_directions_that_reach_the_energy(energy, rank):
    # energies 25, 16, 9, 4, 1 of 55; with one direction always left free
    A = torch.diag(torch.tensor([25.0, 16, 9, 4, 1], dtype=torch.float64))
    assert grown_basis(torch.zeros(5, 0, dtype=torch.float64), A, energy).shape == (5, rank)


def test_what_the_old_basis_captures_counts():
    A = torch.diag(torch.tensor([25.0, 16, 9, 4, 1], dtype=torch.float64))
    old = torch.eye(5, dtype=torch.float64)[:, :2]
    assert grown_basis(old, A, 0.7).shape == (5, 2)  # 41 of 55 = 0.745 is there already
    grown = grown_basis(old, A, 0.8)
    assert grown.shape == (5, 3) and grown[2, 2].abs() == pytest.approx(1.0)


def test_the_projected_update_lies_outside_the_subspace_and_the_projected_gradient_under_adam_does_not():
    grad, update = after(2, energy=0.9), after(2, energy=0.9, pgp_stage="update")
    assert update.diagnostics()["update_inside_protected"] < 1e-4
    assert 1e-3 < grad.diagnostics()["update_inside_protected"] < 1.0


def test_with_plain_gradient_steps_both_stages_agree():
    method = after(1, energy=0.9)
    task = toys.stream(TASKS).task(1)
    method.grow(task)
    method.begin_task(task, None)
    batch = next(task.plain(20))
    method.loss(batch, task).backward()
    raw = method.P.grad.clone()
    method.after_backward(task)
    for layer, M in enumerate(bases(method)):
        M = M.float()
        assert torch.allclose(method.P.grad[layer], raw[layer] - raw[layer] @ M @ M.T, atol=1e-6)
        assert (method.P.grad[layer] @ M).abs().max() < 1e-5 * raw.abs().max() + 1e-7


@pytest.mark.parametrize("stage", ["grad", "update"])
def test_energy_0_is_vpt_seq_bit_for_bit(stage):
    free, seq = after(3, energy=0.0, pgp_stage=stage), after(3, "vpt-seq")
    assert torch.equal(free.P, seq.P) and torch.equal(free.head.heads[2].weight, seq.head.heads[2].weight)


OPTIONS = [{}, {"pgp_stage": "update"}, {"pgp_feat": "ln"}, {"pgp_include_prompt": True}, {"energy": 0.97}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_first_task_is_that_of_vpt_seq_and_the_second_is_not(options):
    assert torch.equal(after(1, **options).P, after(1, "vpt-seq").P)
    assert not torch.equal(after(2, **options).P, after(2, "vpt-seq").P)


def test_weight_decay_before_the_projection_is_projected_too():
    before = after(2, energy=0.9, weight_decay=0.5, pgp_wd="before")
    later = after(2, energy=0.9, weight_decay=0.5)
    first = after(1, energy=0.9, weight_decay=0.5, pgp_wd="before")
    assert torch.equal(first.P, after(1, energy=0.9, weight_decay=0.5).P) or torch.allclose(
        first.P, after(1, energy=0.9, weight_decay=0.5).P, atol=1e-5
    )
    assert before.diagnostics()["update_inside_protected"] < later.diagnostics()["update_inside_protected"]


def test_tokens_before_and_after_the_norm_span_different_bases():
    raw, normalized = after(1, energy=0.9), after(1, energy=0.9, pgp_feat="ln")
    assert not torch.allclose(raw.subspaces.M, normalized.subspaces.M, atol=1e-3)


def test_the_public_codes_rank_rules_by_hand():
    # of singular values 5, 4, 3, 2, 1 squares reach half of 55 with two, fourth powers half of 979 with one
    A = torch.diag(torch.tensor([25.0, 16, 9, 4, 1], dtype=torch.float64))
    none = torch.zeros(5, 0, dtype=torch.float64)
    ranks = {
        (e, r): grown_basis(none, A, 0.5, e, r).shape[1]
        for e in ("sigma2", "sigma4_asis")
        for r in ("geq", "lt_asis")
    }
    assert ranks == {
        ("sigma2", "geq"): 2,
        ("sigma2", "lt_asis"): 1,
        ("sigma4_asis", "geq"): 1,
        ("sigma4_asis", "lt_asis"): 0,
    }


def test_the_nsp_norm_scales_as_nsp2_does():
    from cl_bench.errors import InputError

    method = after(1, energy=0.9, pgp_stage="update", pgp_norm="nsp", eta=0.8)
    method.begin_task(None, None)
    U = torch.randn_like(method.P)
    for layer, M in enumerate(bases(method)):
        D, r = M.shape
        B = 0.8 * (torch.eye(D).double() - M @ M.T) / (D - r) ** 0.5 + 0.2 * torch.eye(D).double()
        assert torch.allclose(method.outside(U)[layer].double(), U[layer].double() @ B, atol=1e-5)
    with pytest.raises(InputError, match="pgp_norm=nsp needs pgp_stage=update"):
        after(1, pgp_norm="nsp")
