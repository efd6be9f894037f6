"""SD-LoRA: what old pairs keep, what their lengths do not change, and what a token costs."""

import functools

import pytest
import torch
import toys
from cl_bench.methods.sd_lora import AsRun as SDLoRA
from lessons import TASKS, after
from torch.utils.flop_counter import FlopCounterMode

from cl_bench.data.batch import Batch
from cl_bench.errors import InputError
from cl_bench.nn.edits import Edits
from cl_bench.nn.lora import DecoupledLoRA, InWeights, LoRA
from cl_bench.training import work

IMAGES = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@functools.cache
def learned(upto: int = 3, **options) -> SDLoRA:
    """A method that has learned so many tasks, to be looked at alone."""
    return after(upto, "sd-lora", **{"passes": 1, "learning_rate": 0.05, **options})


def begun(index: int, **options) -> SDLoRA:
    """The method where task `index` (from 0) is about to be trained."""
    method = after(index, "sd-lora", **{"passes": 1, "learning_rate": 0.05, **options})
    method.grow(info(index))
    return method


def info(index: int):
    return toys.stream(TASKS).info(index)


def pairs() -> DecoupledLoRA:
    """Pairs that are filled with random numbers, and magnitudes of 1, 2 and 3."""
    generator = torch.Generator().manual_seed(5)
    made = DecoupledLoRA(2, 32, "qv")
    for index, rank in enumerate((3, 2, 4)):
        made.grow(rank, torch.arange(1.0, index + 2), generator)
        made.B.detach().normal_(generator=generator)
    return made


def features(edits: Edits) -> torch.Tensor:
    with torch.no_grad():
        return toys.backbone().features(IMAGES, edits)


def test_old_pairs_are_kept_bit_for_bit_as_directions_of_unit_length():
    first, last = learned(1), learned()
    for name in ("A", "B"):
        was, now = getattr(first.edits, name), getattr(last.edits, f"old_{name}")
        own = now[:, :, :3] if name == "A" else now[..., :3]
        norm = was.flatten(2).norm(dim=2)[..., None, None]
        assert torch.allclose(own, was / norm, atol=1e-6) and norm.min() > 0
        second = getattr(learned(2).edits, f"old_{name}")
        assert torch.equal(own, second[:, :, :3] if name == "A" else second[..., :3])
    assert last.edits.old_A.shape == (2, 2, 6, 32) and last.edits.ranks.tolist() == [3, 3, 3]
    assert torch.equal(first.head.heads[0].weight, last.head.heads[0].weight)


def test_a_task_begins_with_the_directions_of_those_before_alone():
    method = begun(2)
    assert not method.edits.B.any() and method.edits.alpha.shape == (3,)
    other = DecoupledLoRA(2, 32, "qv")
    generator = torch.Generator().manual_seed(0)
    for part in range(2):
        other.grow(3, method.edits.alpha[: part + 1].detach(), generator)
        rows = slice(3 * part, 3 * part + 3)
        other.A.detach().copy_(method.edits.old_A[:, :, rows])
        other.B.detach().copy_(method.edits.old_B[..., rows])
    assert torch.allclose(method.features(Batch(IMAGES)), features(other), atol=1e-5)


def test_the_length_of_a_pair_is_lost_once_the_next_begins():
    made, longer = pairs(), pairs()
    assert torch.equal(features(made), features(longer))
    longer.A.detach().mul_(5.0)
    assert not torch.allclose(features(made), features(longer), atol=1e-3)
    for edits in (made, longer):
        edits.grow(2, torch.ones(4), torch.Generator().manual_seed(0))
    assert torch.allclose(features(made), features(longer), atol=1e-5)


