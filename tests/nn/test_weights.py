"""Weight files: what is read from them, what is refused and why, and which of them are one backbone."""

import argparse
from pathlib import Path

import hub_server
import loopback
import pytest
import timm
import torch
from cl_bench.datasets import glyphs
from safetensors.torch import load_file, save, save_file

from cl_bench.errors import InputError
from cl_bench.nn import load, weights
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.records.store import Store

REFERENCE = Path(__file__).resolve().parents[2] / "results" / "reference"


@pytest.fixture(scope="module")
def state():
    torch.manual_seed(1)
    return timm.create_model("test_vit", num_classes=0).state_dict()


def written(path, content):
    save_file(content, path) if path.suffix == ".safetensors" else torch.save(content, path)
    return path


def loaded(path, size=None):
    return load.load(load.resolve("test_vit", size, str(path), {}))


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
def test_a_file_without_content_is_said_to_be_empty(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(InputError, match=f"cannot read weights .*{name}: the file is empty") as caught:
        weights.read(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_the_same_tensors_are_one_backbone_whatever_file_holds_them(tmp_path, state):
    plain = loaded(written(tmp_path / "a.safetensors", state)).weights_sha256
    same = {
        "pth": state,
        "other order": dict(reversed(state.items())),
        "wrapped": {"model": state, "epoch": 3},
        "with a head": {**state, "head.weight": torch.ones(5, 64), "head.bias": torch.ones(5)},
    }
    assert {
        name: loaded(written(tmp_path / "b.pth", content)).weights_sha256 for name, content in same.items()
    } == dict.fromkeys(same, plain)
    save_file(state, tmp_path / "c.safetensors", metadata={"format": "pt"})
    assert loaded(tmp_path / "c.safetensors").weights_sha256 == plain
    assert (
        loaded(tmp_path / "c.safetensors", 96).weights_sha256 == plain
    )  # resized when used: the image size is an identity of its own
    half = {key: value.half() for key, value in state.items()}
    as_used = {key: value.float() for key, value in half.items()}
    assert (
        loaded(written(tmp_path / "d.pth", half)).weights_sha256
        == loaded(written(tmp_path / "e.pth", as_used)).weights_sha256
        != plain
    )


def test_a_file_of_a_download_is_the_backbone_that_the_download_is(tmp_path, state, monkeypatch):
    headed = {**state, "head.weight": torch.ones(1000, 64), "head.bias": torch.ones(1000)}
    with loopback.serve() as served:
        hub_server.point(monkeypatch, served.url, tmp_path / "cache")
        hub_server.publish(served, "timm/test_vit.r160_in1k", {"model.safetensors": save(headed)})
        downloaded = load.load(load.resolve("test_vit.r160_in1k", None, None, {}))
    file = written(tmp_path / "a.pth", {**state, "head.bias": torch.ones(5)})
    assert downloaded.weights_sha256 == loaded(file).weights_sha256


def test_changing_one_number_makes_another_backbone(tmp_path, state):
    before = loaded(written(tmp_path / "a.pth", state)).weights_sha256
    changed = {**state, "norm.bias": state["norm.bias"] + 1e-6}
    assert loaded(written(tmp_path / "a.pth", changed)).weights_sha256 != before


@pytest.mark.parametrize("path", ["state_dict", "model", "teacher", "checkpoint.model"])
def test_a_state_dict_with_wrapping_around_it_is_unwrapped(tmp_path, state, path):
    content = state
    for key in reversed(path.split(".")):
        content = {
            key: content,
            "epoch": 7,
            "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1}]},
        }
    assert weights.read(str(written(tmp_path / "w.pth", content))).keys() == state.keys()


def test_several_state_dicts_are_named_and_none_is_chosen(tmp_path, state):
    file = written(tmp_path / "w.pth", {"student": state, "teacher": state, "epoch": 1})
    with pytest.raises(
        InputError, match="holds several sets of tensors: student, teacher; save the one that is meant"
    ):
        weights.read(str(file))


def test_a_file_without_tensors_says_what_it_holds(tmp_path):
    with pytest.raises(InputError, match="holds no tensors, but epoch, args"):
        weights.read(str(written(tmp_path / "w.pth", {"epoch": 1, "args": {"lr": 0.1}})))
    with pytest.raises(InputError, match="holds no tensors, but a list"):
        weights.read(str(written(tmp_path / "w.pth", [1, 2])))


def test_a_file_with_objects_is_refused_by_their_name_and_nothing_of_it_is_run(tmp_path, state):
    file = written(tmp_path / "w.pth", {"model": state, "args": argparse.Namespace(lr=0.1)})
    with pytest.raises(InputError, match=r"holds argparse\.Namespace.*tensors only") as caught:
        weights.read(str(file))
    assert "\n" not in str(caught.value) and "weights_only" not in str(caught.value)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
def test_a_number_that_is_none_is_refused_naming_its_tensor(tmp_path, state, name, bad):
    broken = state["blocks.1.norm1.weight"].clone()
    broken[3] = bad
    with pytest.raises(InputError, match="blocks.1.norm1.weight holds NaN or infinite values"):
        loaded(written(tmp_path / name, {**state, "blocks.1.norm1.weight": broken}))


def test_a_position_embedding_of_an_impossible_shape_is_one_line(tmp_path, state):
    for shape in ((1, 7, 64), (64,), (0,)):
        with pytest.raises(InputError, match="pos_embed"):
            loaded(written(tmp_path / "w.pth", {**state, "pos_embed": torch.zeros(shape)}))


@pytest.mark.parametrize(
    ("old", "tag"),
    [
        ("vit_base_patch16_224_in21k", "vit_base_patch16_224.augreg_in21k"),
        ("vit_base_patch16_224_miil_in21k", "vit_base_patch16_224_miil.in21k"),
        ("vit_base_patch16_224_dino", "vit_base_patch16_224.dino"),
        ("vit_tiny_patch16_224_in21k", "vit_tiny_patch16_224.augreg_in21k"),
    ],
)
def test_an_old_name_of_timm_is_answered_with_the_tag_it_meant(old, tag):
    with pytest.raises(InputError, match=f"timm's old name of '{tag}'; give that"):
        load.resolve(old, None, None, {})


# --- runs that were recorded with the digest of the file


def test_the_embedded_backbone_keeps_the_identity_of_its_records_in_any_file(tmp_path):
    specs = [found.spec for found in Store(REFERENCE).records()]
    spec, both = glyphs.glyphs_vit(), glyphs.glyphs_vit_and_words()
    recorded, with_words = (
        {own.weights_sha256 for own in specs if own.backbone.name == one.name} for one in (spec, both)
    )
    assert {load.load(both).weights_sha256} == with_words
    copy = written(tmp_path / "copy.pth", {"model": load_file(spec.weights)})
    for one in (spec, spec.model_copy(update={"weights": str(copy)})):
        assert {load.load(one).weights_sha256} == recorded


def test_the_commands_of_the_reference_name_its_runs():
    """Up to versions, and to images and settings of the benchmark, which their records name."""
    recorded = {
        (found.spec.order_seed, found.spec.num_tasks): found.spec
        for found in Store(REFERENCE).records()
        if found.spec.label == "vpt-nsp2" and found.spec.losses
    }
    planned = make_plan(Request(methods="nsp2", splits="10", seeds="3", losses=True), "fp32").specs
    assert len(planned) == 3
    for spec in planned:
        there = recorded[spec.order_seed, spec.num_tasks]
        named = ("core_version", "method_version", "manifest_digest", "data", "options")
        same = spec.model_copy(update={name: getattr(there, name) for name in named})
        assert same.run_id() == there.run_id()
