"""CLIP through open_clip: both towers equal open_clip's own, and the invariants of the CLIP methods."""

import itertools
import json

import numpy as np
import open_clip
import pytest
import timm
import torch
import toys
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from cl_bench.config import BackboneSpec
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo
from cl_bench.errors import InputError, RunFailed
from cl_bench.nn import clip, gaussians, load
from cl_bench.nn.load import require_plain
from cl_bench.training.trainer import Trainer

TASKS = [[2, 0], [1, 3, 4], [5, 6]]
TEMPLATES = ("a photo of a {}.", "art of the {}", "itap of a {}.")
NAMES = ["goldfish", "hot dog", "tree frog"]


@pytest.fixture(scope="module")
def images():
    return torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def reference(name: str) -> torch.nn.Module:
    """open_clip's own model with the same weights."""
    model = open_clip.create_model(name, load_weights=False)
    model.load_state_dict(load_file(toys.clip_files()[1]))
    return model.eval()


def loaded(name: str):
    return load.load(load.resolve(f"open_clip:{name}", None, str(toys.clip_files()[1]), {}))


def learned(name: str, tasks=TASKS, upto=None, **options):
    stream = toys.stream(tasks, joint=toys.method_class(name).joint)
    method = toys.method(name, stream.num_tasks, **options)
    toys.learn(method, stream, upto=upto)
    return method, stream


def equal(a: dict, b: dict, skip: str = "\n") -> bool:
    return all(torch.equal(value, b[key]) for key, value in a.items() if skip not in key)


@pytest.mark.parametrize("name", ["tiny-test", "tiny-test-quickgelu"])
@torch.no_grad()
def test_both_towers_equal_open_clips_own(name, images):
    ours, theirs = loaded(name), reference(name)
    assert torch.allclose(
        ours.features(images) @ ours.text.projection.T, theirs.encode_image(images), atol=1e-5
    )
    tokens = open_clip.get_tokenizer(name)([TEMPLATES[0].format(c) for c in NAMES])
    assert torch.allclose(
        ours.text.encode(NAMES, TEMPLATES[:1]), theirs.encode_text(tokens, normalize=True), atol=1e-5
    )
    assert ours.text.scale == pytest.approx(
        np.log(1 / 0.07), rel=1e-6
    )  # open_clip's own initial value; OpenAI's weights have ln 100
    assert ours.spec.mean == open_clip.OPENAI_DATASET_MEAN and ours.spec.image_size == 16


@torch.no_grad()
def test_the_activation_matters(images):
    assert not torch.allclose(
        loaded("tiny-test").features(images), loaded("tiny-test-quickgelu").features(images), atol=1e-3
    )


@torch.no_grad()
def test_another_image_size_resamples_the_position_embedding(images):
    trunk = load.load(load.resolve("open_clip:tiny-test", 32, str(toys.clip_files()[1]), {}))
    assert trunk.features(F.interpolate(images, 32)).shape == (6, 64) and trunk.vit.pos_embed.shape == (
        1,
        17,
        64,
    )


@torch.no_grad()
def test_class_features_are_unit_vectors_of_a_mean_that_order_and_company_do_not_change(monkeypatch):
    text = loaded("tiny-test").text
    theirs, tokenizer = reference("tiny-test"), open_clip.get_tokenizer("tiny-test")
    by_hand = torch.stack(
        [
            F.normalize(theirs.encode_text(tokenizer([t.format(c) for t in TEMPLATES])), dim=1).mean(0)
            for c in NAMES
        ]
    )
    found = text.encode(NAMES, TEMPLATES)
    assert torch.allclose(found, F.normalize(by_hand, dim=1), atol=1e-5) and torch.allclose(
        found.norm(dim=1), torch.ones(3), atol=1e-6
    )
    for templates in itertools.permutations(TEMPLATES):
        assert torch.allclose(text.encode(NAMES, templates), found, atol=1e-6)
    monkeypatch.setattr(clip, "SENTENCES", 2)
    alone = torch.cat([text.encode([name], TEMPLATES) for name in NAMES])
    assert torch.allclose(alone, found, atol=1e-6)


