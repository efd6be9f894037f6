"""InfLoRA: what its updates leave alone, what it protects, and what it refuses."""

import math

import pytest
import torch
import toys
from cl_bench.methods.inflora import InfLoRA
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from cl_bench.data.batch import Batch
from cl_bench.errors import InputError, RunFailed
from cl_bench.nn.edits import Watched
from cl_bench.nn.lora import SuccessiveLoRA
from cl_bench.training import work
from cl_bench.training.distributed import ProcessGroup
from cl_bench.training.trainer import Trainer

TASKS = [[2, 0], [1, 3, 4], [5, 6]]
IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
PUBLISHED = {"gpm_energy": "sigma4_asis", "gpm_rank_rule": "lt_asis"}


def after(upto: int, **options) -> InfLoRA:
    """The method after so many of three tasks."""
    method, stream = toys.method("inflora", 3, **options), toys.stream(TASKS)
    toys.learn(method, stream, upto=upto)
    return method


def begun(index: int, **options) -> InfLoRA:
    """The method where task `index` (from 0) is about to be trained."""
    method, stream = after(index, **options), toys.stream(TASKS)
    method.grow(stream.info(index))
    method.begin_task(stream.task(index), Trainer(data_seed=3))
    return method


def moved(method: InfLoRA) -> InfLoRA:
    """The method with any values of B."""
    with torch.no_grad():
        method.edits.B.normal_(generator=torch.Generator().manual_seed(5))
    return method


def inputs(method: InfLoRA, images: Tensor) -> list[Tensor]:
    """Normalized tokens (B N, D) that enter attention of each block."""
    seen = []

    def attend(l, block, x, read):
        seen.append(block.norm1(x).flatten(0, 1))
        return method.edits.attend(l, block, x, read)

    with torch.no_grad():
        method.backbone.features(images, Watched(method.edits, attend))
    return seen


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_task_begins_with_the_network_that_the_one_before_left(index):
    method = begun(index)
    before = after(index) if index else toys.method("inflora", 3)
    expected = before.features(Batch(IMAGES)) if index else before.backbone.features(IMAGES)
    assert torch.allclose(method.features(Batch(IMAGES)), expected, atol=1e-5)
    assert not method.edits.B.any() and method.edits.A.any()


@pytest.mark.parametrize(("energy", "complement"), [(0.9, False), (0.999, True)])
def test_updates_leave_every_old_direction_alone(energy, complement):
    method = begun(1, energy=energy)
    assert method.memory.complement.tolist() == [complement] * 2
    for l, A in enumerate(method.edits.A.double()):
        M = method.memory.bases(l)[0]
        assert torch.allclose(3 * A @ A.T, torch.eye(3).double(), atol=1e-5)
        assert (A @ M).abs().max() < 1e-6
    trunk, W = method.backbone.vit.blocks[0].attn.qkv, method.edits.W[0].clone()
    moved(method)
    M = method.memory.bases(0)[0].float()
    found = method.edits.linear(0, "qkv", trunk)(M.T)
    without = F.linear(M.T, torch.cat([trunk.weight[:32], W]), trunk.bias)
    assert torch.allclose(found, without, atol=1e-5)
    other = method.memory.bases(0)[1].float().T
    assert not torch.allclose(method.edits.linear(0, "qkv", trunk)(other), trunk(other), atol=1e-2)


def test_old_tasks_inputs_keep_their_keys_and_values_up_to_what_is_not_protected():
    method = moved(begun(1, energy=0.9))
    h = inputs(after(1, energy=0.9), torch.cat([b.images for b in toys.stream(TASKS).task(0).plain(50)]))[0]
    A, M = method.edits.A[0], method.memory.bases(0)[0].float()
    assert torch.allclose(h @ A.T, (h - h @ M @ M.T) @ A.T, atol=1e-4)
    assert (h - h @ M @ M.T).square().sum() <= 0.1 * h.square().sum()


def test_merging_changes_nothing_but_where_the_update_is():
    method = moved(begun(2))
    before, W, change = (
        method.features(Batch(IMAGES)),
        method.edits.W.clone(),
        method.edits.B @ method.edits.A,
    )
    method.edits.merge()
    assert torch.allclose(method.features(Batch(IMAGES)), before, atol=1e-4)
    assert torch.equal(method.edits.W, W + change) and not method.edits.B.any()


