"""The prompt pool and L2P: choice by hand, gradients, and what must stay as it was."""

import pytest
import torch
import toys
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo
from cl_bench.errors import InputError
from cl_bench.nn.pool import Chosen, cosines, majority, nearest, tally
from cl_bench.nn.prompts import DeepPrompts

TASKS = [[2, 0], [1, 3, 4], [5, 6]]
IMAGES = torch.randn(7, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def after(upto, name="l2p", **options):
    method = toys.method(name, 3, **options)
    toys.learn(method, toys.stream(TASKS), upto=upto)
    return method


def test_heads_to_come_compete_with_the_values_that_they_start_from():
    stream = toys.stream(TASKS)
    info = StreamInfo(init_seed=1, num_tasks=3, task_sizes=tuple(map(len, TASKS)))
    kind = toys.method_class("l2p")
    options = {"layers": 2, "pool_size": 4, "top_k": 2, "passes": 1}
    every, seen = (
        kind(kind.Config(**options, eval_classes=which), toys.backbone(), info) for which in ("all", "seen")
    )
    for method in (every, seen):
        toys.learn(method, stream, upto=1)
    scores = every.predict(Batch(IMAGES))
    assert scores.shape == (7, 7) and torch.equal(scores[:, :2], seen.predict(Batch(IMAGES)))
    every.grow(stream.task(1))
    weight = every.head.heads[1].weight
    assert weight.std() < 0.03 and every.head.heads[1].bias.abs().max() == 0  # truncated normal, no bias
    assert torch.allclose(every.predict(Batch(IMAGES)), scores, atol=1e-6)


def test_the_largest_cosines_are_chosen_and_the_lower_position_of_equal_ones():
    similarity = torch.tensor([[0.1, 0.9, 0.9, -1.0], [0.5, 0.5, 0.5, 0.5]])
    assert nearest(similarity, 3).tolist() == [[1, 2, 0], [0, 1, 2]]
    assert torch.allclose(
        cosines(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0], [-6.0, -8.0]])),
        torch.tensor([[0.6, 0.8, -1.0]]),
    )


def test_the_vote_counts_how_often_an_entry_is_among_the_choices():
    chosen = torch.tensor([[3, 1], [3, 0], [2, 1], [3, 2]])  # 0: once, 1: twice, 2: twice, 3: three times
    assert tally(chosen, 5).tolist() == [1, 2, 2, 3, 0]
    assert majority(chosen, 5).tolist() == [[3, 1]]


@pytest.mark.parametrize("shared", [False, True])
def test_each_image_attends_to_its_own_prompts_only(shared):
    trunk, pool = toys.backbone(), torch.randn(2, 4 * 3, 32)
    ids = (
        torch.tensor([[2, 0]])
        if shared
        else torch.tensor([[2, 0], [1, 3], [0, 1], [3, 2], [2, 1], [0, 2], [1, 0]])
    )
    together = trunk.features(IMAGES, Chosen(pool, ids, 4))
    for row, image in enumerate(IMAGES):
        own = DeepPrompts(2, 6, 32, torch.Generator())
        entries = ids[0 if shared else row].tolist()
        own.P.data = torch.cat([pool[:, 3 * entry : 3 * entry + 3] for entry in entries], dim=1)
        assert torch.allclose(trunk.features(image[None], own)[0], together[row], atol=1e-5)


def test_with_the_whole_pool_chosen_it_is_deep_prompt_tuning():
    method = toys.method("l2p", 3, top_k=4, pool_size=4)
    prompts = DeepPrompts(2, 16, 32, torch.Generator())
    prompts.P.data = method.P.data
    q = method.backbone.frozen_features(IMAGES)
    assert torch.allclose(method.represent(IMAGES, q), method.backbone.features(IMAGES, prompts), atol=1e-5)


def test_one_hot_rows_name_the_pool_rows_of_every_extra_key():
    rows = Chosen(torch.zeros(1, 8, 4), torch.tensor([[3, 1]]), 4).rows  # entries of two rows each
    assert rows.argmax(2).tolist() == [[6, 7, 2, 3]] and rows.sum(2).eq(1).all()


def test_the_loss_by_hand():
    method = toys.method("l2p", 3, batchwise_train=False, pull=0.7)
    task = toys.stream(TASKS).task(0)
    method.grow(task)
    method.begin_task(task, None)
    batch = next(task.plain(6))
    total = 0.0
    for image, label in zip(batch.images, batch.labels, strict=True):
        q = method.backbone.features(image[None])[0]
        similarity = torch.stack([q @ key / q.norm() / key.norm() for key in method.K])
        best = similarity.topk(2)
        z = torch.full((7,), -torch.inf)
        features = method.backbone.features(image[None], Chosen(method.P, best.indices[None], 4))
        z[:2] = method.head.current(features)[0]  # scores of all classes, those outside the task masked
        total = total + F.cross_entropy(z, label) - 0.7 * best.values.sum()
    assert method.loss(batch, task).item() == pytest.approx(total.item() / 6, abs=1e-4)


def test_the_pull_moves_keys_only_and_the_cross_entropy_moves_none():
    task = toys.stream(TASKS).task(0)
    batch = next(task.plain(6))
    for pull, moved in ((0.0, False), (1.0, True)):
        method = toys.method("l2p", 3, pull=pull)
        method.grow(task)
        loss = method.loss(batch, task)
        keys = torch.autograd.grad(loss, method.K, allow_unused=True, retain_graph=True)[0]
        assert (keys is not None and bool(keys.abs().max() > 0)) == moved
    similarity = cosines(method.backbone.frozen_features(batch.images), method.K)
    assert torch.autograd.grad(similarity.sum(), method.P, allow_unused=True)[0] is None
    assert similarity.abs().max() <= 1 + 1e-6


