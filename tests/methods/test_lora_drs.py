"""LoRA-DRS: where its updates may go, what is taken away and what stays, and what it costs."""

import functools
import math

import pytest
import torch
import toys
from cl_bench.methods.lora_drs import METHOD as LoRADRS
from lessons import TASKS, after
from torch.utils.flop_counter import FlopCounterMode

from cl_bench.data.batch import Batch
from cl_bench.nn.edits import Edits, Watched
from cl_bench.nn.summed_lora import Subtracted, SummedLoRA
from cl_bench.training import work
from cl_bench.training.trainer import Trainer

IMAGES = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@functools.cache
def learned(upto: int = 3, **options) -> LoRADRS:
    """A method that has learned so many tasks, to be looked at alone."""
    return after(upto, "lora-drs", **{"passes": 1, **options})


def begun(index: int, **options) -> LoRADRS:
    """The method where task `index` (from 0) is about to be trained."""
    method, stream = after(index, "lora-drs", **{"passes": 1, **options}), toys.stream(TASKS)
    method.grow(stream.info(index))
    method.begin_task(stream.task(index), Trainer(data_seed=3))
    return method


def features(edits: Edits) -> torch.Tensor:
    with torch.no_grad():
        return toys.backbone().features(IMAGES, edits)


def pairs() -> SummedLoRA:
    """Three pairs of random numbers, the last of which is the newest."""
    generator, made = torch.Generator().manual_seed(5), SummedLoRA(2, 32, "kv")
    for rank in (3, 2, 4):
        made.grow(rank, generator)
        made.B.detach().normal_(generator=generator)
    return made


def changed_by(made: SummedLoRA, sign: float, newest: bool) -> torch.Tensor:
    """Features of a network whose key and value weights have the products of pairs in them."""
    other = toys.backbone()
    for l, block in enumerate(other.vit.blocks):
        for place, rows in enumerate((slice(32, 64), slice(64, 96))):
            A, B = made.old_A[l, place], made.old_B[l, place]
            for columns in (slice(0, 3), slice(3, 5)):
                block.attn.qkv.weight.data[rows] += sign * B[:, columns] @ A[columns]
            if newest:
                block.attn.qkv.weight.data[rows] += made.B[l, place].detach() @ made.A[l, place].detach()
    return other.features(IMAGES)


def test_the_maps_have_all_pairs_in_them_and_the_subtracted_ones_less_the_old_alone():
    made = pairs()
    assert made.old_A.shape == (2, 2, 5, 32) and made.A.shape == (2, 2, 4, 32)
    assert torch.allclose(features(made), changed_by(made, 1.0, True), atol=1e-4)
    assert torch.allclose(features(Subtracted(made)), changed_by(made, -1.0, False), atol=1e-4)
    first = SummedLoRA(2, 32, "kv")
    first.grow(3, torch.Generator().manual_seed(0))
    assert torch.equal(features(Subtracted(first)), features(Edits()))
    assert torch.allclose(features(first), features(Edits()), atol=1e-6)


def test_old_pairs_stay_bit_for_bit_and_a_task_begins_with_their_sum():
    first, last = learned(1), learned()
    assert torch.equal(last.edits.old_A[:, :, :3], first.edits.A)
    assert torch.equal(last.edits.old_B[..., :3], first.edits.B) and first.edits.B.any()
    second = begun(1)
    assert not second.edits.B.any()
    assert torch.allclose(features(second.edits), features(first.edits), atol=1e-5)


def test_moments_are_those_of_tokens_in_the_network_without_what_was_learned():
    method, task, trainer = begun(1), toys.stream(TASKS).task(1), Trainer(data_seed=3)
    C, seen = method.moments(task, trainer), []

    def attend(l, block, x, read):
        seen.append(block.norm1(x).flatten(0, 1))
        return Subtracted(method.edits).attend(l, block, x, read)

    [batch] = task.plain(100)
    with torch.no_grad():
        method.backbone.features(batch.images, Watched(Subtracted(method.edits), attend))
    for own, h in zip(C, seen, strict=True):
        assert torch.allclose(own.float(), h.T @ h / len(h), atol=1e-4)
    assert trainer.images_seen == len(task) == 36


def test_T_keeps_the_fewest_directions_with_the_energy_and_has_norm_1():
    method = begun(1, energy=0.9)
    C = method.moments(toys.stream(TASKS).task(1), Trainer(data_seed=3))
    for own, T, count in zip(C, method.T.double(), method.directions, strict=True):
        values = torch.linalg.eigvalsh(own).flip(0)
        assert values[:count].sum() >= 0.9 * values.sum() > values[: count - 1].sum()
        assert torch.allclose(T, T.T, atol=1e-6) and T.norm() == pytest.approx(1, abs=1e-5)
        assert torch.allclose(T @ T * count**0.5, T, atol=1e-6)  # a projector, but for its size
    plain = begun(1, energy=0.9, norm="none")
    for scaled, T, count in zip(method.T, plain.T, method.directions, strict=True):
        assert torch.allclose(T, scaled * count**0.5, atol=1e-5)
    assert method.diagnostics() == {"directions": method.directions} and 1 <= min(method.directions) < 32


def outside(T: torch.Tensor, moved: torch.Tensor) -> float:
    """The largest part of rows (n, D) of a movement outside the span of a projector T (D, D)."""
    return float((moved - moved @ T).abs().max())


