"""What makes another run, and what does not."""

import numpy as np
import pytest
import toys
from runs import plan

from cl_bench.plugins import registry
from cl_bench.records.spec import RunSpec


def test_aliases_and_full_names_mean_the_same_run(base):
    assert plan(base, methods="nsp2").specs[0].run_id() == plan(base, methods="vpt-nsp2").specs[0].run_id()


CHANGES = {
    "an option": {"methods": "nsp2[eta=0.5]"},
    "the transform": {"set": {"crop_scale": 0.5}},
    "the precision": {"set": {"precision": "bf16"}},
    "the limit": {"limit": 8},
    "validation": {"validation": 0.25},
    "the image size": {"image_size": 48},
    "the class order": {"order": "natural"},
    "the order seed": {"order": "5"},
    "the initialization seed": {"init_seed": 5},
    "the data seed": {"data_seed": 5},
    "the splits": {"splits": "1"},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_a_changed_setting_is_another_run(base, changes):
    assert (
        plan(base, **{"methods": "nsp2", **changes}).specs[0].run_id()
        != plan(base, methods="nsp2").specs[0].run_id()
    )


def test_other_weights_images_or_method_versions_are_another_run_and_another_place_is_not(
    base, tmp_path, monkeypatch
):
    from PIL import Image
    from safetensors.torch import load_file, save_file

    original = plan(base, methods="nsp2").specs[0].run_id()
    moved = toys.write_folder(tmp_path / "elsewhere", classes=4)
    copied = toys.write_weights(tmp_path / "v.safetensors")
    assert (
        plan({**base, "dataset": f"folder:{moved}", "weights": str(copied)}, methods="nsp2").specs[0].run_id()
        == original
    )
    state = load_file(copied)
    state["norm.bias"][0] += 1
    save_file(state, copied)
    assert plan({**base, "weights": str(copied)}, methods="nsp2").specs[0].run_id() != original
    pixel = np.array(Image.open(moved / "train" / "class_0" / "000.png"))
    pixel[0, 0, 0] ^= 1
    Image.fromarray(pixel).save(moved / "train" / "class_0" / "000.png")
    assert plan({**base, "dataset": f"folder:{moved}"}, methods="nsp2").specs[0].run_id() != original
    monkeypatch.setattr(registry.method_class("vpt-nsp2"), "version", 99)
    assert plan(base, methods="nsp2").specs[0].run_id() != original


def test_a_specification_survives_json(base):
    spec = plan(base, methods="nsp2").specs[0]
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec


def test_legacy_normalizations_by_name_are_other_runs(base):
    found = {
        name: plan(base, methods="seq", set={"normalisation": name}).specs[0]
        for name in ("checkpoint", "unit01", "imagenet")
    }
    assert found["unit01"].backbone.mean == (0, 0, 0) and found["unit01"].backbone.std == (1, 1, 1)
    assert found["imagenet"].backbone.mean == (0.485, 0.456, 0.406) and found["imagenet"].backbone.std == (
        0.229,
        0.224,
        0.225,
    )
    assert len({spec.run_id() for spec in found.values()}) == 3


def test_who_augments_is_a_setting_of_the_run_and_part_of_its_identity_where_it_is_not_the_default(base):
    batched, torchvision = (
        plan(base, methods="seq", set={"augment": "crop"}, augmenter=name).specs[0]
        for name in ("batched", "torchvision")
    )
    assert (
        batched.run_id()
        == plan(base, methods="seq", set={"augment": "crop"}).specs[0].run_id()
        != torchvision.run_id()
    )
    assert (
        "augmenter" not in batched.identity()["transform"]
        and torchvision.identity()["transform"]["augmenter"] == "torchvision"
    )
