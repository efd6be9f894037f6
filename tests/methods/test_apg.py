"""APG: what its losses compare, what is kept of old classes, what the published program does otherwise."""

import numpy as np
import pytest
import torch
import toys
from cl_bench.methods.apg import AsRun
from lessons import TASKS, after
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from cl_bench.data.batch import Batch
from cl_bench.data.mixing import mixed
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.errors import InputError
from cl_bench.training import work
from cl_bench.training.trainer import Trainer

IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
PUBLISHED = {key: value for key, value in AsRun.AS_PUBLISHED.items() if key in AsRun.Config.model_fields}
FIRST, SECOND = TaskInfo(0, (2, 0), 0), TaskInfo(1, (1, 3, 4), 2)


def begun(upto: int = 0, **options) -> tuple[AsRun, Batch]:
    """A method at the begin of a task, and a batch of its images."""
    method = after(upto, "apg", dropout=0.0, **options)
    task = toys.stream(TASKS).task(upto)
    method.grow(task)
    method.begin_task(task, Trainer(data_seed=0))
    return method, next(task.plain(8))


def test_the_prompt_is_made_of_the_class_token_behind_the_lower_half_and_joins_the_tokens_there():
    method = after(1, "apg")
    x = method.backbone.hidden(IMAGES, 1)
    p, _ = method.generator(x[:, 0])
    joined = torch.cat([x[:, :1], p[:, None], x[:, 1:]], dim=1)
    f = method.backbone.finish(joined, 1)
    assert method.lower == 1 and torch.allclose(method.predict(Batch(IMAGES)), method.head(f), atol=1e-5)
    assert toys.method("apg", 3, toys.backbone(depth=4)).lower == 2
    assert toys.method("apg", 3, toys.backbone(depth=4), lower=3).lower == 3


@pytest.mark.parametrize("labels", ["mixed", "first_asis"])
def test_the_loss_of_images_is_that_of_mixed_labels_attention_and_the_length_of_prompts(labels):
    method, batch = begun(attention_labels=labels, norm_factor=0.01)
    with torch.no_grad():
        method.generator.mlp_out[-2].weight.mul_(1e4)  # so that prompts are too long
    images, share = mixed(batch.images, np.random.default_rng(method.seed("mixing", FIRST)))
    x = method.tokens(images)
    p, A = method.generator(x[:, 0])
    one, other = F.one_hot(batch.labels, 2).float(), F.one_hot(batch.labels.flip(0), 2).float()
    y = share * one + (1 - share) * other
    z = method.head(method.features(x, p)).log_softmax(1)
    expected = -(z * (0.9 * y + 0.05)).sum(1).mean()
    looked = y if labels == "mixed" else one
    expected += -torch.stack([(A[:, head].log_softmax(1) * looked).sum(1) for head in range(4)]).mean()
    excess = p.abs().sum(1).mean() - 0.01 * x.abs().sum(2).mean()
    assert excess > 0 and 0 < share < 1
    assert method.loss(batch, FIRST).item() == pytest.approx((expected + 0.01 * excess).item(), rel=1e-5)


def test_without_mixing_and_smoothing_images_count_by_themselves():
    method, batch = begun(mixing=False, smoothing=0.0)
    x = method.tokens(batch.images)
    p, A = method.generator(x[:, 0])
    expected = F.cross_entropy(method.head(method.features(x, p)), batch.labels)
    expected = expected + F.cross_entropy(A.flatten(0, 1), batch.labels.repeat_interleave(4))
    assert method.loss(batch, FIRST).item() == pytest.approx(expected.item(), rel=1e-5)


def test_from_the_second_task_on_old_prompts_are_held_and_old_features_classified():
    method, batch = begun(1, mixing=False)
    pair = next(method.library.draws(2, method.config.library_batch, method.seed("old classes", SECOND)))
    assert pair.labels.max() == 1
    h, f = pair.images[:, 0], pair.images[:, 1]
    held = (method.generator(h)[0] - method.library.prompts[pair.labels]).abs().mean()
    expected = held - method.head(f).log_softmax(1)[range(len(f)), pair.labels].mean()
    method.old, drawn = None, method.old
    alone = method.loss(batch, SECOND)
    method.old = drawn
    assert (method.loss(batch, SECOND) - alone).item() == pytest.approx(expected.item(), rel=1e-4)


def test_tokens_and_library_of_old_classes_stay_bit_for_bit_and_all_proxies_move():
    one, two = (after(upto, "apg") for upto in (1, 2))
    kept = ["library.h.means", "library.h.factors", "library.f.means", "library.f.factors", "library.prompts"]
    for name in kept:
        assert torch.equal(two.state()[name][:2], one.state()[name]) and two.state()[name][2:].any(), name
    assert torch.equal(two.generator.tokens[0], one.generator.tokens[0])
    assert not torch.isclose(two.head.weight[:20], one.head.weight).any(dim=1).all()


