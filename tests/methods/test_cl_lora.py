"""CL-LoRA: what tasks share and what they keep, which gradients are whose, and what it costs."""

import functools

import pytest
import torch
import toys
from cl_bench.methods.cl_lora import METHOD as CLLoRA
from lessons import TASKS, after
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from cl_bench.data.batch import Batch
from cl_bench.errors import InputError
from cl_bench.nn.dual_lora import likeness
from cl_bench.nn.gradients import steered
from cl_bench.training import work

IMAGES = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@functools.cache
def learned(upto: int = 3, **options) -> CLLoRA:
    """A method that has learned so many tasks, to be looked at alone."""
    return after(upto, "cl-lora", **{"passes": 1, **options})


def begun(index: int, **options) -> CLLoRA:
    """The method where task `index` (from 0) is about to be trained, with every B away from what it was."""
    method = after(index, "cl-lora", **{"passes": 1, **options})
    method.grow(info(index))
    generator = torch.Generator().manual_seed(2)
    for lora in (method.shared, method.specific[-1]):
        lora.B.data += 0.1 * torch.randn(lora.B.shape, generator=generator)
    return method


def info(index: int):
    return toys.stream(TASKS).info(index)


def batch_of(index: int) -> Batch:
    [batch] = toys.stream(TASKS).task(index).plain(100)
    return batch


def gradients(method: CLLoRA, value: Tensor) -> dict[str, Tensor]:
    method.zero_grad()
    value.backward()
    zeros = {name: torch.zeros_like(own) for name, own in method.trained().items()}
    return zeros | {name: own.grad.clone() for name, own in method.trained().items() if own.grad is not None}


def test_A_of_the_shared_updates_stays_orthonormal_and_B_learns_on():
    fresh, first, last = toys.method("cl-lora", 3), learned(1), learned()
    A = last.shared.A
    assert torch.equal(A, fresh.shared.A) and A.shape == (1, 2, 3, 32)
    assert torch.allclose(A @ A.mT, torch.eye(3).expand(1, 2, 3, 3), atol=1e-5)
    assert first.shared.B.any() and not torch.equal(first.shared.B, last.shared.B)
    assert {name for name in last.trained() if name.startswith("shared")} == {"shared.B"}


def test_updates_of_old_tasks_stay_bit_for_bit():
    first, last = learned(1), learned()
    assert len(last.specific) == 3 and first.specific[0].B.any()
    assert toys.equal(first.specific[0].state_dict(), last.specific[0].state_dict())
    assert not any(own.requires_grad for own in last.specific[0].parameters())
    assert not torch.equal(last.specific[0].A, last.specific[1].A)


def test_an_image_sees_shared_updates_in_the_first_half_and_weighted_ones_in_the_other():
    """Against a network in whose query and value weights they are."""
    method = learned()
    for index in range(3):
        other, own = toys.backbone(), method.specific[index]
        for place, rows in enumerate((slice(0, 32), slice(64, 96))):
            shared = method.shared.B[0, place] @ method.shared.A[0, place]
            task = own.weights[place, 0] * own.B[0, place] @ own.A[0, place]
            for block, more in zip(other.vit.blocks, (shared, task), strict=True):
                block.attn.qkv.weight.data[rows] += more.detach()
        with torch.no_grad():
            assert torch.allclose(method.features(Batch(IMAGES), index), other.features(IMAGES), atol=1e-4)
    assert own.weights.shape == (2, 1) and own.weights.min() > 0.4


def test_scores_are_cosines_with_means_under_the_updates_of_a_class_own_task():
    method = learned()
    found = method.predict(Batch(IMAGES))
    with torch.no_grad():
        for index, own in enumerate((slice(0, 2), slice(2, 5), slice(5, 7))):
            f, P = method.features(Batch(IMAGES), index), method.prototypes.means[own]
            cosines = F.cosine_similarity(f[:, None], P, dim=2)
            assert torch.allclose(found[:, own], cosines, atol=1e-5)
    first, last = learned(1), learned()
    with torch.no_grad():
        mean = first.features(batch_of(0), 0)[batch_of(0).labels == 1].mean(dim=0)
    assert torch.allclose(last.prototypes.means[1], mean, atol=1e-4)
    assert method.prediction_passes == 3 and method.settled_passes == 0


def distilled(method: CLLoRA, batch: Batch, fixed: bool) -> Tensor:
    """The second term of the loss, of whole networks that are cut off behind the first half."""

    def scores() -> Tensor:
        cut = method.backbone.hidden(batch.images, 1, method.shared)
        return method.head(method.backbone.vit.norm(cut)[:, 0])

    z, now = scores(), method.shared.B.detach().clone()
    with torch.no_grad():
        method.shared.B.copy_(method.shared.old_B)
    if fixed:
        with torch.no_grad():
            old = scores()
    else:
        cut = method.backbone.hidden(batch.images, 1, method.shared).detach()
        old = method.head(method.backbone.vit.norm(cut)[:, 0])
    method.shared.B.data.copy_(now)
    return -5 * (F.softmax(old / 2, dim=1) * F.log_softmax(z / 2, dim=1)).sum() / len(z)


