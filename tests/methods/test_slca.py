"""SLCA and SLCA++: a network that learns slowly, and heads that are aligned beside those that are trained."""

import functools
import math

import pytest
import torch
import toys
from cl_bench.methods.slca import SLCA
from lessons import TASKS, after

from cl_bench.data.batch import Batch
from cl_bench.errors import InputError
from cl_bench.nn.lora import weights

IMAGES = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))
BOTH = pytest.mark.parametrize("plusplus", [False, True])


@functools.cache
def learned(upto: int = 3, **options) -> SLCA:
    """A method that has learned so many tasks, to be looked at alone."""
    return after(upto, "slca", align_samples=32, passes=1, **options)


def info(index: int):
    return toys.stream(TASKS).info(index)


@BOTH
def test_alignment_changes_its_own_copy_of_the_heads_and_nothing_that_is_trained(plusplus):
    aligned, plain = learned(plusplus=plusplus), learned(plusplus=plusplus, align_passes=0)
    kept = {name: value for name, value in aligned.state().items() if name.startswith(("slow.", "head."))}
    assert toys.equal(kept, plain.state()) and len(kept) > 10
    assert not toys.equal(aligned.aligned.state_dict(), aligned.head.state_dict())
    assert toys.equal(plain.aligned.state_dict(), plain.head.state_dict())


def test_after_the_first_task_there_is_nothing_to_align():
    first = learned(1)
    assert toys.equal(first.aligned.state_dict(), first.head.state_dict())
    assert first.diagnostics() == {"alignment_losses": []}
    two = learned(2, align_passes=20).diagnostics()["alignment_losses"]
    assert len(two) == 2 and two[1] < two[0]


def test_old_statistics_stay_as_they_were_when_their_task_was_learned():
    first, last = learned(1), learned()
    assert torch.equal(first.gaussians.means, last.gaussians.means[:2])
    assert torch.equal(first.gaussians.factors, last.gaussians.factors[:2])
    task = toys.stream(TASKS).task(2)
    with torch.no_grad():
        f = torch.cat([last.features(batch) for batch in task.plain(5)])
    for label in (5, 6):
        assert torch.allclose(last.gaussians.means[label], f[task.labels == label].mean(0), atol=1e-5)


def test_the_aligned_loss_knows_no_common_scale_of_the_scores():
    """With scores (3, 4) and (5, 12) of two tasks n = (5 + 13) / 2 = 9."""
    method = toys.method("slca", 2, tau=0.5)
    for index in range(2):
        method.grow(toys.stream([[0, 1], [2, 3]]).info(index))
    for head, scores in zip(method.aligned.heads, ([3.0, 4.0], [5.0, 12.0]), strict=True):
        head.weight.zero_()
        head.bias.copy_(torch.tensor(scores))
    batch = Batch(torch.zeros(1, 32), torch.tensor([2]))
    found = method.aligned_loss(batch).item()
    exponents = [math.exp(score / (0.5 * 9)) for score in (3, 4, 5, 12)]
    assert found == pytest.approx(-math.log(exponents[2] / sum(exponents)), rel=1e-5)
    for head in method.aligned.heads:
        head.bias.mul_(7.0)
    assert method.aligned_loss(batch).item() == pytest.approx(found, rel=1e-5)


def test_a_network_that_does_not_learn_is_the_frozen_one():
    method = learned(slow=0.0)
    images = Batch(IMAGES)
    assert torch.equal(method.features(images), toys.backbone().features(IMAGES))
    assert not torch.equal(learned().features(images), toys.backbone().features(IMAGES))


def test_the_rate_of_the_network_is_a_part_of_the_heads_and_both_fall_to_a_tenth():
    method = toys.method("slca", 3, passes=10, milestone=0.8, learning_rate=0.02, slow=0.01)
    method.grow(info(0))
    [phase] = method.phases(info(0))
    groups = phase.optimizer().param_groups
    assert [group["lr"] for group in groups] == pytest.approx([0.0002, 0.02])
    factors = [[phase.rate(done, group) for done in range(10)] for group in groups]
    assert factors == [[1.0] * 8 + [0.1] * 2] * 2
    assert sum(p.numel() for p in groups[0]["params"]) == sum(
        p.numel() for p in toys.backbone().vit.parameters()
    )


def test_in_slca_plus_plus_all_rates_fall_towards_the_same_one():
    settings = {
        "passes": 4,
        "learning_rate": 0.02,
        "hybrid_rate": 0.2,
        "lora_rate": 0.5,
        "hybrid_decay": 0.25,
    }
    method = toys.method("slca", 3, plusplus=True, **settings)
    for index, lora in ((0, 0.01), (1, 0.004)):
        method.grow(info(index))
        [phase] = method.phases(info(index))
        groups = phase.optimizer().param_groups
        assert [group["lr"] for group in groups] == pytest.approx([lora, 0.004, 0.02])
        assert {group["weight_decay"] for group in groups} == {0.25}
        for group in groups:
            assert phase.rate(0, group) == pytest.approx(1.0)
            half, end = (phase.rate(done, group) * group["lr"] for done in (2, 4))
            assert end == pytest.approx(0.0004) and half == pytest.approx((group["lr"] + 0.0004) / 2)


def test_slca_plus_plus_trains_and_stores_no_weight_of_the_network():
    method = learned(plusplus=True)
    own, network = toys.backbone().vit.state_dict(), method.slow.network.vit.state_dict()
    moved = {name for name, value in own.items() if not torch.equal(value, network[name])}
    small = {name for name in own if "norm" in name or name.endswith("bias")} | {"cls_token"}
    assert moved == small
    stored = {name.removeprefix("slow.network.vit.") for name in method.state() if "network" in name}
    assert stored == small
    for name in SLCA.maps:
        assert method.slow.edits.B[name].abs().sum() > 0
    trained = sum(own[name].numel() for name in small) + 2 * 2 * (32 + 96 + 2 * (32 + 128)) + 2 * 33
    assert sum(p.numel() for p in method.parameters() if p.requires_grad) == trained


