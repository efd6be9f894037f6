"""CODA-Prompt: weights by hand, orthogonal starts, frozen slices, the learning rate's course."""

import math

import pytest
import torch
import toys
from torch.nn import functional as F

from cl_bench.errors import InputError, RunFailed
from cl_bench.nn.subspaces import orthonormal_beside

TASKS = [[2, 0], [1, 3, 4], [5, 6]]


def after(upto, **options):
    method = toys.method("coda-prompt", 3, **options)
    toys.learn(method, toys.stream(TASKS), upto=upto)
    return method


def test_weights_are_cosines_of_the_gated_query_with_the_keys():
    method = after(2, components=9)
    q = torch.randn(5, 32)
    A, K = (torch.cat([part[1] for part in parts]) for parts in (method.A, method.K))
    expected = torch.stack(
        [F.cosine_similarity(q * a, k[None], dim=1) for a, k in zip(A, K, strict=True)], dim=1
    )
    found = method.weights(q, 1)
    assert (
        found.shape == (5, 6) and torch.allclose(found, expected, atol=1e-5) and found.abs().max() <= 1 + 1e-6
    )
    assert torch.allclose(method.weights(3 * q, 1), found, atol=1e-5)


def test_the_prompt_is_the_weighted_sum_half_keys_half_values():
    method, q = after(2), torch.randn(3, 32)
    K, V = method.prefixes(q).blocks[0]
    P = torch.cat([part[0] for part in method.P]).unflatten(1, (4, 32))
    p = torch.einsum("bn,nld->bld", method.weights(q, 0), P)
    assert torch.allclose(K, p[:, :2], atol=1e-5) and torch.allclose(V, p[:, 2:], atol=1e-5)


def test_a_new_slice_is_orthonormal_and_orthogonal_to_all_earlier_rows():
    drawn, trained = torch.randn(2, 3, 16), torch.randn(2, 4, 16)  # training bends earlier rows
    found = orthonormal_beside(drawn, trained, "qr")
    assert (
        torch.allclose(found @ found.mT, torch.eye(3).expand(2, -1, -1), atol=1e-5)
        and (found @ trained.mT).abs().max() < 1e-5
    )
    classical = orthonormal_beside(drawn, trained, "classical")
    assert (
        torch.allclose(classical.norm(dim=2), torch.ones(2, 3))
        and (classical @ trained.mT).abs().max() > 1e-2
    )
    first = orthonormal_beside(drawn, trained[:, :0], "classical")
    assert torch.allclose(first @ first.mT, torch.eye(3).expand(2, -1, -1), atol=1e-5)


def test_slices_start_beside_the_trained_ones_and_old_ones_stay_bit_for_bit():
    method, stream = toys.method("coda-prompt", 3), toys.stream(TASKS)
    toys.learn(method, stream, upto=1)
    before = [part.detach().clone() for parts in (method.A, method.K, method.P) for part in parts]
    task = stream.task(1)
    method.grow(task)
    for parts in (method.A, method.K, method.P):
        assert (parts[1] @ parts[0].mT).abs().max() < 1e-5
    again = toys.method("coda-prompt", 3)
    toys.learn(again, stream, upto=3)
    now = [parts[0].detach() for parts in (again.A, again.K, again.P)]
    assert all(torch.equal(a, b) for a, b in zip(before, now, strict=True))
    assert [p.requires_grad for p in again.A] == [False, False, True]


def test_components_are_shared_out_among_the_tasks():
    assert after(1, components=8).A[0].shape == (2, 2, 32)  # 8 // 3
    with pytest.raises(InputError, match="components=2 are too few for 3 tasks"):
        toys.method("coda-prompt", 3, components=2)
    with pytest.raises(InputError, match="cannot be orthogonal in 32 dimensions; give at most 32"):
        toys.method("coda-prompt", 3, components=99)
    with pytest.raises(InputError, match="layers=3"):
        toys.method("coda-prompt", 3, layers=3)


def test_the_learning_rate_falls_along_a_cosine_to_a_sixtieth():
    lagged = toys.method("coda-prompt", 3, passes=20)
    assert lagged.rate(0) == lagged.rate(1) == 1.0 and lagged.rate(19) == pytest.approx(
        math.cos(0.495 * math.pi * 18 / 19)
    )
    method = toys.method("coda-prompt", 3, passes=20, lr_schedule="unlagged")
    assert method.rate(0) == 1.0 and method.rate(19) == pytest.approx(
        math.cos(0.495 * math.pi)
    ) == pytest.approx(0.0157, abs=1e-4)
    assert toys.method("coda-prompt", 3, passes=1).rate(0) == 1.0


def test_the_penalty_is_zero_for_orthonormal_rows_and_by_hand_otherwise():
    method = toys.method("coda-prompt", 3, components=6, ortho_mu=0.5)
    task = toys.stream(TASKS).task(0)
    method.grow(task)
    assert method.penalty().item() == pytest.approx(0.0, abs=1e-6)
    with torch.no_grad():
        method.A[0][0] *= 2  # Gram matrix 4 I: entries (3, 0, 0, 3), mean square 4.5
    assert method.penalty().item() == pytest.approx(4.5, abs=1e-4)
    batch = next(task.plain(6))
    free = toys.method("coda-prompt", 3, components=6)
    free.grow(task)
    free.load_state(method.state())
    assert (method.loss(batch, task) - free.loss(batch, task)).item() == pytest.approx(2.25, abs=1e-4)


def test_dropping_the_last_batch_is_an_option_and_a_task_smaller_than_a_batch_fails_with_a_reason():
    stream = toys.stream(TASKS)
    whole, dropped = (
        toys.method("coda-prompt", 3, batch=10, passes=2),
        toys.method("coda-prompt", 3, batch=10, passes=2, drop_last=True),
    )
    assert [toys.learn(method, stream, upto=1)[0].images_seen for method in (whole, dropped)] == [48, 40]
    with pytest.raises(
        RunFailed, match="drop_last leaves nothing of task 1: 24 images, batch 25; give drop_last=off"
    ):
        after(1, batch=25, drop_last=True)


def test_the_length_of_its_prompts_is_recorded_for_every_block():
    lengths = after(2).diagnostics()["prompt_norm"]
    assert len(lengths) == 2 and min(lengths) > 0