@pytest.mark.parametrize("teacher", ["fixed", "trained_asis"])
def test_the_gradient_is_that_of_the_task_and_of_distillation_reassigned_over_rows_of_B(teacher):
    method, batch = begun(1, teacher=teacher), batch_of(1)
    x = method.lower(method.backbone.hidden(batch.images, 0))
    own = gradients(method, method.own_loss(x, batch, info(1)))
    taught = distilled(method, batch, teacher == "fixed")
    more, whole = gradients(method, taught), method.loss(batch, info(1))
    found = gradients(method, whole)
    norms = method.shared.old_B.norm(dim=3, keepdim=True)
    share = 32 * norms / norms.sum(dim=2, keepdim=True)
    assert torch.allclose(share.mean(dim=2), torch.ones(1, 2, 1), atol=1e-5) and share.std() > 0.1
    more["shared.B"] *= share
    assert more["shared.B"].abs().max() > 1e-5 and more["head.weight"].abs().max() > 1e-5
    for name, gradient in found.items():
        assert torch.allclose(gradient, own[name] + more[name], atol=1e-6, rtol=1e-3), name
    assert whole.item() == pytest.approx(method.own_loss(x, batch, info(1)).item() + taught.item(), rel=1e-5)


def test_in_the_first_task_nothing_is_distilled():
    method, batch = begun(0), batch_of(0)
    x = method.lower(method.backbone.hidden(batch.images, 0))
    assert torch.equal(method.loss(batch, info(0)), method.own_loss(x, batch, info(0)))
    z = method.head(method.features(batch, 0))
    assert method.loss(batch, info(0)).item() == pytest.approx(F.cross_entropy(z, batch.labels).item())


def test_a_batch_learned_in_parts_has_the_gradient_of_the_whole():
    whole, parts = (toys.method("cl-lora", 3, passes=2, batch=9, learning_rate=1e-3) for _ in range(2))
    for method, micro_batch in ((whole, None), (parts, 4)):
        toys.learn(method, toys.stream(TASKS), upto=2, micro_batch=micro_batch)
    for name, value in whole.trained().items():
        assert torch.allclose(value, parts.trained()[name], atol=2e-5), name
    assert not whole.couples_batch and toys.method("cl-lora", 3, steps="two_asis").couples_batch


def test_in_two_steps_the_first_moves_B_and_the_head_alone():
    for steps, times in (("one", 0), ("two_asis", 1), ("stale_asis", 1)):
        method, batch, moved = begun(1, steps=steps), batch_of(1), []
        optimizer = method.make_optimizer()
        optimizer.zero_grad()
        before = {name: own.detach().clone() for name, own in method.trained().items()}
        optimizer.register_step_post_hook(lambda *_, moved=moved: moved.append(1))
        loss = method.loss(batch, info(1))
        changed = {name for name, own in method.trained().items() if not torch.equal(own, before[name])}
        assert len(moved) == times
        assert changed == ({"shared.B", "head.weight", "head.sigma"} if times else set())
        assert all(own.grad is None for own in method.trained().values())
        loss.backward()
        assert method.specific[-1].B.grad.any()


def test_block_weights_are_kept_apart_and_as_published_those_of_keys_too():
    used, published = learned(2), learned(2, block_weights="qkv_asis")
    assert used.specific[1].weights.shape == (2, 1) and published.specific[1].weights.shape == (3, 1)
    own, old = published.specific[1].weights, published.specific[0].weights
    dots = (own.flatten() @ old.flatten()) / (own.norm() * old.norm())
    assert likeness(own, [old, -old]).item() == pytest.approx(abs(dots.item()), abs=1e-6)
    method = begun(1, block_weights="qkv_asis", orthogonality=0.0)
    found = gradients(method, method.loss(batch_of(1), info(1)))["specific.1.weights"]
    assert found[0].any() and found[2].any() and not found[1].any()


def test_a_steered_value_has_the_given_gradient_whatever_it_was_computed_from():
    a, b = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
    value = steered((7 * a).sum() + b.sum(), [(a, torch.arange(3.0))])
    value.backward()
    assert value.item() == 23 and a.grad.tolist() == [0, 1, 2] and b.grad is None


def test_blocks_that_leave_no_half_are_refused():
    assert toys.method("cl-lora", 3).half == 1
    with pytest.raises(InputError, match="general=2, but backbone 'toy' has 2 blocks, of which tasks share"):
        toys.method("cl-lora", 3, general=2)


def flops(function) -> int:
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def test_an_image_is_predicted_with_the_work_of_as_many_bare_networks_as_there_are_tasks():
    method, more = learned(), torch.cat([IMAGES] * 4)
    one, two = (flops(lambda x=x: method.predict(Batch(x))) for x in (IMAGES, more))
    bare = flops(lambda: toys.backbone().features(more)) - flops(lambda: toys.backbone().features(IMAGES))
    heads, queries = 2 * 18 * 7 * 32, 3 * 2 * 18 * 5 * 32 * 32  # queries of tokens that are not read
    assert 3 * bare + heads <= two - one <= 3 * bare + heads + queries
    assert work.of(method, 36).predicting == 1.0 and method.prediction_passes == 3


def test_planned_work_of_a_step_is_that_of_updates_and_of_distillation():
    method, x = begun(1), torch.randn(2, 5, 32)
    beside = flops(lambda: method.shared.beside(0, x)) + flops(lambda: method.specific[1].beside(0, x))
    tokens = method.backbone.hidden(IMAGES, 0)
    half = flops(lambda: method.old_exit(tokens)) / len(IMAGES)
    assert half == pytest.approx(2 * work.through_first_blocks(method.backbone.vit, 1), rel=0.15)
    planned = beside / 2 / 2 + work.through_first_blocks(method.backbone.vit, 1)
    assert method.extra().step == pytest.approx(2 * 8 * planned, rel=0.02)
    assert begun(0).extra().step == pytest.approx(2 * 8 * beside / 2 / 2, rel=0.02)
    assert begun(2).extra().step == method.extra().step
    assert method.statistics_images(info(1), 10) == 10
