"""The embedded benchmark's classes, pixels and backbone are exactly those that were published with it."""

import hashlib
import tomllib
import unicodedata

import numpy as np
import pytest
from cl_bench.datasets import _glyphs_compose as composing
from cl_bench.datasets import glyphs, glyphs_plain

from cl_bench.data.subset import held_out
from cl_bench.nn import load

MASKS_SHA256 = "38b4f8ced8620f2ca565c5eeabe2a1c9f9ddd543bfbac5da47456765ae820227"
# a few images of plain paper, those of pre-training among them, and of ruled paper
PLAIN_SHA256 = "69336e628715bf799fdbad6fb3e80ecd2854cc5f9ec46205f557f3a913e9f90f"
RULED_SHA256 = "72055ef0020a09958881caff59ba0de21429a20e8377210148aee118bd9a99a8"
SIDES = (glyphs.TRAIN_STREAM, glyphs.TEST_STREAM)
SOURCES = [(glyphs.Glyphs, 60), (glyphs_plain.GlyphsPlain, 40)]
# measured on held-out training images with seed 2024, see results/bench/glyphs-strengths.json: what the
# benchmark may gain before it has become another
MOST_OF_CLASS_MEANS, MOST_OF_A_LINEAR_CLASSIFIER = 0.62, 0.75


def digest(samples) -> str:
    """sha256 of 13 images of every 40th of the codes, for (codes, streams, style) after one another."""
    found = hashlib.sha256()
    for codes, streams, style in samples:
        for code in codes[::40]:
            for stream in streams:
                found.update(glyphs.class_images(code, stream, 13, style=style).tobytes())
    return found.hexdigest()


def test_masks_and_sampled_images_have_the_published_digests():
    assert glyphs.masks_digest() == MASKS_SHA256
    benchmark, pretraining = glyphs.split_codes()
    before = (pretraining, (glyphs.PRETRAINING_STREAM,), composing.PRETRAINING)
    assert digest([(benchmark, SIDES, composing.PLAIN), before]) == PLAIN_SHA256
    assert digest([(benchmark, SIDES, composing.RULED)]) == RULED_SHA256


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


@pytest.mark.parametrize(("kind", "count"), SOURCES, ids=lambda value: getattr(value, "name", value))
def test_sides_have_the_stated_sizes_and_no_image_twice(kind, count):
    train, test = (kind().images(side) for side in ("train", "test"))
    assert train.images.shape == (200 * count, 24, 24, 3) and test.images.shape == (4000, 24, 24, 3)
    assert np.bincount(train.labels).tolist() == [count] * 200
    assert np.bincount(test.labels).tolist() == [20] * 200
    digests = [image.tobytes() for side in (train, test) for image in side.images]
    assert len(set(digests)) == 200 * count + 4000


def test_the_two_papers_and_the_benchmark_before_them_have_manifests_of_their_own():
    ruled, plain = (kind().manifest() for kind, _ in SOURCES)
    assert ruled["composer"] == 2 and ruled != plain
    assert glyphs.Glyphs().manifest_digest() != glyphs_plain.GlyphsPlain().manifest_digest()


def test_ruled_paper_has_the_same_lines_on_every_image():
    """Where nothing is written and paper is even, rows differ by the ruling and by nothing else."""
    even = {"rotation": 0, "shear": 0, "scale": (0.9, 0.9), "shift": 0, "warp": 0, "noise": 0, "colored": 0}
    style, nothing = composing.Style(**even, ruling=0.2), np.zeros((12, 28, 28), np.uint8)
    images = composing.compose(nothing, style, 24, composing.Uniforms(1)).astype(int)
    rows = images[:, :, 0, 0]
    assert (images == images[:, :, :1, :1]).all()
    dark, bright = rows[:, [3, 4, 5, 9, 23]], rows[:, [0, 1, 2, 6, 20]]
    assert (dark == dark[:, :1]).all() and (bright == bright[:, :1]).all()
    paper = 255 * 0.94  # near-white, 1 - 0.12 u: the bright lines of most of it are cut at white
    assert (
        abs(dark.mean() - (paper - 25.5)) < 8 and (bright - dark >= 25).all() and (bright - dark <= 51).all()
    )
    assert composing.RULED.ruling == 0.2 and composing.PLAIN.ruling == 0 == composing.PRETRAINING.ruling


def test_ruled_images_are_plain_ones_with_lines():
    """Away from black and white, where nothing is cut, the difference is half the ruling up or down."""
    code = glyphs.split_codes()[0][7]
    ruled, plain = (
        glyphs.class_images(code, glyphs.TRAIN_STREAM, 40, style=style).astype(int)
        for style in (composing.RULED, composing.PLAIN)
    )
    inside = (plain > 30) & (plain < 225)
    lines = (np.arange(24) % 6 < 3)[:, None, None]
    wanted = np.where(lines, 25.5, -25.5)
    assert inside.mean() > 0.5 and (abs(ruled - plain - wanted)[inside] <= 1).all()


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
def test_what_a_frozen_backbone_is_worth_stays_where_it_was_measured():
    """Class means and a linear classifier over held-out training images: neither chance nor easy."""
    import torch

    data, trunk = glyphs.Glyphs().images("train"), load.load(glyphs.glyphs_vit())
    with torch.inference_mode():
        images = torch.from_numpy(np.array(data.images)).permute(0, 3, 1, 2).float() / 127.5 - 1
        features = torch.cat([trunk.features(part) for part in images.split(500)])
    kept, held = held_out(data.labels, 0.25, 2024)
    known, new = features[kept], features[held]
    labels, truth = torch.from_numpy(data.labels[kept]), torch.from_numpy(data.labels[held])
    means = torch.stack(
        [torch.nn.functional.normalize(known[labels == c].mean(0), dim=0) for c in range(200)]
    )
    assert 0.4 < ((new @ means.T).argmax(1) == truth).float().mean() < MOST_OF_CLASS_MEANS
    probe = torch.nn.Linear(128, 200)
    optimizer = torch.optim.LBFGS(probe.parameters(), max_iter=60, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(probe(known), labels) + 1e-4 * (probe.weight**2).sum()
        value.backward()
        return value

    torch.manual_seed(0)
    optimizer.step(loss)
    assert 0.5 < (probe(new).argmax(1) == truth).float().mean() < MOST_OF_A_LINEAR_CLASSIFIER


@pytest.mark.slow
def test_masks_rendered_from_the_installed_fonts_choose_the_same_classes():
    from cl_bench.datasets import _glyphs_masks

    assert _glyphs_masks.choose(_glyphs_masks.common_characters()) == list(glyphs.masks()[0])
