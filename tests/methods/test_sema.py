"""SEMA: which blocks add adapters and when, what learns and what stays, and what it costs."""

import copy
import functools

import pytest
import torch
import toys
from cl_bench.methods._sema_as_run import Recording
from cl_bench.methods.sema import METHOD as SEMA
from lessons import TASKS, after
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from cl_bench.data.batch import Batch
from cl_bench.errors import InputError
from cl_bench.nn.mixture import Branch
from cl_bench.training import work

IMAGES = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))
ALWAYS, NEVER = {"threshold": 0.0}, {"threshold": 1e9}


@functools.cache
def _learned(upto: int, options: tuple) -> SEMA:
    return after(upto, "sema", **{"passes": 1, "descriptor_passes": 1, **dict(options)})


def learned(upto: int = 3, **options) -> SEMA:
    """A method that has learned so many tasks, to be looked at alone."""
    return _learned(upto, tuple(sorted(options.items())))


def info(index: int):
    return toys.stream(TASKS).info(index)


def branch(**changes) -> Branch:
    sizes = {"width": 32, "bottleneck": 4, "code": 5, "scale": 1.0, "dropout": 0.0, **changes}
    return Branch(**sizes, generator=torch.Generator().manual_seed(3))


def tensors(method: SEMA, part: str) -> dict:
    return {name: value for name, value in method.state().items() if name.startswith(part)}


def same(one: SEMA, two: SEMA, part: str) -> bool:
    """Whether all that the first has of a part is so in the second."""
    own = tensors(one, part)
    assert own
    return toys.equal(own, two.state())


def test_where_everything_is_new_every_block_adds_one_adapter_a_task():
    for upto in (1, 2, 3):
        method = learned(upto, expandable=2, **ALWAYS)
        assert method.diagnostics()["adapters"] == [upto, upto]
    assert method.scanned == {0: 0, 1: 2 * 8, 2: 2 * 8}  # one batch for each, and no more when all have added


def test_where_nothing_is_new_the_head_alone_learns():
    first, last = learned(1, **NEVER), learned(3, **NEVER)
    assert last.diagnostics()["adapters"] == [1]
    assert same(first, last, "mixture") and same(first, last, "head.heads.0")
    assert set(last.state()) - set(first.state()) == {
        f"head.heads.{index}.{part}" for index in (1, 2) for part in ("weight", "bias")
    }
    assert last.scanned == {0: 0, 1: 36, 2: 24}
    fresh = toys.method("sema", 3)
    for index in range(3):
        fresh.grow(info(index))
    assert not torch.equal(fresh.head.heads[2].weight, last.head.heads[2].weight)


def test_old_adapters_rows_and_descriptors_stay_and_new_ones_learn():
    first, last = learned(1, expandable=1, **ALWAYS), learned(2, expandable=1, **ALWAYS)
    assert same(first, last, "mixture")
    fresh, new = toys.method("sema", 3), last.mixture.at(1)[1]
    for index in range(2):
        fresh.grow(info(index))
    for name, start in fresh.spare["1_1"].state_dict().items():
        assert not torch.equal(start, new.state_dict()[name]), name
    trained = {name for name in last.trained() if name.startswith("mixture")}
    assert trained == {f"mixture.branches.1.1.{name}" for name, _ in new.named_parameters()}


def stages_of(index: int, **options) -> tuple[SEMA, list, Batch]:
    """A method that has announced task `index`, its stages for the last block, and the task's images."""
    method = copy.deepcopy(learned(index, **ALWAYS, **options))
    method.grow(info(index))
    method.add(1, info(index))
    [batch] = toys.stream(TASKS).task(index).plain(100)
    return method, method.stages(info(index), [1]), batch


def test_each_stage_trains_its_own_part():
    method, (adapting, describing), batch = stages_of(1)
    new, head = "mixture.branches.1.1.", "head.heads.1."
    parts = {
        adapting: (f"{new}adapter", f"{new}router", head),
        describing: (f"{new}encoder", f"{new}decoder"),
    }
    for phase, own in parts.items():
        before = {name: value.clone() for name, value in method.state().items()}
        for _ in range(2):  # up-projections start as zero
            optimizer = phase.optimizer()
            phase.loss(batch).backward()
            optimizer.step()
        changed = {name for name, value in method.state().items() if not torch.equal(value, before[name])}
        assert changed == {name for name in before if name.startswith(own)}


