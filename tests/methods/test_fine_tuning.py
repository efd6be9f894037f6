"""Sequential fine-tuning, its bounds, and closed forms: what they are made of, by hand."""

import pytest
import torch
import toys
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.errors import InputError
from cl_bench.nn.adapter import Adapters
from cl_bench.nn.lora import LoRA
from cl_bench.nn.prototypes import Prototypes
from cl_bench.nn.ridge import STRENGTHS, Ridge, choose_strength

TASKS = [[2, 0], [1, 3, 4], [5, 6]]
IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def after(name, upto=3, tasks=TASKS, **options):
    stream = toys.stream(tasks, joint=toys.method_class(name).joint)
    method = toys.method(name, stream.num_tasks, **options)
    toys.learn(method, stream, upto=min(upto, stream.num_tasks))
    return method


@pytest.mark.parametrize("targets", ["q", "k", "v", "qv", "vqk"])
def test_low_rank_updates_equal_the_sum_with_the_frozen_weight(targets):
    trunk, merged = toys.backbone(), toys.backbone()
    lora = LoRA(2, 32, 3, targets, generator(), scale=0.5)
    assert torch.equal(trunk.features(IMAGES, lora), trunk.features(IMAGES))  # B = 0
    with torch.no_grad():
        lora.B.normal_(generator=generator())
        for l, block in enumerate(merged.vit.blocks):
            for place, target in enumerate(sorted("qkv".index(letter) for letter in targets)):
                block.attn.qkv.weight[32 * target : 32 * target + 32] += (
                    0.5 * lora.B[l, place] @ lora.A[l, place]
                )
    assert torch.allclose(trunk.features(IMAGES, lora), merged.features(IMAGES), atol=1e-5)


def test_low_rank_updates_of_the_first_blocks_leave_the_others_alone():
    trunk, lora = toys.backbone(), LoRA(1, 32, 3, "qv", generator())
    own = trunk.vit.blocks[1].attn.qkv
    assert lora.linear(1, "qkv", own) is own and lora.linear(0, "proj", own) is own


@pytest.mark.parametrize("targets", ["", "qq", "x"])
def test_targets_that_are_none_are_refused(targets):
    with pytest.raises(InputError, match="expected letters of qkv"):
        toys.method("seq-lora", 3, targets=targets)


@pytest.mark.parametrize("name", ["seq-lora", "seq-adapter"])
def test_more_blocks_than_the_network_has_are_refused(name):
    with pytest.raises(InputError, match="layers=3, but backbone 'toy' has 2 blocks"):
        toys.method(name, 3, layers=3)


def test_adapters_stand_beside_the_mlp_and_drop_out_in_training_alone():
    trunk, adapters = toys.backbone(), Adapters(2, 32, 4, generator(), scale=0.5, dropout=0.5)
    assert torch.equal(trunk.features(IMAGES, adapters), trunk.features(IMAGES))  # up = 0
    with torch.no_grad():
        adapters.up.normal_(generator=generator())
    x = torch.randn(2, 5, 32)
    expected = 0.5 * (
        F.relu(x @ adapters.down[1].T + adapters.down_bias[1]) @ adapters.up[1].T + adapters.up_bias[1]
    )
    assert torch.allclose(adapters.beside_mlp(1, x), expected, atol=1e-6)
    adapters.train()
    assert not torch.allclose(adapters.beside_mlp(1, x), expected, atol=1e-3)


def test_dropout_is_off_where_a_method_is_not_trained():
    method = after("seq-adapter", upto=1, dropout=0.5)
    assert not method.edits.training and torch.equal(
        method.predict(Batch(IMAGES)), method.predict(Batch(IMAGES))
    )
    before, seen = toys.method("seq-adapter", 3, dropout=0.5), []
    original = before.loss
    before.loss = lambda batch, task: seen.append(before.edits.training) or original(batch, task)
    toys.learn(before, toys.stream(TASKS), upto=1)
    assert set(seen) == {True} and not before.backbone.training


def test_full_fine_tuning_moves_its_own_copy_and_the_heads_faster():
    method = after("seq-ft", upto=1, learning_rate=0.1, backbone_rate=1e-4, passes=1)
    frozen, tuned = method.backbone.vit.state_dict(), method.network.vit.state_dict()
    assert all(torch.equal(value, toys.backbone().vit.state_dict()[key]) for key, value in frozen.items())
    moved = max(float((tuned[key] - value).abs().max()) for key, value in frozen.items())
    assert 1e-5 < moved < 1e-2 and any(key.startswith("network.vit.") for key in method.state())
    assert [group["lr"] for group in method.make_optimizer(toys.stream(TASKS).info(0)).param_groups] == [
        1e-4,
        0.1,
    ]


