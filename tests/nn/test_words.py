"""A text tower of words: vectors of words added up, and the one fitted for the glyph backbone."""

import pytest
import torch
from cl_bench.datasets import _glyphs_words as recipe
from cl_bench.datasets import glyphs
from torch.nn import functional as F

from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.nn.words import WordTower

STATE = {
    "words": torch.tensor(list(b"cat red"), dtype=torch.uint8),
    "vectors": torch.tensor([[3.0, 0, 0], [0, 4.0, 0]]),
    "center": torch.tensor([0.0, 0, 5.0]),
}


def test_a_sentence_is_the_sum_of_its_words_and_what_all_have():
    found = WordTower(STATE).encode(["Red cat", "cat cat", "unheard"], ("{}",))
    by_hand = torch.tensor([[3.0, 4, 5], [6, 0, 5], [0, 0, 5]])
    torch.testing.assert_close(found, F.normalize(by_hand, dim=1))


def test_sentences_of_a_class_are_averaged_as_unit_vectors():
    tower = WordTower(STATE)
    found = tower.encode(["cat"], ("{}", "red {}"))
    by_hand = torch.tensor([3.0, 0, 5]) / 34**0.5 + torch.tensor([3.0, 4, 5]) / 50**0.5
    torch.testing.assert_close(found[0], F.normalize(by_hand, dim=0))
    assert tower.reads("red " * 1000) and tower.length == 3


def test_the_fit_is_that_of_ridge_regression_with_a_free_center():
    names = ["cat", "red cat", "red", "red dog"]
    features = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    state = recipe.fit(names, features)
    assert bytes(state["words"].tolist()) == b"cat dog red"
    x = torch.tensor([[1.0, 0, 0], [1, 0, 1], [0, 0, 1], [0, 1, 1]], dtype=torch.float64)
    residual = features - x @ state["vectors"] - state["center"]
    torch.testing.assert_close(x.T @ residual, recipe.RIDGE * state["vectors"])
    torch.testing.assert_close(residual.sum(0), torch.zeros(5, dtype=torch.float64))


def test_names_of_the_benchmark_lie_nearer_to_their_own_characters_than_to_others():
    backbone, source = load.load(glyphs.glyphs_vit_and_words()), glyphs.Glyphs()
    texts = backbone.text.encode(source.text_names(), source.TEMPLATES)[:40].double()
    cosines = recipe.class_means(glyphs.split_codes()[0][:40]) @ texts.T
    own, others = cosines.diag(), (cosines.sum(1) - cosines.diag()) / 39
    assert (own > others).double().mean() > 0.9
    assert all(
        name.upper() in known for name, known in zip(source.text_names(), source.class_names, strict=True)
    )


def test_both_have_a_digest_of_their_own_and_the_vit_is_the_same():
    alone, both = load.load(glyphs.glyphs_vit()), load.load(glyphs.glyphs_vit_and_words())
    assert alone.text is None and both.text.length == alone.width
    assert alone.weights_sha256 != both.weights_sha256
    images = torch.zeros(1, 3, 24, 24)
    assert torch.equal(alone.features(images), both.features(images))


def test_it_ships_with_its_weights():
    with pytest.raises(InputError, match="ships with its weights and size"):
        load.resolve("glyphs-vit+glyphs-words", None, "other.safetensors", glyphs.BACKBONES)


@pytest.mark.slow
def test_the_shipped_file_is_what_the_recipe_makes(tmp_path):
    recipe.main(tmp_path)
    made, shipped = (
        WordTower(load.weight_files.read(str(place / "words.safetensors")))
        for place in (tmp_path, glyphs.DATA)
    )
    assert torch.equal(made.words, shipped.words)
    torch.testing.assert_close(made.vectors, shipped.vectors, atol=1e-3, rtol=0)
