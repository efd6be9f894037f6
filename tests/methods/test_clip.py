"""The invariants of the CLIP methods."""

import open_clip
import pytest
import torch
import toys
from toys import equal

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo
from cl_bench.errors import InputError, RunFailed
from cl_bench.nn import gaussians
from cl_bench.training.trainer import Trainer

TASKS = [[2, 0], [1, 3, 4], [5, 6]]


@pytest.fixture(scope="module")
def images():
    return torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def learned(name: str, tasks=TASKS, upto=None, **options):
    stream = toys.stream(tasks, joint=toys.method_class(name).joint)
    method = toys.method(name, stream.num_tasks, **options)
    toys.learn(method, stream, upto=upto)
    return method, stream


@torch.no_grad()
def test_zero_shot_equals_open_clips_own_zero_shot(images):
    method, stream = learned("clip-zeroshot", TASKS)
    theirs = toys.open_clip_model("tiny-test-quickgelu")
    tokens = open_clip.get_tokenizer("tiny-test")(
        [f"a photo of a class {c}." for task in TASKS for c in task]
    )
    image, text = theirs.encode_image(images, normalize=True), theirs.encode_text(tokens, normalize=True)
    assert torch.allclose(method.predict(Batch(images)), theirs.logit_scale.exp() * image @ text.T, atol=1e-4)
    assert sum(parameter.numel() for parameter in method.parameters() if parameter.requires_grad) == 0
    untrained = toys.method("clip-seq", 3, refine_head=False, passes=1, learning_rate=1e-12)
    untrained.prompts.P = torch.nn.Parameter(untrained.P[:, :0])  # no prompts
    untrained.grow(stream.info(0))
    untrained.begin_task(stream.info(0), None)
    assert torch.allclose(untrained.predict(Batch(images)), method.predict(Batch(images))[:, :2], atol=1e-4)


def test_nsp2_without_refinement_projection_and_ln_is_sequential_tuning_bit_for_bit():
    plain = learned("clip-seq", refine_head=False)[0].state()
    bare = learned("clip-nsp2", refine_head=False, b1=False, b2=False, ln=False)[0].state()
    assert set(plain) <= set(bare) and equal(plain, bare)
    identity = learned("clip-nsp2", refine_head=False, eta=0.0, ln=False, passes=1)[
        0
    ].state()  # B = I, up to one more rounding a step
    close = learned("clip-seq", refine_head=False, passes=1)[0].state()
    assert all(torch.allclose(value, identity[key], atol=1e-3) for key, value in close.items())
    projected = learned("clip-nsp2", refine_head=False)[0].state()
    assert not torch.equal(projected["prompts.P"], plain["prompts.P"])


def test_only_prompts_and_the_logit_scale_are_trained_and_the_towers_stay():
    method, _ = learned("clip-seq", refine_head=False)
    assert sum(p.numel() for p in method.parameters() if p.requires_grad) == 2 * 8 * 64 + 1
    fresh = toys.clip_backbone()
    assert equal(fresh.state_dict(), method.backbone.state_dict())
    assert torch.equal(method.head.weight, fresh.text.projection) and method.head.bias.abs().max() == 0
    assert "means" not in method.state() and method.logit_scale.item() != pytest.approx(
        fresh.text.scale, abs=1e-6
    )


def test_scores_are_bounded_by_the_logit_scale_and_new_classes_leave_old_scores_alone(images):
    method, stream = learned("clip-seq", upto=2)
    before = method.predict(Batch(images))
    assert before.abs().max() <= method.logit_scale.exp() * (1 + 1e-6)
    method.grow(stream.info(2))
    method.begin_task(stream.info(2), None)
    assert torch.allclose(method.predict(Batch(images))[:, :5], before, atol=1e-5) and method.predict(
        Batch(images)
    ).shape == (6, 7)


def test_refinement_changes_the_projection_alone_and_covariances_do_not_depend_on_it():
    refined, _ = learned("clip-nsp2", upto=1)
    plain, _ = learned("clip-nsp2", upto=1, refine_head=False)
    assert (
        equal(plain.state(), refined.state(), skip="head.") and plain.B1.abs().max() > 0
    )  # B1, B2 and prompts too
    assert not torch.equal(plain.head.weight, refined.head.weight) and refined.head.bias.abs().max() > 0
    assert not refined.head.weight.requires_grad and refined.head.weight.grad is None
    without = learned("clip-seq", upto=1, visual_bias=False)[0]
    assert without.head.bias is None