def test_the_library_is_that_of_the_refined_generator_and_not_needed_after_the_last_task():
    method, stream = after(2, "apg"), toys.stream(TASKS)
    task = stream.task(1)
    before = {name: value.clone() for name, value in method.state().items() if name.startswith("library")}
    method.describe(task, Trainer(data_seed=0))
    for name, value in before.items():
        assert torch.allclose(method.state()[name], value, atol=1e-5), name
    infos = [TaskInfo(index, (0, 1), 2 * index) for index in range(3)]
    assert [method.statistics_images(info, 10) for info in infos] == [10, 20, 10]
    alone = toys.method("apg", 1)
    assert alone.statistics_images(infos[0], 10) == 0


@pytest.mark.parametrize("mean", ["true", "shuffled_asis"])
def test_mean_prompts_are_those_of_each_class_and_as_published_of_a_shuffled_task(mean):
    method, _ = begun(prompt_mean=mean)
    task = toys.stream(TASKS).task(0)
    method.describe(task, Trainer(data_seed=0))
    whole = next(task.plain(24))
    with torch.no_grad():
        p, _ = method.generator(method.tokens(whole.images)[:, 0])
    if mean == "shuffled_asis":
        p = p[torch.randperm(24, generator=torch.Generator().manual_seed(0))]
    for label in range(2):
        assert torch.allclose(method.library.prompts[label], p[whole.labels == label].mean(0), atol=1e-6)


def test_as_published_the_first_task_is_predicted_without_prompts():
    method = after(1, "apg", first_prediction="bare_asis")
    expected = method.head(method.backbone.features(IMAGES))
    assert torch.allclose(method.predict(Batch(IMAGES)), expected, atol=1e-6)
    right = after(1, "apg")
    assert torch.equal(right.head.weight, method.head.weight)  # nothing else differs
    assert not torch.allclose(right.predict(Batch(IMAGES)), expected, atol=1e-3)
    second = [
        after(2, "apg", first_prediction=name).predict(Batch(IMAGES)) for name in ("prompt", "bare_asis")
    ]
    assert torch.equal(*second)


def test_as_published_rates_start_unscaled_and_come_late_and_partial_batches_are_left_out():
    method = toys.method("apg", 3, **{**PUBLISHED, "learning_rate": 1e-4, "passes": 10, "warm_up": 5})
    [first], [second] = method.phases(FIRST), method.phases(SECOND)
    assert first.drop_last and second.drop_last
    method.grow(FIRST)
    rates = []
    for phase, top in ((first, 1e-3), (second, 1e-4)):
        assert phase.optimizer().param_groups[0]["lr"] == top
        rates.append([top * phase.rate(done, {}) for done in range(3)])
    start = method.config.start_rate
    assert rates[0] == pytest.approx([start, start, start + (1e-3 - start) / 5])
    assert rates[1] == pytest.approx([start, start, start + (1e-4 - start) / 5])
    [default] = toys.method("apg", 3, learning_rate=1e-4, warm_up=5).phases(FIRST)
    assert not default.drop_last and default.rate(1, {}) == pytest.approx(
        start / 1e-4 + (1 - start / 1e-4) / 5
    )


def test_as_published_branches_of_the_frozen_network_are_left_out_while_images_are_learned_alone():
    method, _ = begun(1, drop_path=0.5)
    x = method.tokens(IMAGES)
    f = method.features(x, x[:, 0])
    assert torch.equal(method.features(x, x[:, 0]), f)
    method.train()
    assert not torch.allclose(method.features(x, x[:, 0]), f, atol=1e-3)
    assert not method.backbone.vit.training


def test_the_refinement_grows_with_the_tasks_and_has_no_dropout():
    method = toys.method("apg", 4, refine_passes=20, refine_growth=5)
    assert [method.refinement(TaskInfo(t, (), 0)).passes for t in (1, 3)] == [25, 35]
    method, seen = after(1, "apg", dropout=0.5), []
    original = method.library_loss
    method.library_loss = lambda batch: seen.append(method.generator.training) or original(batch)
    toys.learn(method, toys.stream(TASKS), 2, 1)
    steps = 3 * (36 // 12)
    assert seen[:steps] == [True] * steps and set(seen[steps:]) == {False}


def test_a_prediction_takes_as_much_more_than_the_bare_network_as_planned():
    method = toys.method("apg", 1)
    method.grow(TaskInfo(0, tuple(range(300)), 0))

    def flops(act, count: int) -> int:
        with FlopCounterMode(display=False) as counter:
            act(torch.randn(count, 3, 16, 16))
        return counter.get_total_flops()

    acts = (method.backbone.features, lambda images: method.predict(Batch(images)))
    bare, own = (flops(act, 2) - flops(act, 1) for act in acts)
    assert own / bare == pytest.approx(work.of(method, 16).predicting, rel=0.05) and own > 1.3 * bare


def test_networks_it_cannot_work_with_are_refused():
    options = AsRun.Config()
    for changes, message in (
        ({"class_token": False, "global_pool": "avg"}, "APG needs a backbone that reads its class token"),
        ({"depth": 1}, "1 below the prompt and one above it need 2 blocks"),
        ({"embed_dim": 30, "num_heads": 3}, "attends with 4 heads"),
    ):
        with pytest.raises(InputError, match=message):
            AsRun(options, toys.backbone(**changes), StreamInfo(1, 3))