@torch.no_grad()
def test_zero_shot_equals_open_clips_own_zero_shot(images):
    method, stream = learned("clip-zeroshot", TASKS)
    theirs = reference("tiny-test-quickgelu")
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
    assert torch.allclose(method.means, other.means, atol=1e-5) and torch.allclose(
        method.factors, other.factors, atol=1e-4
    )
    task = stream.task(0)
    features = torch.cat(
        [method.backbone.features(x, method.prompts) for x in (batch.images for batch in task.plain(100))]
    ).detach()
    for label in range(2):
        own = features[task.labels == label].double()
        assert torch.allclose(method.means[label].double(), own.mean(0), atol=1e-5)
        factor = gaussians.unpack(method.factors, 64)[label].double()
        assert torch.allclose(factor @ factor.T, torch.cov(own.T) + 1e-4 * torch.eye(64), atol=1e-4)
    toys.learn(method, stream, start=1)
    assert len(method.means) == len(method.text_features) == 7 and method.diagnostics()[
        "class_statistics_bytes"
    ] == 7 * 4 * (64 + 64 * 65 // 2)


def test_statistics_and_covariances_share_one_pass():
    stream = toys.stream(TASKS)
    for name, passes in (("clip-nsp2", 1), ("clip-seq", 1)):
        method = toys.method(name, 3, passes=2)
        trainer = Trainer(data_seed=3)
        method.learn(stream.task(0), trainer)
        assert trainer.images_seen == (2 + passes) * len(stream.task(0))


def test_a_gaussian_is_positive_definite_and_its_draws_have_its_moments():
    x = (
        torch.randn(20, 12, generator=torch.Generator().manual_seed(0)) * 3 + 1
    )  # fewer images than twice the width
    mean, packed = gaussians.fit(x[:5], 1e-4)
    factor = gaussians.unpack(packed[None], 12)[0].double()
    assert torch.linalg.eigvalsh(factor @ factor.T).min() >= 1e-4 * (1 - 1e-2)  # stored in float32
    mean, packed = gaussians.fit(x, 1e-4)
    count = 100_000
    draws = gaussians.sample(
        mean.expand(2, -1), packed.expand(2, -1), count, torch.Generator().manual_seed(1)
    )
    assert draws.shape == (2, count, 12) and not torch.equal(draws[0], draws[1])
    expected = torch.cov(x.T.double()) + 1e-4 * torch.eye(12)
    error = expected.diagonal().sqrt() / count**0.5
    assert ((draws[0].double().mean(0) - x.double().mean(0)).abs() < 5 * error).all()
    assert torch.allclose(torch.cov(draws[0].T.double()), expected, atol=0.15)
    single, packed = gaussians.fit(x[:1], 1e-4)
    assert torch.equal(single, x[0]) and torch.allclose(
        gaussians.unpack(packed[None], 12)[0], 1e-2 * torch.eye(12), atol=1e-6
    )


def test_more_classes_than_are_unpacked_at_a_time_draw_the_same(monkeypatch):
    means, packed = torch.randn(5, 3), torch.rand(5, 6)
    whole = gaussians.sample(means, packed, 4, torch.Generator().manual_seed(0))
    assert torch.allclose(whole[4], means[4] + (whole[4] - means[4]))
    monkeypatch.setattr(gaussians, "CLASSES", 2)
    assert gaussians.sample(means, packed, 4, torch.Generator().manual_seed(0)).shape == whole.shape


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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "open_clip:ViT-B-16-quickgel/openai",
            "unknown open_clip model 'ViT-B-16-quickgel'; did you mean 'ViT-B-16-quickgelu'",
        ),
        (
            "open_clip:ViT-B-16-quickgelu/openia",
            "unknown checkpoint of open_clip model ViT-B-16-quickgelu 'openia'; did you mean 'openai'",
        ),
        (
            "open_clip:ViT-B-16/openai",
            "another activation than they were trained with; use open_clip:ViT-B-16-quickgelu/openai",
        ),
        (
            "open_clip:ViT-B-16-quickgelu",
            "names several checkpoints; give one of: open_clip:ViT-B-16-quickgelu/openai",
        ),
    ],
)
def test_names_that_are_not_one_checkpoint_are_refused(name, message):
    with pytest.raises(InputError, match=message):
        load.resolve(name, None, None, {})


def test_timms_name_without_quickgelu_is_refused_where_the_weights_need_it():
    with pytest.raises(
        InputError,
        match="trained with QuickGELU on another activation; use vit_base_patch16_clip_quickgelu_224.openai",
    ):
        load.resolve("vit_base_patch16_clip_224.openai", None, None, {})
    assert load.resolve("vit_base_patch16_clip_quickgelu_224.openai", None, None, {}).image_size == 224


def test_diagnostics_hold_both_the_nullities_and_the_refinement():
    found = learned("clip-nsp2", upto=1)[0].diagnostics()
    assert {"R1", "R2", "logit_scale", "refinement_losses", "class_statistics_bytes"} <= set(found)


def test_a_refinement_that_diverges_fails_the_run():
    with pytest.raises(
        RunFailed, match="refinement loss of task 1 became nan in pass .*; lower refine_learning_rate"
    ):
        learned("clip-seq", upto=1, refine_learning_rate=1e38)


