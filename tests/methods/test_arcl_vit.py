"""ARCL-ViT: what masks let through, what they are made of, and heads as trained and as refined."""

import pytest
import torch
import toys
from cl_bench.methods._arcl_as_run import LowInWindows
from cl_bench.methods.arcl_vit import METHOD as ARCL
from lessons import TASKS, after
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.errors import InputError
from cl_bench.nn.rollout import Rollout, split_points
from cl_bench.nn.shown_attention import ShownAttention

IMAGES = torch.randn(7, 3, 16, 16, generator=torch.Generator().manual_seed(1))
EQUAL = [[0, 1], [2, 3], [4, 5]]
FAST = {"refine_passes": 1, "refine_samples": 8, "passes": 1}


def second(share: float | None, **options) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """W before and after the second task, with this share as all of m."""
    method, stream = after(1, "arcl-vit", **{**FAST, **options}), toys.stream(TASKS)
    if share is not None:
        method.low.total.fill_(share * float(method.low.images))
    before = [W.detach().clone() for W in method.W]
    toys.learn(method, stream, upto=2, start=1)
    return before, [W.detach().clone() for W in method.W]


def test_where_all_was_looked_at_nothing_moves():
    before, now = second(0.0)
    assert all(torch.equal(*pair) for pair in zip(before, now, strict=True))


def test_where_nothing_was_looked_at_all_moves_as_by_adam():
    before, now = second(1.0, class_row="free")
    plain, stream = after(1, "arcl-vit", **FAST), toys.stream(TASKS)
    plain.projections = lambda task: []
    toys.learn(plain, stream, upto=2, start=1)
    for old, masked, own in zip(before, now, plain.W, strict=True):
        assert (masked - old).abs().max() > 1e-4
        assert (masked - own).norm() < 0.02 * (own - old).norm()  # ratios of gradients near 0 are of rounding


def test_the_last_block_stays_as_the_first_task_made_it_unless_the_class_row_is_free():
    before, now = second(None)
    assert not torch.equal(before[0], now[0]) and torch.equal(before[1], now[1])
    before, now = second(None, class_row="free")
    assert not torch.equal(before[1], now[1])


def test_nothing_but_input_maps_and_the_newest_head_is_trained():
    method = after(1, "arcl-vit", **FAST)
    assert set(method.trained()) == {
        *(f"network.vit.blocks.{l}.attn.qkv.weight" for l in range(2)),
        "head.heads.0.weight",
        "head.heads.0.bias",
    }
    groups = method.make_optimizer(toys.stream(TASKS).info(0)).param_groups
    assert [group["lr"] for group in groups] == [pytest.approx(0.1 * 0.02), 0.02]


def test_learning_in_parts_has_the_ratios_of_the_whole():
    stream = toys.stream(TASKS)
    whole, parts = (after(1, "arcl-vit", **FAST) for _ in range(2))
    for method, micro_batch in ((whole, None), (parts, 5)):
        toys.learn(method, stream, upto=2, start=1, micro_batch=micro_batch)
    for one, two in zip(whole.W, parts.W, strict=True):
        assert torch.allclose(one, two, atol=1e-3 * one.abs().max().item())


def task_images(index: int) -> Batch:
    [batch] = toys.stream(TASKS).task(index).plain(1000)
    return batch


def rollouts(method: ARCL, images: torch.Tensor) -> torch.Tensor:
    found = Rollout(1)
    with torch.no_grad():
        method.network.features(images, ShownAttention([found.see]))
    return found.rows()


def test_m_is_the_share_of_images_whose_trained_attention_is_below_their_own_threshold():
    one, two = after(1, "arcl-vit"), after(2, "arcl-vit")
    counted, images = torch.zeros_like(one.low.total), 0
    for index, method in enumerate((one, two)):
        r = rollouts(method, task_images(index).images)
        counted += (r <= split_points(r, method.config.margin)[..., None]).sum(0)
        images += len(r)
        assert torch.equal(method.low.mean(), counted / images)
    assert 0 < two.low.mean().mean() < 1
    assert torch.equal(after(3, "arcl-vit").low.total, two.low.total)  # nothing follows the last task


@pytest.mark.parametrize(
    ("epoch_mode", "passes", "shown"), [("plain", 3, 1), ("repeat10", 10, 10), ("repeat10", 12, 2)]
)
def test_as_published_the_images_of_the_last_shuffle_count_as_often_as_they_are_shown(
    epoch_mode, passes, shown
):
    options = {**FAST, "epoch_mode": epoch_mode, "passes": passes, "masks_from": "training_asis"}
    method = after(1, "arcl-vit", **options)
    assert method.low.images == shown * len(toys.stream(TASKS).task(0))
    assert method.couples_batch and not after(1, "arcl-vit", **FAST).couples_batch
    assert after(3, "arcl-vit", **{**options, "passes": 1}).low.images == 24 + 36


def test_a_window_starts_as_many_numbers_into_a_class_as_images_were_before():
    low, rows = LowInWindows(2, 3, 0.0, torch.device("cpu")), torch.rand(9, 2, 3, dtype=torch.float64)
    low.begin(9)
    labels = torch.tensor([7, 8, 7, 7, 7, 7, 7, 7, 7])
    own = rows[labels == 7].flatten()
    expected = torch.stack([own[n : n + 6].view(2, 3) for n in range(8)])
    found = torch.cat([low.limits(rows[:5], labels[:5]), low.limits(rows[5:], labels[5:])])
    assert torch.equal(found[labels == 7], split_points(expected, 0.0))
    assert torch.equal(found[1], split_points(rows[1], 0.0))
    low.begin(9)
    assert torch.equal(low.limits(rows[3:4], labels[3:4])[0], split_points(rows[3], 0.0))


def test_refined_heads_predict_and_the_trained_ones_go_on():
    method, stream = after(2, "arcl-vit"), toys.stream(TASKS)
    trained = [head.weight.detach().clone() for head in method.head.heads]
    f = method.network.features(IMAGES)
    assert torch.equal(method.predict(Batch(IMAGES)), method.refined(f))
    assert not torch.allclose(method.refined(f), method.head(f), atol=1e-4)
    losses = method.diagnostics()["refine_losses"]
    assert len(losses) == 2 and losses[1] < losses[0]
    toys.learn(method, stream, start=2)
    assert all(torch.equal(w, head.weight) for w, head in zip(trained, method.head.heads, strict=False))


def test_the_refinement_is_over_the_temperature_and_after_every_task():
    method = after(1, "arcl-vit", **FAST)
    z = method.head(method.gaussians.means) / method.config.temperature
    start = F.cross_entropy(z, torch.arange(2)).item()
    assert method.refine_losses[0] == pytest.approx(start, abs=0.1)
    assert not torch.equal(method.refined.heads[0].weight, method.head.heads[0].weight)


def test_as_published_the_second_head_starts_as_the_first_was_refined_where_it_is_as_wide():
    for tasks, same in ((EQUAL, True), (TASKS, False)):
        stream = toys.stream(tasks)
        method = toys.method("arcl-vit", 3, head_init="refined_asis", **FAST)
        toys.learn(method, stream, upto=1)
        first = method.refined.heads[0].weight.detach().clone()
        method.grow(stream.info(1))
        assert torch.equal(first, method.head.heads[1].weight) == same
        method.grow(stream.info(2))
        assert not torch.equal(method.head.heads[1].weight[:2], method.head.heads[2].weight)


def test_backbones_without_a_class_token_are_refused():
    with pytest.raises(InputError, match="reads its class token"):
        toys.method("arcl-vit", 3, toys.backbone(global_pool="avg", class_token=False))