def test_successive_updates_equal_a_network_with_other_keys_and_values():
    trunk, other = toys.backbone(), toys.backbone()
    lora = SuccessiveLoRA(trunk.vit.blocks[:1], 3)
    assert torch.allclose(trunk.features(IMAGES, lora), trunk.features(IMAGES), atol=1e-5)
    generator = torch.Generator().manual_seed(2)
    for _ in range(2):
        lora.merge()
        with torch.no_grad():
            lora.A.normal_(generator=generator)
            lora.B.normal_(generator=generator)
            other.vit.blocks[0].attn.qkv.weight[32:] += lora.B[0] @ lora.A[0]
    assert torch.allclose(trunk.features(IMAGES, lora), other.features(IMAGES), atol=1e-4)
    own = trunk.vit.blocks[1].attn.qkv
    assert lora.linear(1, "qkv", own) is own and lora.linear(0, "proj", own) is own


def test_moments_are_means_over_all_tokens_of_the_tasks_images():
    method, task = after(1), toys.stream(TASKS).task(1)
    trainer = Trainer(data_seed=3)
    H = method.moments(task, trainer, 7)
    [batch] = task.plain(100)
    for l, h in enumerate(inputs(method, batch.images)):
        assert torch.allclose(H[l].float(), h.T @ h / len(h), atol=1e-4)
    assert trainer.images_seen == len(task) == 36
    squared = toys.method("inflora", 3, gpm_energy="sigma4_asis")
    squared.load_state_dict(method.state_dict(), strict=False)
    assert torch.allclose(squared.moments(task, trainer, 7), H @ H)


def test_processes_share_the_images_of_the_moments():
    method, task, parts = after(1), toys.stream(TASKS).task(1), []

    class Half(ProcessGroup):
        def all_reduce_sum(self, tensors):
            parts.append([tensor.clone() for tensor in tensors])

    whole = method.moments(task, Trainer(data_seed=3), 7)
    for rank in range(2):
        trainer = Trainer(data_seed=3, group=Half(rank, 2))
        method.moments(task, trainer, 7)
        assert trainer.images_seen == len(task)
    sums, rows = (first + second for first, second in zip(*parts, strict=True))
    assert [int(count) for _, count in parts] == [18 * 5] * 2
    assert torch.allclose(sums / rows, whole)


def test_the_protected_share_rises_from_task_to_task_and_ends_before_the_last():
    asked, method = [], toys.method("inflora", 3, energy=0.6, last_energy=0.9)
    grow = method.memory.grow
    method.memory.grow = lambda H, energy, below: asked.append((energy, below)) or grow(H, energy, below)
    toys.learn(method, toys.stream(TASKS))
    assert asked == [(pytest.approx(0.6), False), (pytest.approx(0.7), False)]
    assert method.diagnostics() == {"protected": method.memory.ranks()}
    assert [method.statistics_images(toys.stream(TASKS).info(index), 10) for index in range(3)] == [
        20,
        20,
        10,
    ]


def test_where_nothing_is_left_only_the_head_learns():
    method = after(3, energy=1.0)
    assert method.memory.ranks() == [32, 32]
    assert not method.edits.A.any() and not method.edits.B.any()
    first = after(1, energy=1.0)
    assert torch.allclose(method.features(Batch(IMAGES)), first.features(Batch(IMAGES)), atol=1e-4)