def test_the_rate_of_fine_tuning_falls_along_half_a_cosine_or_stays():
    method = toys.method("seq-lora", 3, passes=4)
    assert [method.rate(done) for done in range(4)] == pytest.approx([1, 0.853553, 0.5, 0.146447], abs=1e-6)
    assert toys.method("seq-lora", 3, schedule="constant").rate(3) == 1


@pytest.mark.parametrize(("joint", "sequential"), [("joint-lora", "seq-lora"), ("joint-ft", "seq-ft")])
def test_a_bound_is_the_sequential_method_on_one_task_of_all_classes(joint, sequential):
    one = after(joint, tasks=[[2, 0], [1, 3]], passes=1)
    other = after(sequential, tasks=[[2, 0, 1, 3]], passes=1)
    assert all(torch.equal(value, other.state()[key]) for key, value in one.state().items())


def test_the_linear_probe_trains_a_head_alone():
    method = after("linear-probe", passes=2)
    assert set(method.state()) == {"head.heads.0.weight", "head.heads.0.bias"}
    features = method.backbone.features(IMAGES)
    assert torch.allclose(
        method.predict(Batch(IMAGES)),
        features @ method.head.heads[0].weight.T + method.head.heads[0].bias,
        atol=1e-5,
    )


def test_class_means_by_hand_and_whatever_the_order_of_tasks():
    prototypes = Prototypes(2, torch.device("cpu"))
    prototypes.grow(3)
    prototypes.add(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 0]))
    prototypes.add(torch.tensor([[0.0, 2.0]]), torch.tensor([1]))
    assert prototypes.means.tolist() == [[2, 0], [0, 2], [0, 0]]
    assert torch.allclose(prototypes(torch.tensor([[3.0, 4.0]])), torch.tensor([[0.6, 0.8, 0.0]]))
    forward, backward = after("simplecil"), after("simplecil", tasks=TASKS[::-1])
    scores = forward.predict(Batch(IMAGES))[:, torch.tensor([5, 6, 2, 3, 4, 0, 1])]
    assert torch.allclose(scores, backward.predict(Batch(IMAGES)), atol=1e-6)


def test_ridge_regression_equals_that_of_all_data_at_once_in_any_order_of_tasks():
    X, y = torch.randn(40, 6, generator=generator()), torch.arange(40) % 4
    parts = Ridge(6, torch.device("cpu"))
    for first in (0, 2):
        parts.grow(2)
        own = (y == first) | (y == first + 1)
        parts.add(X[own], y[own])
    parts.solve(0.3)
    expected = torch.linalg.solve(X.T @ X + 0.3 * torch.eye(6), X.T @ F.one_hot(y, 4).float())
    assert torch.allclose(parts.W, expected, atol=1e-5)
    assert torch.allclose(parts(X), X @ expected, atol=1e-4)


@pytest.mark.parametrize("rows", [12, 60])
def test_the_strength_is_the_one_with_the_least_error_on_the_rows_held_out(rows):
    X, y = torch.randn(rows, 20, generator=generator()).double(), torch.arange(rows) % 3
    Y, fitted = F.one_hot(y, 3).double(), rows * 3 // 4
    errors = []
    for strength in STRENGTHS:
        W = torch.linalg.solve(
            X[:fitted].T @ X[:fitted] + strength * torch.eye(20), X[:fitted].T @ Y[:fitted]
        )
        errors.append(float((X[fitted:] @ W - Y[fitted:]).square().mean()))
    found, measured = choose_strength(X, y, 3, fitted)
    assert (
        measured[4:] == pytest.approx(errors[4:], rel=1e-3) and found == STRENGTHS[errors.index(min(errors))]
    )


def test_ranpac_changes_nothing_but_its_regression_after_the_first_task():
    first, last = after("ranpac", upto=1), after("ranpac")
    for name, value in first.state().items():
        if not name.startswith("ridge."):
            assert torch.equal(value, last.state()[name]), name
    off = after("ranpac", first_task=False, projection=0)
    assert set(off.state()) == {"ridge.G", "ridge.Q", "ridge.W"}
    features = torch.cat(
        [off.backbone.features(batch.images) for batch in toys.stream(TASKS).task(0).plain(100)]
    )
    assert torch.allclose(
        off.ridge.Q[:, 0].float(),
        features[:12].sum(0) if toys.stream(TASKS).task(0).labels[0] == 0 else features[12:].sum(0),
        atol=1e-3,
    )
    fixed = after("ranpac", ridge=2.5)
    assert fixed.diagnostics() == {"lambda": 2.5, "validation_errors": []}
