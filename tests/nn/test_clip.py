"""CLIP through open_clip: both towers equal open_clip's own, and what cannot be loaded is refused."""

import itertools
import json

import hub_server
import numpy as np
import open_clip
import pytest
import timm
import torch
import toys
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from toys import equal

from cl_bench.config import BackboneSpec
from cl_bench.errors import DownloadFailed, InputError
from cl_bench.nn import clip, load
from cl_bench.nn.load import require_plain

TEMPLATES = ("a photo of a {}.", "art of the {}", "itap of a {}.")


NAMES = ["goldfish", "hot dog", "tree frog"]


@pytest.fixture(scope="module")
def images():
    return torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def loaded(name: str):
    return load.load(load.resolve(f"open_clip:{name}", None, str(toys.clip_files()[1]), {}))


@pytest.mark.parametrize("name", ["tiny-test", "tiny-test-quickgelu"])
@torch.no_grad()
def test_both_towers_equal_open_clips_own(name, images):
    ours, theirs = loaded(name), toys.open_clip_model(name)
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
    theirs, tokenizer = toys.open_clip_model("tiny-test"), open_clip.get_tokenizer("tiny-test")
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


def test_the_published_pair_is_resolved_with_its_own_normalisation():
    spec = load.resolve("open_clip:ViT-B-16-quickgelu/openai", None, None, {})
    assert (spec.image_size, spec.weights) == (224, None)
    assert spec.mean == pytest.approx((0.4815, 0.4578, 0.4082), abs=1e-4) and spec.std == pytest.approx(
        (0.2686, 0.2613, 0.2758), abs=1e-4
    )


def test_a_failed_download_says_what_to_place_where(monkeypatch, tmp_path):
    hub_server.point(monkeypatch, "http://127.0.0.1:9", tmp_path)
    with pytest.raises(
        DownloadFailed,
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
