"""The embedded benchmark's classes, pixels and backbone are exactly those that were published with it."""

import hashlib
import tomllib
import unicodedata

import numpy as np
import pytest
from cl_bench.datasets import _glyphs_compose as composing
from cl_bench.datasets import glyphs

from cl_bench.nn import load

MASKS_SHA256 = "38b4f8ced8620f2ca565c5eeabe2a1c9f9ddd543bfbac5da47456765ae820227"
SAMPLE_SHA256 = "69336e628715bf799fdbad6fb3e80ecd2854cc5f9ec46205f557f3a913e9f90f"


def test_masks_and_sampled_images_have_the_published_digests():
    assert glyphs.masks_digest() == MASKS_SHA256
    benchmark, pretraining = glyphs.split_codes()
    digest = hashlib.sha256()
    for codes, streams in (
        (benchmark, (glyphs.TRAIN_STREAM, glyphs.TEST_STREAM)),
        (pretraining, (glyphs.PRETRAINING_STREAM,)),
    ):
        for code in codes[::40]:
            for stream in streams:
                digest.update(glyphs.class_images(code, stream, 13).tobytes())
    assert digest.hexdigest() == SAMPLE_SHA256


def test_benchmark_and_pretraining_classes_are_disjoint_and_of_the_stated_categories():
    benchmark, pretraining = glyphs.split_codes()
    assert len(benchmark) == 200 and len(pretraining) == 434 and not set(benchmark) & set(pretraining)
    assert {unicodedata.category(chr(code)) for code in benchmark} <= {
        "Lu",
        "Ll",
        "Lo",
        "Sm",
        "So",
        "Sc",
        "Nd",
    }


def test_sides_have_the_stated_sizes_and_no_image_twice():
    source = glyphs.Glyphs()
    train, test = source.images("train"), source.images("test")
    assert train.images.shape == (8000, 24, 24, 3) and test.images.shape == (4000, 24, 24, 3)
    assert (
        np.bincount(train.labels).tolist() == [40] * 200 and np.bincount(test.labels).tolist() == [20] * 200
    )
    digests = [image.tobytes() for side in (train, test) for image in side.images]
    assert len(set(digests)) == 12000


def test_an_image_depends_on_its_class_side_and_pass_alone():
    code = glyphs.split_codes()[0][3]
    first = glyphs.class_images(code, glyphs.TRAIN_STREAM, 40)
    assert np.array_equal(first, glyphs.class_images(code, glyphs.TRAIN_STREAM, 40))
    other = glyphs.class_images(code, glyphs.TEST_STREAM, 40)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, glyphs.class_images(code, glyphs.TRAIN_STREAM, 40, pass_index=1))


def test_all_faces_are_used_equally_often_or_once_less():
    grey = np.zeros((12, 28, 28), np.uint8)
    for face in range(12):
        grey[face, 4:24, 4:24] = 20 * face + 20
    style = composing.Style(rotation=0, shear=0, scale=(0.9, 0.9), shift=0, warp=0, noise=0, colored=0)
    images = composing.compose(grey, style, 40, composing.Uniforms(1))
    # each face fades the middle by another amount: count the distinct shares of ink
    paper, middle = images[:, 0, 0, 0].astype(float), images[:, 12, 12, 0].astype(float)
    order = np.argsort(paper - middle)
    assert len(order) == 40 and (paper > middle).all()


def test_bilinear_sampling_by_hand():
    image = np.array([[[0.0, 1.0], [2.0, 3.0]]])
    y, x = np.array([[[0.5, 0.0, 5.0]]]), np.array([[[0.5, 1.0, 5.0]]])
    assert composing.bilinear(image, y, x).tolist() == [[[1.5, 1.0, 3.0]]]


def test_uniform_numbers_are_uniform_and_keyed():
    numbers = composing.Uniforms(1, 2, 3).draw(10000)
    assert numbers.min() >= 0 and numbers.max() < 1 and abs(numbers.mean() - 0.5) < 0.02
    assert np.array_equal(numbers[:10], composing.Uniforms(1, 2, 3).draw(10)) and not np.array_equal(
        numbers[:10], composing.Uniforms(1, 2, 4).draw(10)
    )


def test_the_shipped_backbone_is_the_one_its_recipe_describes():
    recipe = tomllib.loads((glyphs.DATA / "vit.toml").read_text(encoding="utf-8"))
    spec = glyphs.glyphs_vit()
    trunk = load.load(spec)
    assert (
        trunk.weights_sha256 == recipe["weights_sha256"] and recipe["masks_sha256"] == glyphs.masks_digest()
    )
    assert (glyphs.DATA / "vit.safetensors").stat().st_size < 3e6
    assert recipe["pretraining_classes"] == 434 and recipe["validation_accuracy"] > 0.8
    assert trunk.width == 128 and trunk.depth == 6


@pytest.mark.slow
def test_the_frozen_backbone_tells_new_characters_apart_far_above_chance():
    """Nearest class mean of frozen features over the 200 classes it has never seen; chance is 0.5 %."""
    import torch

    source, trunk = glyphs.Glyphs(), load.load(glyphs.glyphs_vit())

    @torch.inference_mode()
    def features(side):
        data = source.images(side)
        x = torch.from_numpy(np.array(data.images)).permute(0, 3, 1, 2).float() / 127.5 - 1
        return torch.nn.functional.normalize(
            torch.cat([trunk.features(part) for part in x.split(500)]), dim=1
        ), torch.from_numpy(data.labels)

    train, labels = features("train")
    means = torch.stack([train[labels == c].mean(0) for c in range(200)])
    test, truth = features("test")
    assert ((test @ means.T).argmax(1) == truth).float().mean() > 0.25


@pytest.mark.slow
def test_masks_rendered_from_the_installed_fonts_choose_the_same_classes():
    from cl_bench.datasets import _glyphs_masks

    assert _glyphs_masks.choose(_glyphs_masks.common_characters()) == list(glyphs.masks()[0])
