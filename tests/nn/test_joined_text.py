"""A ViT with the text tower of a CLIP model beside it: both are what they are alone, and both are named."""

import pytest
import toys
from text_towers import reader
from toys import equal

from cl_bench.config import canonical_json
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request

NAMES = ["goldfish", "hot dog", "tree frog"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A request for the small ViT, and the same with a text tower beside it."""
    alone = {**toys.write_inputs(tmp_path_factory.mktemp("joined")), "splits": "2"}
    name, weights = reader(64)
    joined = {"backbone": f"test_vit+{name}", "weights": f"{alone['weights']}+{weights}"}
    return alone, {**alone, **joined}


def loaded(request: dict):
    return load.load(load.resolve(request["backbone"], request["image_size"], request["weights"], {}))


def test_images_go_through_the_vit_and_names_through_the_other_models_text_tower(inputs):
    alone, joined = map(loaded, inputs)
    name, weights = reader(64)
    clip = load.load(load.resolve(name, None, str(weights), {}))
    assert equal(alone.vit.state_dict(), joined.vit.state_dict()) and alone.text is None
    assert equal(clip.text.clip.state_dict(), joined.text.clip.state_dict())
    templates = ("a photo of a {}.",)
    assert clip.text.encode(NAMES, templates).equal(joined.text.encode(NAMES, templates))
    assert joined.text.projection is None and joined.text.length == 64
    assert not any(parameter.requires_grad for parameter in joined.parameters())
    assert (joined.spec.mean, joined.spec.image_size) == (alone.spec.mean, 32)


def test_the_digest_names_both(inputs):
    alone, joined = inputs
    name, weights = reader(64, 40)
    other = {**joined, "backbone": f"test_vit+{name}", "weights": f"{alone['weights']}+{weights}"}
    assert len({loaded(request).weights_sha256 for request in (alone, joined, other)}) == 3


def test_files_are_no_identity_and_are_repeated_in_the_runs_command(inputs):
    alone, joined = ([*make_plan(Request(**{**each, "methods": "simplecil"})).specs] for each in inputs)
    assert "text_weights" not in canonical_json(joined[0].identity())
    assert joined[0].text_sha256 and not alone[0].text_sha256
    assert f"--weights {inputs[1]['weights']}" in joined[0].command


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("test_vit+vit_base_patch16_224", None, "expected a ViT and a CLIP model that reads, such as vit_"),
        ("open_clip:ViT-B-32/openai+open_clip:ViT-B-32/openai", None, "expected a ViT and a CLIP model"),
        ("no_vit+open_clip:ViT-L-14-quickgelu/openai", None, "unknown backbone 'no_vit'"),
        ("vit_base_patch16_224.dino+open_clip:ViT-L-14-quickgelu/opena", None, "did you mean 'openai'"),
        ("vit_base_patch16_224.dino+open_clip:ViT-L-14-quickgelu/openai", "+none", "no weights file 'none'"),
        ("vit_base_patch16_224.dino+open_clip:ViT-L-14-quickgelu/openai", "none", "no weights file 'none'"),
    ],
)
def test_names_that_are_not_both_are_refused(name, weights, message):
    with pytest.raises(InputError, match=message):
        load.resolve(name, None, weights, {})


def test_methods_that_need_the_image_tower_of_the_text_refuse_it(inputs):
    with pytest.raises(InputError, match="has no text tower of its own; CLIP methods need one"):
        make_plan(Request(**{**inputs[1], "methods": "clip-zeroshot"}))


def test_a_text_tower_says_whether_it_reads_a_sentence_to_its_end():
    name, weights = reader(64, 12)  # tokens, of which two are its beginning and its end
    text = load.load(load.resolve(name, None, str(weights), {})).text
    assert text.reads("a photo of a cat or a dog") and not text.reads(
        "a photo of a cat or a dog or a red fox"
    )