def test_lora_starts_from_the_networks_weights_in_the_first_task_alone():
    first, blocks = toys.method("slca", 3, plusplus=True), toys.backbone().vit.blocks
    first.grow(info(0))
    first.begin_task(info(0), None)
    A = first.slow.edits.A["fc2"][1].detach()
    V = torch.linalg.svd(weights(blocks, "fc2")[1]).Vh[:2]
    assert torch.allclose(A.T @ A, V.T @ V, atol=1e-4)
    with torch.no_grad():
        first.slow.edits.A["fc2"].fill_(1.0)
    first.begin_task(info(1), None)
    assert first.slow.edits.A["fc2"].eq(1).all()


def test_the_symmetric_loss_by_hand():
    """p = (1/2, 1/4, 1/4) for scores (ln 2, 0, 0): CE of the second ln 4, RCE = -(3/4) ln 10^-4."""
    method = toys.method("slca", 3, plusplus=True, ce_weight=2.0, rce_weight=0.5)
    z, y = torch.tensor([[math.log(2.0), 0.0, 0.0]]), torch.tensor([1])
    expected = 2 * math.log(4) + 0.5 * 0.75 * 4 * math.log(10)
    assert method.slow.loss(z, y).item() == pytest.approx(expected, rel=1e-5)
    assert toys.method("slca", 3).slow.loss(z, y).item() == pytest.approx(math.log(4), rel=1e-5)


def test_in_slca_plus_plus_older_heads_read_larger_features_where_it_predicts():
    method = learned(plusplus=True, mu=0.05)
    f = method.features(Batch(IMAGES))
    expected = [
        f @ (factor * head.weight).T + head.bias
        for factor, head in zip((1.1, 1.05, 1.0), method.aligned.heads, strict=True)
    ]
    assert torch.allclose(method.predict(Batch(IMAGES)), torch.cat(expected, dim=1), atol=1e-4)


def test_in_slca_plus_plus_draws_of_older_classes_are_divided_by_about_as_much():
    method = learned(plusplus=True, mu=0.05)
    ages = torch.tensor([2, 2, 1, 1, 1, 0, 0])
    found = method.changed(torch.ones(7, 500, 1), torch.Generator().manual_seed(0))[..., 0]
    low, high = 1 / (1 + 0.06 * ages), 1 / (1 + 0.04 * ages)
    assert (found >= low[:, None] - 1e-6).all() and (found <= high[:, None] + 1e-6).all()
    spread = found.amax(1) - found.amin(1)
    assert torch.allclose(spread, high - low, atol=2e-3)


def test_slca_plus_plus_that_was_restored_goes_on_bit_for_bit():
    stream, whole, interrupted = toys.stream(TASKS), learned(plusplus=True), learned(2, plusplus=True)
    resumed = toys.method("slca", 3, plusplus=True, align_samples=32, passes=1)
    for index in range(2):
        resumed.grow(stream.info(index))
    resumed.load_state({key: value.clone() for key, value in interrupted.state().items()})
    assert torch.equal(resumed.predict(Batch(IMAGES)), interrupted.predict(Batch(IMAGES)))
    toys.learn(resumed, stream, start=2)
    assert toys.equal(whole.state(), resumed.state()) and set(whole.state()) == set(resumed.state())


def test_what_it_costs_and_keeps():
    for options, forwards, statistics, keeps in (
        ({}, 3, 24, "one Gaussian of features per class"),
        ({"plusplus": True}, 2, 24, "one Gaussian of features per class"),
        ({"align_passes": 0}, 3, 0, ""),
    ):
        method = learned(1, **options)
        assert method.forwards(info(0), 24, True) == forwards * 24 + statistics
        assert method.keeps == keeps and method.prediction_passes == 1
    state = learned(2).state()
    assert state["gaussians.factors"].shape == (5, 32 * 33 // 2)
    assert learned(2).extra().task == 5 * 5 * 32 * 32 * (32 / 2 + 3 * 5)
    tokens, numbers = 5, 2 * 2 * (32 + 96 + 2 * (32 + 128))
    assert learned(1, plusplus=True).extra().image == tokens * numbers


@BOTH
def test_as_published_the_last_norm_is_new_and_the_mlps_have_no_lora(plusplus):
    changes = {"final_norm": "fresh_asis", "lora_maps": "attention_asis", "plusplus": plusplus}
    method = toys.method("slca", 3, **changes)
    norm, kept = method.slow.network.vit.norm, toys.method("slca", 3, plusplus=plusplus).slow.network.vit.norm
    assert norm.weight.eq(1).all() and norm.bias.eq(0).all() and norm.eps == 1e-5 and kept.eps == 1e-6
    assert norm.weight.requires_grad and torch.equal(kept.weight, toys.backbone().vit.norm.weight)
    if plusplus:
        assert set(method.slow.edits.A) == {"qkv"}
    stepped = learned(1, **changes)
    assert not stepped.slow.network.vit.norm.weight.eq(1).all()


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="rank=33, but qkv of a block has 32 directions"):
        toys.method("slca", 3, plusplus=True, rank=33)
    pooled = toys.backbone(class_token=False, global_pool="avg", fc_norm=True)
    with pytest.raises(InputError, match="'toy' has no LayerNorm behind its blocks; give final_norm=pretr"):
        toys.method("slca", 3, pooled, final_norm="fresh_asis")
    assert toys.method("slca", 3, pooled).features(Batch(IMAGES)).shape == (6, 32)