def test_updates_stay_where_T_lets_them_from_the_second_task_on():
    for projected in ("both", "A"):
        method, stream = begun(1, energy=0.5, norm="none", projected=projected), toys.stream(TASKS)
        A, B = (part.detach().clone() for part in (method.edits.A, method.edits.B))
        method.minimize(stream.task(1), Trainer(data_seed=3))
        for l, T in enumerate(method.T):
            moved = (method.edits.A[l] - A[l]).detach()
            assert moved.any() and outside(T, moved.flatten(0, 1)) < 1e-5
            grown = (method.edits.B[l] - B[l]).detach().transpose(1, 2).flatten(0, 1)
            assert grown.any() and (outside(T, grown) < 1e-5) == (projected == "both")
    first = begun(0)
    assert first.T is None and first.projections() == [] and first.diagnostics() == {}


def test_class_means_are_of_the_network_after_their_task_and_are_kept():
    first, last = learned(1), learned()
    batches = [*toys.stream(TASKS).task(0).plain(100)]
    with torch.no_grad():
        own = first.features(batches[0])
    for k in range(2):
        mean = own[batches[0].labels == k].mean(dim=0)
        assert torch.allclose(first.prototypes.means[k], mean, atol=1e-5)
    assert torch.equal(last.prototypes.sums[:2], first.prototypes.sums)


def test_predictions_are_of_class_means_alone():
    method = after(2, "lora-drs", passes=1)
    before = method.predict(Batch(IMAGES))
    method.head.weight.detach().normal_()
    assert torch.equal(method.predict(Batch(IMAGES)), before)
    with torch.no_grad():
        distances = torch.cdist(method.features(Batch(IMAGES)), method.prototypes.means)
    lengths = method.prototypes.means.norm(dim=1)
    assert before.shape == distances.shape == (6, 5) and before.abs().max() <= 1 + 1e-6
    method.prototypes.sums *= 2
    assert torch.allclose(method.predict(Batch(IMAGES)), before, atol=1e-6) and lengths.min() > 0


def test_the_first_task_may_have_passes_of_its_own_and_as_published_the_rate_is_that_of_others():
    own = {"passes": 4, "first_passes": 2}
    method, late = (toys.method("lora-drs", 3, schedule=kind, **own) for kind in ("cosine", "lagged_asis"))
    angle = 99 * math.pi / 200
    stream, found = toys.stream(TASKS), []
    for built in (method, late):
        built.grow(stream.info(0))
        for index in (0, 1):
            [phase] = built.phases(stream.info(index))
            found.append([phase.rate(done, {}) for done in range(phase.passes)])
    quarter = [math.cos(angle * done / 3) for done in range(4)]
    assert found[0] == pytest.approx([1.0, math.cos(angle)]) and found[1] == pytest.approx(quarter)
    assert found[2] == pytest.approx([1.0, 1.0]) and found[3] == pytest.approx([1.0, *quarter[:3]])


def test_as_published_epsilon_is_that_of_the_moment_before_it_is_corrected():
    """Three steps of one parameter by hand, of an Adam that projects too."""
    method = begun(1, adam_epsilon="early_asis", norm="none", energy=1.0)
    optimizer, B, moved = method.make_optimizer(), method.edits.B, 0.0
    m = v = 0.0
    for k in range(1, 4):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.full_like(parameter, 1e-7)
        optimizer.step()
        m, v = 0.9 * m + 0.1e-7, 0.999 * v + 1e-17
        moved -= 0.02 * math.sqrt(1 - 0.999**k) / (1 - 0.9**k) * m / (math.sqrt(v) + 1e-8)
    assert torch.allclose(B, torch.full_like(B, moved), rtol=1e-3)
    assert moved > -0.02  # with the usual epsilon 3 x 0.02 / 1.1


def test_more_negatives_can_only_raise_the_triplet_loss_and_old_means_get_no_gradient():
    from cl_bench.nn.contrast import augmented_triplet

    generator = torch.Generator().manual_seed(3)
    f, old = torch.randn(8, 5, generator=generator), torch.randn(4, 5, generator=generator)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 2, 3])
    old.requires_grad_(True)
    few, all_ = (augmented_triplet(f, labels, old[:count], 0.3) for count in (0, 4))
    assert all_ > few > 0 and not all_.requires_grad
    unit = torch.nn.functional.normalize(f, dim=1)
    expected = 0.0
    for i in range(8):
        others = [(unit[i] - unit[j]).norm() for j in range(8) if labels[j] != labels[i]]
        same = [(unit[i] - unit[j]).norm() for j in range(8) if labels[j] == labels[i]]
        expected += max(0.0, float(max(same) - min(others)) + 0.3) / 8
    assert float(few) == pytest.approx(expected, abs=1e-5)
    alone = torch.randn(3, 5, generator=generator, requires_grad=True)
    nothing = augmented_triplet(alone, torch.zeros(3, dtype=torch.long), old[:0], 1.0)
    nothing.backward()
    assert nothing.item() == 0 and not alone.grad.any()


def flops(function) -> int:
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def test_planned_work_is_that_of_updates_sums_and_moments():
    method, task, many = begun(2), toys.stream(TASKS).task(2), IMAGES.repeat(20, 1, 1, 1)
    bare = flops(lambda: method.backbone.features(many)) / len(many)
    sums = flops(lambda: method.edits.sums(0)) * 2
    assert sums == 2 * method.extra().step == 2 * 2 * 2 * 6 * 32 * 32
    updated = (flops(lambda: method.features(Batch(many))) - sums) / len(many)
    assert updated / bare == pytest.approx(work.of(method, 24).predicting, rel=0.05)
    moments = flops(lambda: method.moments(task, Trainer(data_seed=3))) - sums
    whole = moments / len(task) - 2 * method.extra().statistics
    assert bare <= whole < 1.1 * bare
    assert [method.statistics_images(toys.stream(TASKS).info(i), 10) for i in range(3)] == [10, 20, 20]
    assert method.prediction_passes == 1