def test_pairs_beside_the_weights_are_the_same_as_in_them():
    """W_p + sum_i alpha_i B_i A_i, the last pair with its own length."""
    made, changed = pairs(), toys.backbone()
    for l, block in enumerate(changed.vit.blocks):
        for place, rows in enumerate((slice(0, 32), slice(64, 96))):
            sums = 0.0
            for alpha, columns in ((1, slice(0, 3)), (2, slice(3, 5))):
                sums += alpha * made.old_B[l, place][:, columns] @ made.old_A[l, place][columns]
            block.attn.qkv.weight.data[rows] += (
                sums + 3 * made.B[l, place].detach() @ made.A[l, place].detach()
            )
    expected = changed.features(IMAGES)
    assert torch.allclose(features(made), expected, atol=1e-4)
    assert torch.allclose(features(InWeights(made)), expected, atol=1e-4)
    own = LoRA(1, 32, 3, "kv", torch.Generator().manual_seed(0), scale=0.5)
    own.B.detach().normal_(generator=torch.Generator().manual_seed(1))
    assert torch.allclose(features(InWeights(own)), features(own), atol=1e-4)


def test_magnitudes_of_old_pairs_learn_and_go_on_or_as_published_start_anew():
    first, second = learned(1), begun(1)
    assert second.edits.alpha.tolist() == [first.edits.alpha.item(), pytest.approx(0.8)]
    assert first.edits.alpha.item() != pytest.approx(0.8, abs=1e-6)
    assert learned(2).edits.alpha[0] != second.edits.alpha[0]
    anew = begun(2, old_magnitudes="restart_asis", magnitude=0.5)
    assert anew.edits.alpha.tolist() == [0.5] * 3 and anew.edits.alpha.requires_grad


def test_ranks_fall_in_the_fifth_and_in_the_ninth_task():
    given = ({}, {"middle_rank": 2, "last_rank": 1}, {"middle_rank": 2}, {"last_rank": 1})
    found = [
        [toys.method("sd-lora", 10, **options).rank(index) for index in (0, 3, 4, 7, 8, 9)]
        for options in given
    ]
    assert found == [[3] * 6, [3, 3, 2, 2, 1, 1], [3, 3, 2, 2, 2, 2], [3, 3, 3, 3, 1, 1]]
    method = toys.method("sd-lora", 10, middle_rank=2, last_rank=1)
    for index in range(10):
        method.grow(toys.stream([[c] for c in range(10)]).info(index))
    assert method.edits.ranks.tolist() == [3] * 4 + [2] * 4 + [1] * 2 and method.edits.old_A.shape[2] == 21


def test_the_rate_is_constant_or_falls_at_the_milestone():
    constant, falling = (
        toys.method("sd-lora", 3, passes=10, milestone_decay=0.005, schedule=schedule)
        for schedule in ("constant", "milestone")
    )
    assert [constant.rate(done) for done in range(10)] == [1.0] * 10
    assert [falling.rate(done) for done in range(10)] == [1.0] * 4 + [0.005] * 6


@pytest.mark.parametrize("options", [{"rank": 33}, {"middle_rank": 33}])
def test_more_directions_than_a_token_has_are_refused(options):
    with pytest.raises(InputError, match="a rank of 33, but tokens have 32 directions; give at most 32"):
        toys.method("sd-lora", 5, **options)


def flops(function) -> int:
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def test_an_image_is_predicted_with_as_much_work_as_by_the_bare_network_however_many_pairs_there_are():
    method, more = learned(), torch.cat([IMAGES] * 4)
    one, two = (flops(lambda x=x: method.predict(Batch(x))) for x in (IMAGES, more))
    bare = flops(lambda: toys.backbone().features(more)) - flops(lambda: toys.backbone().features(IMAGES))
    heads = 2 * 18 * 7 * 32
    keys = 2 * 2 * 18 * 5 * 32 * 32  # queries of tokens that are not read, in the last block
    assert bare + heads <= two - one <= bare + heads + keys
    assert work.of(method, 36).predicting == 1.0 and method.prediction_passes == 1


def test_planned_work_of_a_step_is_that_of_all_pairs():
    method = learned()
    x = torch.randn(2, 5, 32)
    assert flops(lambda: method.edits.beside(0, x)) == 2 * 2 * 5 * method.edits.products() / 2
    assert method.edits.products() == 2 * 2 * 2 * 9 * 32
    assert method.extra().step == 2 * 8 * 5 * method.edits.products()
    assert {*method.state()} == {
        *(f"edits.{name}" for name in ("A", "B", "alpha", "old_A", "old_B")),
        *(f"head.heads.{i}.{kind}" for i in range(3) for kind in ("weight", "bias")),
    }
    assert method.keeps == ""
