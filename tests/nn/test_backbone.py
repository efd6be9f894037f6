"""The frozen forward pass equals timm's own; names, weights and sizes that do not fit are refused."""

import pytest
import timm
import torch
import toys
from safetensors.torch import save_file

import cl_bench.nn.attention
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.nn.attention import attention_with, prompt_keys_values
from cl_bench.nn.edits import NONE, Watched
from cl_bench.nn.precision import network_in
from cl_bench.nn.prompts import DeepPrompts
from cl_bench.nn.statistics import AttentionMoments

VARIANTS = {
    "class token": {},
    "registers": {"reg_tokens": 4},
    "no class token": {"class_token": False, "global_pool": "avg"},
    "average pooling with its own norm": {"global_pool": "avg"},
    "layer scale": {"init_values": 0.1},
    "query and key norm": {"qk_norm": True},
    "pre-norm": {"pre_norm": True},
    "no position for the class token": {"no_embed_class": True, "reg_tokens": 2},
    "patch 14": {"patch_size": 14, "img_size": 28},
    "patch 16": {"patch_size": 16, "img_size": 48},
    "patch 32": {"patch_size": 32, "img_size": 64},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_features_without_prompts_equal_timms_own_forward(changes):
    trunk = toys.backbone(**changes)
    images = torch.randn(3, 3, *trunk.vit.patch_embed.img_size)
    expected = trunk.vit(images)
    none = DeepPrompts(2, 0, trunk.width, torch.Generator())
    assert torch.allclose(trunk.features(images), expected, atol=1e-6)
    assert torch.allclose(trunk.features(images, none), expected, atol=1e-6)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_prompts_as_keys_and_values_equal_prompts_as_tokens_whose_outputs_are_dropped(changes):
    trunk = toys.backbone(**changes)
    prompts = DeepPrompts(2, 3, trunk.width, torch.Generator().manual_seed(1))
    images = torch.randn(3, 3, *trunk.vit.patch_embed.img_size)

    def as_tokens(index, block, x, read):
        z = torch.cat([x, prompts.P[index].expand(len(x), -1, -1)], dim=1)
        return block.attn(block.norm1(z))[:, : read or x.shape[1]]

    assert torch.allclose(
        trunk.features(images, prompts), trunk.features(images, Watched(NONE, as_tokens)), atol=1e-5
    )


@pytest.mark.parametrize(("changes", "last"), [({}, 1), ({"reg_tokens": 4}, 1), ({"global_pool": "avg"}, 5)])
def test_the_last_block_computes_the_tokens_that_are_read_and_no_others(changes, last):
    trunk = toys.backbone(**changes)
    prompts = DeepPrompts(2, 3, trunk.width, torch.Generator().manual_seed(1))
    images, counts = torch.randn(3, 3, *trunk.vit.patch_embed.img_size), []
    for block in trunk.vit.blocks:
        block.mlp.register_forward_pre_hook(lambda module, inputs: counts.append(inputs[0].shape[1]))
    for edits in (NONE, prompts, AttentionMoments(prompts.P, trunk.vit).observing(prompts)):
        with torch.no_grad():
            trunk.features(images, edits)
    assert counts == [5 + changes.get("reg_tokens", 0), last] * 3


def test_the_fused_kernel_and_the_explicit_map_give_the_same_features_and_gradients(monkeypatch):
    trunk = toys.backbone()
    images, found = torch.randn(3, 3, 16, 16), []
    for tokens in (0, 128):
        monkeypatch.setattr(cl_bench.nn.attention, "EXPLICIT_TOKENS", tokens)
        prompts = DeepPrompts(2, 3, trunk.width, torch.Generator().manual_seed(1))
        features = trunk.features(images, prompts)
        features.square().sum().backward()
        found.append((features.detach(), prompts.P.grad))
    assert all(torch.allclose(one, other, rtol=1e-4, atol=1e-5) for one, other in zip(*found, strict=True))
    assert not torch.equal(found[0][1], found[1][1])  # they are two ways


def test_prompts_in_the_first_blocks_only_leave_the_others_alone():
    trunk = toys.backbone()
    prompts = DeepPrompts(1, 3, trunk.width, torch.Generator().manual_seed(1))
    block, x = trunk.vit.blocks[1], torch.randn(2, 5, trunk.width)
    assert torch.equal(prompts.attend(1, block, x), attention_with(block.attn, block.norm1(x)))


def test_prompt_keys_do_not_touch_the_query_weights():
    attn = toys.vit().blocks[0].attn
    prompts = torch.randn(3, 32)
    before = prompt_keys_values(attn, prompts)
    with torch.no_grad():
        attn.qkv.weight[:32] += 1.0
    assert all(torch.equal(a, b) for a, b in zip(before, prompt_keys_values(attn, prompts), strict=True))


NAMED = {"shipped": lambda: toys.backbone().spec}


def resolved(name, size=None, weights=None):
    return load.resolve(name, size, weights, NAMED)


def test_a_full_tag_brings_its_own_normalisation():
    assert resolved("vit_base_patch16_224.augreg_in21k").mean == (0.5, 0.5, 0.5)
    assert resolved("vit_base_patch16_224.dino").mean == pytest.approx((0.485, 0.456, 0.406))
    assert resolved("vit_base_patch16_224.augreg_in21k").image_size == 224


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vit_base_patch16_224",), "names several checkpoints; give the full tag, one of: .*augreg_in21k"),
        (("vit_base_patch16_225",), "did you mean 'vit_base_patch16_22"),
        (("vit_base_patch16_224.augreg_in22k",), "did you mean 'vit_base_patch16_224.augreg_in21k'"),
        (("shiped",), "did you mean 'shipped'"),
        (("shipped", 32), "leave out --weights and --image-size"),
        (("vit_small_patch14_dinov2", 56, "nowhere.safetensors"), "no weights file"),
    ],
)
def test_names_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        resolved(*arguments)