def test_the_rate_falls_along_a_quarter_of_a_cosine_or_a_pass_behind_it():
    falling = [1.0, math.cos(99 * math.pi / 600), math.cos(99 * math.pi / 300), math.cos(99 * math.pi / 200)]
    method, late = (toys.method("inflora", 3, passes=4, schedule=s) for s in ("cosine", "lagged_asis"))
    assert [method.rate(done) for done in range(4)] == pytest.approx(falling)
    assert [late.rate(done) for done in range(4)] == pytest.approx([1.0, *falling[:3]])
    assert toys.method("inflora", 3, passes=1).rate(0) == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 33}, "rank=33, but tokens have 32 directions; give at most 32"),
        (
            {"energy": 0.9, "last_energy": 0.8},
            "last_energy=0.8 is below energy=0.9, but what is protected only grows",
        ),
        ({"layers": 3}, "layers=3, but backbone 'toy' has 2 blocks"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        toys.method("inflora", 3, **options)


def with_moments(method: InfLoRA, H: Tensor) -> InfLoRA:
    """The method, to which every task has these moments in both blocks."""
    method.moments = lambda task, trainer, pass_index: torch.stack([H, H])
    return method


def test_as_published_a_first_task_that_needs_more_than_half_of_all_directions_ends_the_run():
    method = with_moments(
        toys.method("inflora", 3, gpm_first="half_asis", energy=0.9), torch.eye(32).double()
    )
    with pytest.raises(RunFailed, match="task 1 needs 29 directions of a block, more than 16.*gpm_first=any"):
        toys.learn(method, toys.stream(TASKS), upto=1)
    sound = with_moments(toys.method("inflora", 3, energy=0.9), torch.eye(32).double())
    toys.learn(sound, toys.stream(TASKS), upto=1)
    assert sound.memory.ranks() == [29, 29] and sound.memory.complement.all()


def test_as_published_a_first_task_that_needs_half_of_them_is_left_unprotected_in_favor_of_the_rest():
    H = torch.diag((torch.arange(32) < 16).double())
    sound, published = (
        with_moments(toys.method("inflora", 3, gpm_first=first, energy=1.0), H)
        for first in ("any", "half_asis")
    )
    for method in (sound, published):
        toys.learn(method, toys.stream(TASKS), upto=1)
    assert torch.allclose(sound.memory.bases(0)[0], published.memory.bases(0)[1], atol=1e-12)
    assert torch.allclose(sound.memory.bases(0)[0].square().sum(1), H.diagonal())


def test_as_published_the_first_task_keeps_one_direction_fewer_and_the_rank_is_always_filled():
    assert [
        a - b
        for a, b in zip(
            after(1).memory.ranks(), after(1, gpm_rank_rule="lt_asis").memory.ranks(), strict=True
        )
    ] == [1, 1]
    sound, filled = (begun(1, energy=0.9999, gpm_surplus=kind) for kind in ("none", "inside_asis"))
    [left, _] = (32 - rank for rank in sound.memory.ranks())
    assert left < 3 and not sound.edits.A[0, left:].any()
    assert torch.equal(sound.edits.A[0, :left], filled.edits.A[0, :left])
    M = filled.memory.bases(0)[0].float()
    assert torch.allclose(filled.edits.A[0, left:] @ M @ M.T, filled.edits.A[0, left:], atol=1e-5)
    assert torch.allclose(3 * filled.edits.A[0] @ filled.edits.A[0].T, torch.eye(3), atol=1e-5)


def flops(function) -> int:
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def test_a_step_is_as_much_work_in_the_last_task_as_in_the_first_and_little_more_than_the_networks():
    def step(index: int) -> int:
        method = begun(index)
        [batch] = toys.stream(TASKS).task(index).plain(12, torch.arange(12).numpy())
        return flops(lambda: method.loss(batch, toys.stream(TASKS).info(index)).backward())

    assert step(0) == step(2)
    pixels = torch.randn(12, 3, 16, 16, requires_grad=True)
    bare = flops(lambda: toys.backbone().features(pixels).sum().backward())
    assert step(0) < 1.35 * bare  # ranks of 3 among 32 directions


def test_planned_work_is_that_of_updates_and_moments():
    method, task = begun(1), toys.stream(TASKS).task(1)
    bare = flops(lambda: method.backbone.features(IMAGES)) / len(IMAGES)
    updated = flops(lambda: method.features(Batch(IMAGES))) / len(IMAGES)
    assert updated / bare == pytest.approx(work.of(method, 36).predicting, rel=0.05)
    with_moments = flops(lambda: method.moments(task, Trainer(data_seed=3), 7)) / len(task)
    assert with_moments - updated == pytest.approx(2 * method.extra().statistics)
    assert with_moments < 1.25 * updated
