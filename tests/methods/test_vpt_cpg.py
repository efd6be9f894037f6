"""VPT-CPG: what old images are given, what balance and noise reach, and the options of the public code."""

import pytest
import torch
import toys
from cl_bench.methods.vpt_cpg import METHOD as CPG
from lessons import TASKS, after
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.errors import InputError
from cl_bench.training.trainer import Trainer

IMAGES = torch.randn(7, 3, 16, 16, generator=torch.Generator().manual_seed(1))
EXACT = {"eta1": 1.0, "eta2": 1.0}


def routed(method: CPG, images: torch.Tensor = IMAGES) -> list[tuple[torch.Tensor, ...]]:
    """Queries (B, D), gates (B, E) and prompts (B, M, D) of images in every block."""
    found = []

    def see(l, q, g, load):
        found.append((q, g, torch.einsum("be,emd->bmd", g, method.P[l])))

    with torch.no_grad():
        method.backbone.features(images, method.prompts.watched(see, noise=False))
    return found


def task_images(index: int) -> Batch:
    [batch] = toys.stream(TASKS).task(index).plain(1000)
    return batch


def test_prompts_whose_queries_and_gates_span_one_direction_stay_as_they_were():
    first, last = (after(upto, "vpt-cpg", **EXACT) for upto in (1, 3))
    q, g, P = routed(first)[0]  # in block 0 the class token is the same for all images
    assert torch.equal(q, q[:1].expand_as(q))
    _, later_g, later_P = routed(last)[0]
    assert torch.allclose(later_g, g, atol=1e-5) and torch.allclose(later_P, P, atol=1e-4)
    for name in ("W_g", "P"):
        moved = getattr(last.prompts, name)[0] - getattr(first.prompts, name)[0]
        assert moved.abs().max() > 1e-3, name
    free = after(3, "vpt-cpg", eta1=0.0, eta2=0.0)
    assert not torch.allclose(routed(free)[0][2], P, atol=1e-2)


def test_routers_and_experts_move_inside_the_null_spaces_alone():
    before, method = (
        after(1, "vpt-cpg", **EXACT, nsp_norm="none"),
        after(2, "vpt-cpg", **EXACT, nsp_norm="none"),
    )
    R1, R2 = method.diagnostics()["R1"], method.diagnostics()["R2"]
    assert before.diagnostics().keys() == {"R1", "R2"} - {"R1", "R2"} and len(R1) == len(R2) == 2
    for l in range(2):
        for name, C, R in (("W_g", before.C1, R1), ("P", before.C2, R2)):
            moved = (getattr(method.prompts, name)[l] - getattr(before.prompts, name)[l]).detach().double()
            vectors = torch.linalg.eigh(C[l]).eigenvectors
            inside, outside = vectors[:, : R[l]], vectors[:, R[l] :]
            moved = moved.flatten(1)
            assert outside.shape[1] and (outside.T @ moved).norm() < 1e-5 * moved.norm()
            assert (inside.T @ moved).norm() > 0.99 * moved.norm()


def test_second_moments_are_those_of_every_earlier_tasks_images():
    one, two = after(1, "vpt-cpg"), after(2, "vpt-cpg")
    for method, index, C in ((one, 0, (one.C1, one.C2)), (two, 1, (two.C1 - one.C1, two.C2 - one.C2))):
        for l, (q, g, _) in enumerate(routed(method, task_images(index).images)):
            for kept, X in zip(C, (q.double(), g.double()), strict=True):
                assert torch.allclose(kept[l], X.T @ X / len(X), atol=1e-5)
    assert torch.equal(after(3, "vpt-cpg").C1, two.C1)  # nothing follows the last task


def test_batches_weigh_the_same_as_published_whatever_their_size():
    method, task = toys.method("vpt-cpg", 3, cov_norm="batches"), toys.stream(TASKS).task(0)
    method.grow(task)
    method.statistics_batch = 20  # of 24
    method.end_task(task, Trainer(0))
    q = routed(method, task_images(0).images)[1][0].double()
    assert torch.allclose(method.C1[1], q[:20].T @ q[:20] / 20 + q[20:].T @ q[20:] / 4, atol=1e-5)


def test_the_loss_is_of_the_tasks_own_classes_and_of_what_is_uneven():
    method, task = after(1, "vpt-cpg", routing_noise="never_asis", balance=0.7), toys.stream(TASKS).task(1)
    method.grow(task)
    batch = task_images(1)
    z = method.backbone.features(batch.images, method.prompts) @ method.head.heads[1].weight.T
    expected = F.cross_entropy((z + method.head.heads[1].bias) / 4.0, batch.labels - 2)
    for _, g, _ in routed(method, batch.images):
        for v in (g.sum(0), (g > 0).sum(0).float()):
            expected = expected + 0.7 / 2 * v.var() / v.mean() ** 2
    assert method.loss(batch, task).item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_first_step_tries_all_experts_with_noise_and_without_it_the_first_ones_alone():
    step = {"passes": 1, "batch": 1000, "weight_decay": 0.0}
    for noise in ("training", "never_asis"):
        start, method = (after(upto, "vpt-cpg", routing_noise=noise, **step) for upto in (0, 1))
        moved = (method.P != start.P).flatten(2).any(2).int()  # experts of each block
        first = torch.tensor([[1, 1, 0, 0, 0, 0]] * 2, dtype=torch.int32)
        assert torch.equal(moved, torch.ones_like(first) if noise == "training" else first)
        assert bool(method.prompts.W_n.any()) == (noise == "training")
        assert method.prompts.W_n.requires_grad == (noise == "training")


def test_what_noise_needs_is_used_in_learning_alone():
    method = after(2, "vpt-cpg")
    before = method.predict(Batch(IMAGES))
    with torch.no_grad():
        method.prompts.W_n.add_(3.0)
    assert torch.equal(method.predict(Batch(IMAGES)), before)


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="top_k=7 of experts=6"):
        toys.method("vpt-cpg", 3, top_k=7)
    with pytest.raises(InputError, match="reads its class token"):
        toys.method("vpt-cpg", 3, toys.backbone(global_pool="avg", class_token=False))
    every = toys.method("vpt-cpg", 3, top_k=6, experts=6)
    every.grow(toys.stream(TASKS).info(0))
    assert torch.isfinite(every.loss(task_images(0), toys.stream(TASKS).info(0)))