@pytest.mark.parametrize("name", ["l2p", "l2p-pgp"])
@pytest.mark.parametrize("batchwise", [True, False])
def test_rows_that_no_image_chose_stay_bit_for_bit(name, batchwise):
    method = toys.method(name, 3, pool_size=6, batchwise_train=batchwise)
    before = method.P.detach().clone(), method.K.detach().clone()
    toys.learn(method, toys.stream(TASKS), upto=1)
    used = torch.tensor(method.diagnostics()["selected"]) > 0
    assert used.any() and not used.all()
    rows = method.P.detach().unflatten(1, (6, 4)), before[0].unflatten(1, (6, 4))
    assert torch.equal(rows[0][:, ~used], rows[1][:, ~used]) and torch.equal(
        method.K.detach()[~used], before[1][~used]
    )
    assert not torch.equal(rows[0][:, used], rows[1][:, used])


def test_every_training_image_is_counted_with_all_its_choices():
    method = after(1, passes=3)
    assert sum(method.diagnostics()["selected"]) == 3 * 24 * 2  # passes, images, top_k


def test_the_query_never_changes():
    method = after(0)
    before = method.backbone.frozen_features(IMAGES)
    toys.learn(method, toys.stream(TASKS))
    assert torch.equal(before, method.backbone.frozen_features(IMAGES))


def entering(method, images):
    """How many tokens enter each block."""
    counts = []

    def count(module, inputs):
        if inputs[0].dim() == 3:  # else prompts
            counts.append(inputs[0].shape[1])

    hooks = [block.norm1.register_forward_pre_hook(count) for block in method.backbone.vit.blocks]
    method.represent(images, torch.randn(len(images), 32))
    for hook in hooks:
        hook.remove()
    return counts


@pytest.mark.parametrize(("layers", "tokens"), [(1, [13, 13]), (2, [13, 21])])
def test_dropped_prompts_add_no_token_and_carried_ones_stay(layers, tokens):
    assert entering(toys.method("l2p", 3, layers=layers), IMAGES) == [5, 5]
    assert (
        entering(toys.method("l2p", 3, layers=layers, carry="accumulate"), IMAGES) == tokens
    )  # 2 x 4 prompts a layer


@pytest.mark.parametrize("position", ["none", "cls"])
def test_the_original_form_reads_the_mean_of_its_prompts_outputs(position):
    method = toys.method("l2p", 3, layers=1, carry="accumulate", head="prompt", position=position)
    vit, q = method.backbone.vit, method.backbone.frozen_features(IMAGES)
    for image, query, found in zip(IMAGES, q, method.represent(IMAGES, q), strict=True):
        ids = (F.normalize(query, dim=0) @ F.normalize(method.K, dim=1).T).topk(2).indices
        prompts = torch.cat([method.P[0, 4 * i : 4 * i + 4] for i in ids])
        prompts = prompts + vit.pos_embed[0, 0] if position == "cls" else prompts
        x = vit._pos_embed(vit.patch_embed(image[None]))
        x = torch.cat(
            [x[:, :1], prompts[None], x[:, 1:]], dim=1
        )  # between class token and patches, as the PyTorch port puts them
        for block in vit.blocks:
            x = block(x)
        assert torch.allclose(vit.norm(x)[0, 1:9].mean(0), found, atol=1e-5)


def test_a_vote_at_prediction_depends_on_the_batch_and_a_choice_by_image_does_not():
    method = after(2, pool_size=7, top_k=1)
    method.K.data = method.backbone.frozen_features(
        IMAGES
    ).clone()  # each image is nearest to a key of its own
    alone = torch.cat([method.predict(Batch(image[None])) for image in IMAGES])
    assert torch.allclose(method.predict(Batch(IMAGES)), alone, atol=1e-5)
    voting = after(2, pool_size=7, top_k=1, batchwise_eval=True)
    voting.load_state(method.state())
    assert not torch.allclose(voting.predict(Batch(IMAGES)), alone, atol=1e-3)


def test_gradients_are_clipped_to_one_global_norm_with_the_head():
    method = toys.method("l2p", 3, grad_clip=0.01)
    task = toys.stream(TASKS).task(0)
    method.grow(task)
    method.loss(next(task.plain(6)), task).backward()
    method.after_backward(task)
    assert sum(p.grad.square().sum() for p in method.trained_parameters()).sqrt().item() == pytest.approx(
        0.01, rel=1e-3
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool_size": 3, "top_k": 4}, "top_k=4 of a pool of 3"),
        ({"layers": 3}, "layers=3, but backbone 'toy' has 2 blocks"),
        ({"head": "prompt"}, "need carry=accumulate"),
        ({"position": "cls"}, "need carry=accumulate"),
    ],
)
def test_pools_that_cannot_work_are_refused_in_one_line(options, message):
    with pytest.raises(InputError, match=message) as raised:
        toys.method("l2p", 3, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["l2p", "l2p-pgp", "l2p-nsp2", "dualprompt", "dualprompt-pgp", "coda-prompt"]
)
def test_a_backbone_without_class_token_is_refused(name):
    trunk = toys.backbone(class_token=False, global_pool="avg")
    with pytest.raises(InputError, match="needs a backbone that reads its class token, and 'toy' does not"):
        toys.method(name, 3, trunk)