def test_the_published_pair_is_resolved_with_its_own_normalisation():
    spec = load.resolve("open_clip:ViT-B-16-quickgelu/openai", None, None, {})
    assert (spec.image_size, spec.weights) == (224, None)
    assert spec.mean == pytest.approx((0.4815, 0.4578, 0.4082), abs=1e-4) and spec.std == pytest.approx(
        (0.2686, 0.2613, 0.2758), abs=1e-4
    )


def test_a_failed_download_says_what_to_place_where(monkeypatch):
    def offline(*arguments, **settings):
        raise ConnectionError("no network")

    monkeypatch.setattr(open_clip, "create_model", offline)
    with pytest.raises(
        InputError,
        match=r"cannot download .*open_clip_model.safetensors "
        r"from huggingface.co/timm/vit_base_patch16_clip_224.openai ",
    ):
        load.load(load.resolve("open_clip:ViT-B-16-quickgelu/openai", None, None, {}))


def test_weights_that_do_not_fit_and_towers_that_are_no_plain_vit_are_refused(tmp_path):
    state = load_file(toys.clip_files()[1])
    save_file(
        {key: value for key, value in state.items() if key != "visual.proj"}, tmp_path / "part.safetensors"
    )
    with pytest.raises(InputError, match="do not fit 'open_clip:tiny-test': missing visual.proj"):
        load.load(load.resolve("open_clip:tiny-test", None, str(tmp_path / "part.safetensors"), {}))
    with pytest.raises(InputError, match="no weights file"):
        load.resolve("open_clip:tiny-test", None, str(tmp_path / "none.safetensors"), {})
    odd = open_clip.get_model_config("tiny-test")
    odd["vision_cfg"]["attentional_pool"] = True
    (tmp_path / "tiny-odd.json").write_text(json.dumps(odd))
    open_clip.add_model_config(tmp_path / "tiny-odd.json")
    with pytest.raises(InputError, match=r"no plain ViT \(attentional_pool\)"):
        load.load(load.resolve("open_clip:tiny-odd", None, str(toys.clip_files()[1]), {}))


def test_the_weights_digest_covers_the_text_tower(tmp_path, monkeypatch):
    digests = []
    for change in (0.0, 1.0):
        state = load_file(toys.clip_files()[1])
        state["text_projection"] += change
        model = open_clip.create_model("tiny-test", load_weights=False)
        model.load_state_dict(state)
        half = (0.5, 0.5, 0.5)
        spec = BackboneSpec(name="open_clip:tiny-test", image_size=16, mean=half, std=half)
        with monkeypatch.context() as downloaded:
            downloaded.setattr(open_clip, "create_model", lambda *_, model=model, **settings: model)
            digests.append(load.load(spec).weights_sha256)
    assert digests[0] != digests[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tag", "mean", "std"),
    [
        ("vit_base_patch16_224.augreg_in21k", (0.5,) * 3, (0.5,) * 3),
        ("vit_base_patch16_224.augreg_in1k", (0.5,) * 3, (0.5,) * 3),
        ("vit_base_patch16_224.dino", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("vit_base_patch16_224_miil.in21k", (0.0,) * 3, (1.0,) * 3),
        ("vit_base_patch16_clip_224.laion2b", (0.4815, 0.4578, 0.4082), (0.2686, 0.2613, 0.2758)),
    ],
)
def test_the_papers_five_backbones_are_plain_vits_with_their_own_normalisation(tag, mean, std, tmp_path):
    spec = load.resolve(tag, None, None, {})
    assert (
        spec.image_size == 224
        and spec.mean == pytest.approx(mean, abs=1e-4)
        and spec.std == pytest.approx(std, abs=1e-4)
    )
    vit = timm.create_model(tag, pretrained=False, num_classes=0)
    require_plain(vit, tag)
    assert (vit.embed_dim, len(vit.blocks)) == (768, 12)
    path = tmp_path / "w.safetensors"
    save_file({key: value.clone() for key, value in vit.state_dict().items()}, path)
    trunk = load.load(load.resolve(tag, None, str(path), {}))
    assert equal(vit.state_dict(), trunk.vit.state_dict()) and trunk.text is None


def test_the_sentences_reach_the_text_tower():
    stream = toys.stream(TASKS)
    kind = toys.method_class("clip-zeroshot")
    found = []
    for templates in (("a photo of a {}.",), ("art of the {}.",)):
        method = kind(kind.Config(), toys.clip_backbone(), StreamInfo(1, 3, templates))
        toys.learn(method, stream, upto=1)
        found.append(method.text_features)
    assert not torch.allclose(found[0], found[1], atol=1e-3)