def test_losses_are_cross_entropy_over_own_classes_and_the_descriptors_error():
    method, (adapting, describing), batch = stages_of(1)
    f = method.features(batch)
    z = method.head(f)[:, 2:]
    assert adapting.loss(batch).item() == pytest.approx(F.cross_entropy(z, batch.labels - 2).item(), rel=1e-5)
    new, means = method.mixture.at(1)[1], method.token_means(batch)[1]
    expected = F.mse_loss(new.decoder(new.encoder(means)), means)
    assert describing.loss(batch).item() == pytest.approx(expected.item(), rel=1e-5)
    assert adapting.rate(0, {}) == 1.0 and adapting.batch == 8
    assert (adapting.passes, describing.passes) == (1, 1)


def test_an_image_sees_the_adapters_mixed_by_routers_of_the_mean_token():
    """Against timm's own blocks with what they add put in by hooks."""
    method, bare = learned(2, **ALWAYS), toys.backbone()
    base, own = method.mixture.base, method.mixture.at(1)
    assert len(own) == 2 and len(base.down) == 1
    entered: list[torch.Tensor] = []

    def adapter(part, x):
        return F.relu(x @ part.down[0].T + part.down_bias[0]) @ part.up[0].T + part.up_bias[0]

    def add(l: int):
        def hook(module, given, out):
            x = entered.pop()
            if l == 0:
                return out + adapter(base, x)
            logits = torch.cat([one.router(x.mean(dim=1)) for one in own], dim=1)
            p = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
            return out + sum(p[:, k, None, None] * adapter(one.adapter, x) for k, one in enumerate(own))

        return hook

    for l, block in enumerate(bare.vit.blocks):
        block.norm2.register_forward_pre_hook(lambda module, given: entered.append(given[0]))
        block.mlp.register_forward_hook(add(l))
    with torch.no_grad():
        tokens = bare.vit.forward_features(IMAGES)
        found = method.features(Batch(IMAGES))
        assert torch.allclose(found, bare.vit.forward_head(tokens, pre_logits=True), atol=1e-5)
        weights = method.mixture.weights(1, method.token_means(Batch(IMAGES))[1])
        assert weights.shape == (6, 2) and torch.allclose(weights.sum(dim=1), torch.ones(6))
        assert torch.equal(method.predict(Batch(IMAGES)), method.head(found))


def test_errors_are_measured_against_those_of_the_images_a_descriptor_learned():
    method = learned(1)
    [batch] = toys.stream(TASKS).task(0).plain(100)
    own, means = method.mixture.at(1)[0], method.token_means(batch)[1]
    errors = (own.decoder(own.encoder(means)) - means).square().mean(dim=1)
    expected = (errors - errors.mean()) / errors.std()
    assert torch.allclose(own.deviations(means), expected, atol=1e-3)
    assert own.usual[0].item() == pytest.approx(errors.mean().item(), rel=1e-4)


def test_of_few_or_equal_errors_nothing_deviates():
    one, means = branch(), torch.randn(5, 32)
    assert not one.deviations(means).any()
    one.settle(torch.tensor([1.0, 3.0]))
    assert not one.deviations(means).any()
    one.settle(torch.full((4,), 2.0))
    assert not one.deviations(means).any()
    one.settle(torch.tensor([1.0, 2.0, 3.0]))
    assert torch.allclose(one.deviations(means), one.errors(means) - 2)


@pytest.mark.parametrize(("deviation", "added"), [("absolute", [2, 2]), ("above", [1, 1])])
def test_images_with_smaller_errors_are_new_unless_only_larger_ones_count(deviation, added):
    method = copy.deepcopy(learned(1, expandable=2, threshold=50.0, deviation=deviation))
    for l in method.expandable:
        method.mixture.at(l)[0].usual.copy_(torch.tensor([1000.0, 1.0]))  # errors are 1,000 below
    toys.learn(method, toys.stream(TASKS), upto=2, start=1)
    assert method.diagnostics()["adapters"] == added


def test_only_blocks_whose_every_descriptor_is_surprised_add():
    method = copy.deepcopy(learned(2, expandable=2, threshold=50.0, **{"deviation": "above"}))
    assert method.diagnostics()["adapters"] == [1, 1]
    known, strange = torch.tensor([0.0, 1.0]), torch.tensor([-1e4, 1.0])
    for l in method.expandable:
        method.mixture.at(l)[0].usual.copy_(strange)
        method.mixture.add(l, 1, branch())
    method.mixture.at(0)[1].usual.copy_(strange)
    method.mixture.at(1)[1].usual.copy_(known)
    toys.learn(method, toys.stream(TASKS), start=2)
    assert method.diagnostics()["adapters"] == [3, 2] and method.added(info(2)) == [0]
    assert method.scanned[2] == 2 * 24  # one scan that found something and one that did not


def test_a_record_keeps_the_latest_errors_of_training():
    one = Recording(32, 4, 5, 1.0, 0.0, torch.Generator().manual_seed(3))
    one.longest, expected = 7, []
    for count, kept in ((3, slice(3)), (3, slice(3)), (3, slice(1)), (2, slice(2))):
        means = torch.randn(count, 32)
        expected = (expected + one.errors(means)[kept].tolist())[-7:]
    assert one.record.tolist() == expected
    one.eval().errors(torch.randn(4, 32))
    assert one.record.tolist() == expected