def test_class_statistics_are_those_of_each_class_in_stream_order_for_any_batch_size():
    method, stream = learned("clip-seq", upto=1, refine_passes=1)
    other = toys.method("clip-seq", 3, refine_passes=1)
    other.statistics_batch = 5
    toys.learn(other, stream, upto=1)
    assert torch.allclose(method.gaussians.means, other.gaussians.means, atol=1e-5) and torch.allclose(
        method.gaussians.factors, other.gaussians.factors, atol=1e-4
    )
    task = stream.task(0)
    features = torch.cat(
        [method.backbone.features(x, method.prompts) for x in (batch.images for batch in task.plain(100))]
    ).detach()
    for label in range(2):
        own = features[task.labels == label].double()
        assert torch.allclose(method.gaussians.means[label].double(), own.mean(0), atol=1e-5)
        factor = gaussians.unpack(method.gaussians.factors, 64)[label].double()
        assert torch.allclose(factor @ factor.T, torch.cov(own.T) + 1e-4 * torch.eye(64), atol=1e-4)
    toys.learn(method, stream, start=1)
    assert len(method.gaussians.means) == len(method.text_features) == 7 and method.diagnostics()[
        "class_statistics_bytes"
    ] == 7 * 4 * (64 + 64 * 65 // 2)


def test_statistics_and_covariances_share_one_pass():
    stream = toys.stream(TASKS)
    for name, passes in (("clip-nsp2", 1), ("clip-seq", 1)):
        method = toys.method(name, 3, passes=2)
        trainer = Trainer(data_seed=3)
        method.learn(stream.task(0), trainer)
        assert trainer.images_seen == (2 + passes) * len(stream.task(0))


def test_the_refinement_loss_falls():
    first, last = learned("clip-seq", upto=1, refine_learning_rate=1e-3, refine_passes=20)[0].diagnostics()[
        "refinement_losses"
    ]
    assert last < first


@pytest.mark.parametrize("name", ["clip-seq", "clip-nsp2"])
def test_a_resumed_run_has_its_text_features_and_statistics_from_the_checkpoint(name):
    whole, stream = learned(name)
    part, _ = learned(name, upto=2)
    resumed = toys.method(name, 3)
    for index in range(2):
        resumed.grow(stream.info(index))
    resumed.load_state({key: value.clone() for key, value in part.state().items()})
    asked = []
    original = resumed.backbone.text.encode
    resumed.backbone.text.encode = lambda names, templates: asked.append(names) or original(names, templates)
    toys.learn(resumed, stream, start=2)
    assert asked == [("class 5", "class 6")] and equal(whole.state(), resumed.state())


def test_checkpoints_name_the_gaussians_as_they_did_before_these_were_a_part():
    """Runs that were begun then go on: their checkpoints hold `means` and `factors` beside the rest."""
    method, stream = learned("clip-nsp2", upto=2)
    prompts, moments = {"prompts.P", "logit_scale"}, {"B1", "B2", "C1", "C2", "P_prev"}
    head = {"head.weight", "head.bias", "text_features"}
    assert set(method.state()) == {"means", "factors"} | head | prompts | moments
    assert torch.equal(method.state()["means"], method.gaussians.means)
    resumed = toys.method("clip-nsp2", 3)
    for index in range(2):
        resumed.grow(stream.info(index))
    resumed.load_state({name: torch.full_like(value, 2.0) for name, value in method.state().items()})
    assert resumed.gaussians.means.eq(2).all() and resumed.gaussians.factors.eq(2).all()
    nested = {f"gaussians.{name}": method.state()[name] for name in ("means", "factors")}
    with pytest.raises(RuntimeError, match="the checkpoint holds .*gaussians.factors.* where the method"):
        resumed.load_state({**method.state(), **nested})


def test_the_paper_prompts_three_blocks_and_the_code_four():
    assert toys.method_class("clip-seq").Config().layers == 4
    with pytest.raises(InputError, match="layers=3, but backbone .* has 2 blocks"):
        toys.method("clip-seq", 1, layers=3)


@pytest.mark.parametrize("name", ["clip-seq", "clip-nsp2", "clip-joint", "clip-zeroshot"])
def test_a_backbone_without_text_is_refused(name):
    with pytest.raises(
        InputError, match="has no text tower; .*--backbone open_clip:ViT-B-16-quickgelu/openai"
    ):
        toys.method(name, 1, trunk=toys.backbone())


def test_diagnostics_hold_both_the_nullities_and_the_refinement():
    found = learned("clip-nsp2", upto=1)[0].diagnostics()
    assert {"R1", "R2", "logit_scale", "refinement_losses", "class_statistics_bytes"} <= set(found)


def test_a_refinement_that_diverges_fails_the_run():
    with pytest.raises(
        RunFailed, match="refinement loss of task 1 became nan in pass .*; lower refine_learning_rate"
    ):
        learned("clip-seq", upto=1, refine_learning_rate=1e38)


def test_the_sentences_reach_the_text_tower():
    stream = toys.stream(TASKS)
    kind = toys.method_class("clip-zeroshot")
    found = []
    for templates in (("a photo of a {}.",), ("art of the {}.",)):
        method = kind(kind.Config(), toys.clip_backbone(), StreamInfo(1, 3, templates))
        toys.learn(method, stream, upto=1)
        found.append(method.text_features)
    assert not torch.allclose(found[0], found[1], atol=1e-3)