def test_a_bare_name_whose_checkpoints_differ_in_normalization_is_refused_even_with_a_file(tmp_path):
    file = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(1)}, file)
    with pytest.raises(InputError, match="different input normalizations"):
        resolved("vit_base_patch16_224", None, str(file))


@pytest.fixture
def tiny(tmp_path):
    """A tiny timm model's weights in half precision, as a file."""
    model = timm.create_model("test_vit", num_classes=0)
    file = tmp_path / "tiny.safetensors"
    save_file({name: value.half() for name, value in model.state_dict().items()}, file)
    return model, file


def test_a_file_of_half_precision_weights_loads_at_its_size_and_at_another(tiny):
    model, file = tiny
    size = model.patch_embed.img_size[0]
    same = load.load(resolved("test_vit", size, str(file)))
    assert torch.equal(same.vit.pos_embed, model.pos_embed.half().float())
    other = load.load(resolved("test_vit", size // 2, str(file)))
    assert other.vit.pos_embed.shape[1] < model.pos_embed.shape[1]
    assert torch.isfinite(other.features(torch.randn(1, 3, size // 2, size // 2))).all()
    assert same.weights_sha256 == other.weights_sha256


def changed(file, change):
    from safetensors.torch import load_file

    state = load_file(file)
    change(state)
    save_file(state, file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("norm.bias"), "missing norm.bias"),
        (lambda s: s.update(extra=torch.zeros(2)), "unexpected extra"),
        (lambda s: s.update({"norm.bias": torch.zeros(2)}), r"norm.bias is \(2,\), expected"),
        (
            lambda s: s.update({"patch_embed.proj.weight": torch.zeros(64, 3, 8, 8)}),
            r"patch_embed.proj.weight is \(64, 3, 8, 8\), expected",
        ),
        (lambda s: [s.pop(k) for k in list(s) if "blocks" in k], "and [0-9]+ more"),
    ],
)
def test_weights_that_do_not_fit_are_refused_naming_the_first_few(tiny, change, message):
    _, file = tiny
    changed(file, change)
    with pytest.raises(InputError, match=message):
        load.load(resolved("test_vit", None, str(file)))


def test_a_file_that_holds_no_weights_is_refused(tmp_path):
    for name in ("a.safetensors", "a.pth"):
        (tmp_path / name).write_bytes(b"not weights")
        with pytest.raises(InputError, match="cannot read weights"):
            load.load(resolved("test_vit", None, str(tmp_path / name)))


def test_an_image_size_the_patches_do_not_divide_is_refused(tiny):
    with pytest.raises(InputError, match="patches of 16 pixels; --image-size 33 is not a multiple"):
        load.load(resolved("test_vit", 33, str(tiny[1])))


def test_a_model_of_other_blocks_is_refused():
    with pytest.raises(InputError, match="not a plain timm VisionTransformer"):
        load.require_plain(timm.create_model("vit_relpos_small_patch16_224", num_classes=0), "relpos")


def test_in_bf16_the_network_alone_is():
    trunk, images, seen = toys.backbone(), torch.randn(3, 3, 16, 16), []

    def watched(index, block, x, read):
        seen.append((x.dtype, block.attn.qkv(block.norm1(x)).dtype))
        return NONE.attend(index, block, x, read)

    exact = trunk.features(images, Watched(NONE, watched))
    with network_in("bf16"):
        found = trunk.features(images, Watched(NONE, watched))
        assert (found @ found.T).dtype == found.dtype == torch.float32 and not torch.is_autocast_enabled(
            "cpu"
        )
    assert (
        seen
        == [(torch.float32, torch.float32)] * trunk.depth + [(torch.float32, torch.bfloat16)] * trunk.depth
    )
    assert 0 < (found - exact).abs().max() < 0.05 * exact.abs().max()
    assert torch.equal(trunk.features(images), exact)
