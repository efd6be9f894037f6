"""HiDe-Prompt: what its two networks and their statistics leave alone, and what the paper's parts do."""

import functools

import pytest
import torch
import toys
from cl_bench.methods.hide_prompt import AsRun as HiDe
from lessons import TASKS, after
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.errors import InputError
from cl_bench.training.trainer import Trainer

IMAGES = torch.randn(7, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@functools.cache
def learned(upto: int = 3, **options) -> HiDe:
    """A method that has learned so many tasks, to be looked at alone."""
    return after(upto, "hide-prompt", **{"passes": 1, "tii_passes": 1, "samples": 20, **options})


def info(index: int):
    return toys.stream(TASKS).info(index)


def test_inference_and_prediction_train_nothing_in_common():
    method = toys.method("hide-prompt", 3)
    method.grow(info(0))
    parts = [
        {id(p) for group in phase.optimizer().param_groups for p in group["params"]}
        for phase in method.phases(info(0))
    ]
    assert not parts[0] & parts[1] and len(parts[0] | parts[1]) == len(method.trained())
    one, other = learned(1), learned(1, contrast=3.0, learning_rate=0.1)
    assert toys.equal(one.tii.state_dict(), other.tii.state_dict())
    assert not torch.equal(one.p[0], other.p[0])
    third = learned(1, tii_rate=0.2)
    assert torch.equal(one.p[0], third.p[0]) and torch.equal(one.of_f.means, third.of_f.means)


def test_what_images_are_under_an_old_tasks_prompt_changes_in_later_tasks_by_alignment_alone():
    first, last, aligned = learned(1, align_passes=0), learned(3, align_passes=0), learned(3)
    assert torch.equal(first.p[0], last.p[0]) and torch.equal(last.p[0], aligned.p[0])
    f = [method.features(IMAGES, method.p[0][None]) for method in (first, last)]
    assert torch.equal(*f) and torch.equal(first.head(f[0]), last.head(f[1])[:, :2])
    assert not torch.equal(last.head(f[0])[:, :2], aligned.head(f[0])[:, :2])
    assert torch.equal(first.of_f.means, aligned.of_f.means[:2]) and aligned.of_f.sizes.all()


def test_prompts_start_as_the_last_and_are_mixed_with_the_mean_of_old_ones():
    method = learned(2, ensemble=0.25)
    old, e = torch.stack([*method.p]), torch.full_like(method.p[0], 3.0)
    third = toys.method("hide-prompt", 3, ensemble=0.25)
    for index in range(3):
        third.grow(info(index))
        third.load_state({**third.state(), **(method.state() if index == 1 else {})})
    assert torch.equal(third.p[2], old[1])
    third.begin_task(info(2), None)
    third.p[2].detach().copy_(e)
    expected = 0.75 * e + 0.25 * old.mean(0)
    assert torch.allclose(third.mixed(), expected)
    third.mixed().sum().backward()
    assert torch.allclose(third.p[2].grad, torch.full_like(e, 0.75))
    assert third.p[0].grad is None and not third.p[0].requires_grad
    third.end_task(toys.stream(TASKS).task(2), Trainer(0))
    assert torch.allclose(third.p[2], expected)
    assert torch.equal(learned(1, ensemble=0.25).p[0], learned(1, ensemble=0.0).p[0])


def test_the_loss_is_that_of_the_tasks_own_classes_and_of_rows_that_are_to_be_apart():
    method, stream = after(1, "hide-prompt", contrast=0.7), toys.stream(TASKS)
    task = stream.task(1)
    method.grow(task)
    method.begin_task(task, None)
    [batch] = task.plain(100)
    f = method.features(batch.images, method.mixed()[None])
    m = torch.cat([method.of_f.means[:2].flatten(0, 1), f])  # two centers of each old class
    rows = [(m[i] @ m.T / 0.8).log_softmax(0)[i] for i in range(len(m))]
    expected = F.cross_entropy(method.head.heads[1](f), batch.labels - 2) - 0.7 * sum(rows) / len(rows)
    assert method.loss(batch, task).item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_task_of_the_best_class_lends_its_prompt():
    method = learned()
    q = toys.backbone().features(IMAGES)
    tii = method.tii
    mapped = F.layer_norm(
        q + F.gelu(q @ tii.up.weight.T + tii.up.bias) @ tii.down.weight.T + tii.down.bias, (32,),
        tii.norm.weight, tii.norm.bias, 1e-5,
    )  # fmt: skip
    best = torch.cat([head(mapped) for head in tii.head.heads], dim=1).argmax(1)
    tasks = [(0, 0, 1, 1, 1, 2, 2)[c] for c in best.tolist()]
    with torch.no_grad():
        alone = [
            method.head(method.features(x[None], method.p[t][None]))
            for x, t in zip(IMAGES, tasks, strict=True)
        ]
    assert torch.allclose(method.predict(Batch(IMAGES)), torch.cat(alone), atol=1e-5)


def test_alignment_is_of_all_classes_in_both_spaces_after_every_task_but_the_first():
    first, two = learned(1), learned(2, align_passes=20)
    plain = learned(2, align_passes=0)
    assert first.diagnostics() == {"alignment_losses": {}} == plain.diagnostics()
    for name, losses in two.diagnostics()["alignment_losses"].items():
        assert name in "gh" and len(losses) == 2 and losses[1] < losses[0]
    for part in ("tii", "head"):
        one, other = (getattr(method, part).state_dict() for method in (plain, two))
        assert all(not torch.equal(value, other[key]) for key, value in one.items())
    assert torch.equal(plain.of_q.means, two.of_q.means) and torch.equal(plain.p[1], two.p[1])


@pytest.mark.parametrize("statistics", ["centroids", "gaussian"])
def test_classes_are_described_by_both_networks_as_at_evaluation(statistics):
    method, task = learned(statistics=statistics, centroids=1), toys.stream(TASKS).task(2)
    [batch] = task.plain(100)
    with torch.no_grad():
        spaces = (method.backbone.features(batch.images), method.features(batch.images, method.p[2][None]))
    for known, x in zip((method.of_q, method.of_f), spaces, strict=True):
        expected = torch.stack([x[task.labels == label].mean(0) for label in (5, 6)])
        assert torch.allclose(known.centers(7)[5:], expected, atol=1e-5)
    assert method.keeps.startswith("centroids" if statistics == "centroids" else "two Gaussians")


def test_rates_fall_in_steps_or_along_half_a_cosine_to_the_same_end_for_prompts_and_head():
    def rates(**options):
        method = toys.method("hide-prompt", 3, passes=4, learning_rate=0.02, end_rate=0.001, **options)
        method.grow(info(0))
        phase = method.phases(info(0))[1]
        groups = phase.optimizer().param_groups
        return [[group["lr"] * phase.rate(done, group) for group in groups] for done in range(4)]

    steps = rates(step_passes=2)
    assert steps[1:3] == [pytest.approx([0.02, 0.002]), pytest.approx([0.002, 0.0002])]
    late = rates(step_passes=2, schedule_lag="pass_asis")
    assert late[2] == steps[1] and late[3] == steps[2]
    cosine = rates(schedule="cosine")
    assert cosine[0] == pytest.approx([0.02, 0.002]) and cosine[2] == pytest.approx([0.0105, 0.0015])
    assert rates(schedule="cosine", schedule_lag="pass_asis")[3] == cosine[2]


def test_gradients_are_clipped_in_both_stages():
    method = toys.method("hide-prompt", 3, grad_clip=1e-3)
    method.grow(info(0))
    [batch] = toys.stream(TASKS).task(0).plain(100)
    for phase in method.phases(info(0)):
        phase.loss(batch).backward()
        phase.after_backward()
        parts = [p for group in phase.optimizer().param_groups for p in group["params"]]
        assert torch.stack([p.grad.norm() for p in parts]).norm().item() == pytest.approx(1e-3, rel=1e-2)


def test_as_published_images_of_a_batch_are_handed_each_others_keys_and_values():
    method = learned(prefix_reshape="reshape_asis")
    p = torch.stack([*method.p])[[0, 2]]  # of two images
    K, V = method.prefixes(p, 2).blocks[0]
    assert torch.equal(torch.stack([K[0], V[0]]), p[:, 0, 0])  # the keys of both
    assert torch.equal(torch.stack([K[1], V[1]]), p[:, 0, 1])
    assert method.predicts_together == 24 and learned().predicts_together is None


def test_as_published_classes_to_come_compete_by_rows_as_they_will_start():
    method = toys.method("hide-prompt", 3, eval_classes="all", passes=1, tii_passes=1)
    method.stream = toys.StreamInfo(1, 3, task_sizes=(2, 3, 2))
    toys.learn(method, toys.stream(TASKS), upto=1)
    scores = method.predict(Batch(IMAGES))
    assert scores.shape == (7, 7) and torch.equal(
        scores[:, :2], method.head(method.features(IMAGES, method.p[0][None]))
    )
    untrained = method.untrained[1].weight
    method.grow(info(1))
    assert torch.equal(method.head.heads[1].weight, untrained)


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        ({"layers": 3}, {}, "layers=3 need 3 blocks, backbone 'toy' has 2; give fewer"),
        (
            {},
            {"class_token": False, "global_pool": "avg"},
            "HiDe-Prompt needs a backbone that reads its class",
        ),
    ],
)
def test_what_cannot_be_is_refused(options, changes, message):
    with pytest.raises(InputError, match=message):
        toys.method("hide-prompt", 3, toys.backbone(**changes), **options)


def test_what_it_costs_and_keeps():
    """Of 24 images in the first task: three passes for g, two for prompts, one for statistics."""
    method = toys.method("hide-prompt", 3, passes=2, tii_passes=3)
    [trainer] = toys.learn(method, toys.stream(TASKS), upto=1)
    assert trainer.images_seen == method.images_seen(info(0), 24) == (3 + 2 + 1) * 24
    assert method.forwards(info(0), 24, True) == 2 * 2 * 24 + 24 + (3 + 1) * 24
    assert method.forwards(info(0), 24, False) == 2 * 2 * 24 + 24 + 24
    assert method.prediction_passes == 2 and method.settled_passes == 1
    extra, both = learned().extra(), 2 * 64 * 32 + 7 * 32
    assert extra.image == both + 2 * 3 * 5 * 32 and extra.keys == {0: 5}
    assert extra.task == 3 * 5 * 7 * (24 * both + 20 * 7 * 32)
    sizes = {name: value.numel() for name, value in learned().state().items()}
    assert sizes["of_q.means"] == sizes["of_f.variances"] == 7 * 2 * 32 and sizes["p.2"] == 2 * 5 * 32
    only = toys.method("hide-prompt", 1)
    assert only.statistics_images(info(0), 24) == 0