def test_moving_errors_are_those_of_all_training_and_take_no_pass():
    settled, moving = learned(1), learned(1, errors="moving_asis", record=20)
    trained = {name for name in settled.state() if not name.endswith("usual")}
    assert all(torch.equal(settled.state()[name], moving.state()[name]) for name in trained)
    own = moving.mixture.at(1)[0]
    assert len(own.record) == 20 and own.usual[0].item() == pytest.approx(own.record.mean().item())
    assert not torch.equal(own.usual, settled.mixture.at(1)[0].usual)
    assert settled.statistics_images(info(0), 24) == 24 and moving.statistics_images(info(0), 24) == 0
    assert moving.couples_batch and not settled.couples_batch


def test_rows_of_the_head_decay_in_later_tasks_only_as_published():
    published, plain = (
        {"head_decay": "all_asis", "weight_decay": 0.5, **NEVER},
        {"weight_decay": 0.5, **NEVER},
    )
    assert same(learned(1, **plain), learned(2, **plain), "head.heads.0")
    first, last = learned(1, **published), learned(2, **published)
    ratios = last.head.heads[0].weight / first.head.heads[0].weight
    left = last.head.left / first.head.left
    assert 0.5 < left < 0.99 and torch.allclose(ratios, left.expand_as(ratios), rtol=1e-3)
    fresh = copy.deepcopy(last)
    fresh.grow(info(2))
    start = toys.method("sema", 3)
    for index in range(3):
        start.grow(info(index))
    assert torch.allclose(fresh.head.heads[2].weight, last.head.left * start.head.heads[2].weight)


def test_a_batch_learned_in_parts_has_the_gradient_of_the_whole():
    options = {"passes": 1, "batch": 9, "learning_rate": 1e-3, "descriptor_rate": 1e-3, **ALWAYS}
    whole, parts = (toys.method("sema", 3, **options) for _ in range(2))
    for method, micro_batch in ((whole, None), (parts, 4)):
        toys.learn(method, toys.stream(TASKS), upto=2, micro_batch=micro_batch)
    for name, value in whole.trained().items():
        assert torch.allclose(value, parts.trained()[name], atol=2e-5), name


def test_a_plan_counts_the_most_that_tasks_may_add():
    planned, most = toys.method("sema", 3, passes=1, descriptor_passes=1), learned(3, **ALWAYS)
    for index in range(3):
        planned.grow(info(index))
    sizes = [
        sum(v.numel() for v in method.state().values()) for method in (planned, most, learned(3, **NEVER))
    ]
    assert sizes[0] == sizes[1] > sizes[2]
    for index, images in ((1, 36), (2, 24)):
        counts = [method.images_seen(info(index), images) for method in (planned, most)]
        assert counts[0] == images * (1 + 1 + 1 + 1) and counts[1] == images * 3 + 8
    assert learned(3, **NEVER).images_seen(info(2), 24) == 2 * 24  # the scan, and the head's pass
    assert [phase.forwards for phase in learned(3, **NEVER).phases(info(2))] == [1]


def test_more_blocks_than_there_are_are_refused():
    with pytest.raises(InputError, match="expandable=3 need 3 blocks, backbone 'toy' has 2"):
        toys.method("sema", 3, expandable=3)


def flops(function) -> int:
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def test_planned_work_of_a_prediction_is_that_of_all_adapters_and_of_all_tokens():
    trunk = toys.backbone(img_size=32, depth=4)
    method = toys.method("sema", 2, trunk, bottleneck=60, expandable=2)
    for index in range(2):
        method.grow(info(index))
    for l in method.expandable:
        method.add(l, info(1))
    few, many = torch.randn(8, 3, 32, 32), torch.randn(16, 3, 32, 32)
    bare, own = (
        flops(lambda act=act: act(many)) - flops(lambda act=act: act(few))
        for act in (trunk.features, lambda images: method.predict(Batch(images)))
    )
    assert own / bare == pytest.approx(work.of(method, 16).predicting, rel=0.05) and own / bare > 1.5


def test_descriptors_are_linear():
    linear = [part for part in branch().modules() if isinstance(part, nn.Linear)]
    assert len(linear) == 3
    one, means = branch(), torch.randn(4, 32)
    codes = one.encoder(means)
    middle = one.decoder(one.encoder((means[0] + means[1])[None] / 2))
    assert codes.shape == (4, 5)
    assert torch.allclose(middle[0], (one.decoder(codes)[0] + one.decoder(codes)[1]) / 2, atol=1e-6)
