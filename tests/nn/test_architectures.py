"""Networks of other pre-trainings, tiny and of random weights: loaded, run as timm does, learned on."""

import functools

import hub_server
import loopback
import pytest
import timm
import torch
import toys
from safetensors.torch import save_file

from cl_bench.cli.listing import backbone_lines
from cl_bench.config import Transform
from cl_bench.data.batch import Batch
from cl_bench.data.preprocess import Preprocess
from cl_bench.data.stream import Stream
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.nn.attention import queries, queries_keys_values
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.edits import NONE, Edits, Watched
from cl_bench.nn.prompts import DeepPrompts, JoinedPrompts
from cl_bench.nn.rotary import is_rotary
from cl_bench.nn.scale_shift import ScalesShifts

# name: whether its feature is the class token
ARCHITECTURES = {
    "vit_small_patch14_dinov2.lvd142m": True,
    "vit_small_patch14_reg4_dinov2.lvd142m": True,  # registers
    "vit_giant_patch14_dinov2": True,  # a gated MLP
    "vit_small_patch16_dinov3.lvd1689m": True,  # rotary positions
    "vit_small_patch16_dinov3_qkvb.lvd1689m": True,  # with biases
    "vit_small_plus_patch16_dinov3.lvd1689m": True,  # a gated MLP
    "vit_base_patch16_224.mae": True,
    "deit3_small_patch16_224.fb_in1k": True,  # no position of the class token
    "vit_base_patch16_siglip_224.webli": False,  # pools by attention
    "vit_base_patch16_siglip_gap_224.webli": False,
    "vit_medium_patch16_reg4_gap_256.sbb_in1k": False,  # registers without class token
    "aimv2_large_patch14_224": False,  # a gated MLP in three maps
}
ROTARY = [name for name in ARCHITECTURES if "dinov3" in name]
every = pytest.mark.parametrize("name", ARCHITECTURES)
TASKS = [[2, 0], [1, 3, 4]]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """timm makes every network with two blocks of width 32."""
    small = functools.partial(timm.create_model, depth=2, embed_dim=32, num_heads=2)
    monkeypatch.setattr("timm.create_model", small)


def weighted(name: str, path):
    """timm's own network of random weights, some way from where they start, and a file of them."""
    torch.manual_seed(0)
    pooled = {"global_pool": "token"} if "dinov3" in name else {}
    model = timm.create_model(name.partition(".")[0], num_classes=0, img_size=size_of(name), **pooled)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    save_file({key: value.clone().contiguous() for key, value in model.state_dict().items()}, path)
    return model.eval()


def size_of(name: str) -> int:
    return 3 * (14 if "patch14" in name else 16)


def loaded(name: str, folder) -> Backbone:
    weighted(name, folder / "w.safetensors")
    return load.load(load.resolve(name, size_of(name), str(folder / "w.safetensors"), {}))


def pictures(name: str, count: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, 3, size_of(name), size_of(name), generator=generator)


@every
def test_features_of_loaded_weights_are_timms_own(name, tmp_path):
    model = weighted(name, tmp_path / "w.safetensors")
    trunk, images = loaded(name, tmp_path), pictures(name)
    expected = model.forward_head(model.forward_features(images), pre_logits=True)
    assert torch.allclose(trunk.features(images), expected, atol=2e-5)
    assert torch.allclose(trunk.vit(images), expected, atol=2e-5)
    assert (trunk.read == 1) == ARCHITECTURES[name]


@every
@pytest.mark.parametrize("method", ["vpt-seq", "l2p", "simplecil", "vpt-nsp2"])
def test_methods_learn_on_them_or_say_that_they_need_the_class_token(name, method, tmp_path):
    trunk = loaded(name, tmp_path)
    if method == "l2p" and not ARCHITECTURES[name]:
        with pytest.raises(InputError, match="L2P needs a backbone that reads its class token, and"):
            toys.method(method, 2, trunk)
        return
    learner = toys.method(method, 2, trunk, passes=1)
    preprocess = Preprocess(trunk.spec, Transform(), 0, torch.device("cpu"))
    toys.learn(learner, Stream(toys.sides(TASKS, per_class=4), TASKS, preprocess))
    scores = learner.predict(Batch(pictures(name)))
    assert scores.shape == (3, 5) and torch.isfinite(scores).all()


@pytest.mark.parametrize("name", ROTARY)
def test_a_download_and_a_file_of_rotary_weights_are_one_backbone(name, tmp_path, monkeypatch):
    of_file, images = loaded(name, tmp_path), pictures(name)
    with loopback.serve() as served:
        hub_server.point(monkeypatch, served.url, tmp_path / "cache")
        content = (tmp_path / "w.safetensors").read_bytes()
        hub_server.publish(served, f"timm/{name}", {"model.safetensors": content})
        other = load.load(load.resolve(name, size_of(name), None, {}))
    assert other.weights_sha256 == of_file.weights_sha256
    assert torch.equal(other.features(images), of_file.features(images))


@pytest.mark.parametrize("name", ROTARY)
def test_rotary_weights_serve_other_image_sizes(name, tmp_path):
    model = weighted(name, tmp_path / "w.safetensors")
    larger = load.load(load.resolve(name, 80, str(tmp_path / "w.safetensors"), {}))
    images = torch.randn(2, 3, 80, 80)
    whole = timm.create_model(name.partition(".")[0], num_classes=0, img_size=80, global_pool="token").eval()
    whole.load_state_dict(model.state_dict())
    assert torch.allclose(larger.features(images), whole(images), atol=2e-5)


@every
def test_prompts_have_no_place_as_keys_or_as_tokens_behind_the_image(name, tmp_path):
    trunk = loaded(name, tmp_path)
    prompts = DeepPrompts(2, 3, trunk.width, torch.Generator().manual_seed(1))

    def as_tokens(index, block, x, read):
        z = torch.cat([x, prompts.P[index].expand(len(x), -1, -1)], dim=1)
        return block.attn(block.norm1(z))[:, : read or x.shape[1]]

    expected = trunk.features(pictures(name), Watched(NONE, as_tokens))
    assert torch.allclose(trunk.features(pictures(name), prompts), expected, atol=2e-5)


class Behind(Edits):
    """Prompts that join behind the image, in front of the first block."""

    def __init__(self, prompts):
        self._prompts = prompts

    def tokens(self, l, x):
        return x if l else torch.cat([x, self._prompts.expand(len(x), -1, -1)], dim=1)


@pytest.mark.parametrize("name", [name for name, token in ARCHITECTURES.items() if token])
def test_patches_keep_their_places_wherever_prompts_join(name, tmp_path):
    trunk = loaded(name, tmp_path)
    prompts = torch.randn(3, trunk.width, generator=torch.Generator().manual_seed(1))
    before = trunk.features(pictures(name), JoinedPrompts({0: prompts}))
    assert torch.allclose(before, trunk.features(pictures(name), Behind(prompts)), atol=2e-5)
    watched = Watched(JoinedPrompts({0: prompts}), lambda l, block, x, read: NONE.attend(l, block, x, read))
    assert torch.allclose(before, trunk.features(pictures(name), watched), atol=2e-5)


@pytest.mark.parametrize("name", ROTARY)
def test_queries_and_keys_are_rotated_however_few_are_asked_for(name, tmp_path):
    trunk = loaded(name, tmp_path)
    attn, tokens = trunk.vit.blocks[0].attn, torch.randn(2, 14, trunk.width)  # of them 9 are patches
    assert is_rotary(trunk.vit) and trunk.vit.num_prefix_tokens == 5
    q, k, v = queries_keys_values(attn, tokens)
    assert torch.allclose(queries(attn, tokens), q, atol=1e-6)
    for read in (1, 5, 8):
        some, keys, values = queries_keys_values(attn, tokens, read)
        assert torch.allclose(some, q[:, :, :read], atol=1e-6)
        assert torch.allclose(keys, k, atol=1e-6) and torch.allclose(values, v, atol=1e-6)
    moved = queries(attn, tokens[:, [*range(5), *reversed(range(5, 14))]])[:, :, 5:].flip(2)
    centre, others = 4, [place for place in range(9) if place != 4]
    assert torch.allclose(moved[:, :, centre], q[:, :, 5 + centre], atol=1e-6)
    assert not torch.allclose(moved[:, :, others], q[:, :, 5:][:, :, others], atol=1e-2)


def test_what_edits_a_plain_mlp_refuses_a_gated_one(tmp_path):
    for name in ("vit_giant_patch14_dinov2", "aimv2_large_patch14_224"):
        with pytest.raises(InputError, match="MLP is a .*, beside which scales and shifts do not stand"):
            ScalesShifts(loaded(name, tmp_path).vit, torch.Generator())


def test_they_are_listed_and_other_networks_are_unknown():
    listed = backbone_lines()
    for name in ("vit_small_patch16_dinov3.lvd1689m", "deit3_small_patch16_224.fb_in1k"):
        assert name in listed and load.resolve(name, None, None, {}).image_size in (224, 256)
    with pytest.raises(InputError, match="names several checkpoints; .*vit_large_patch16_dinov3.sat493m"):
        load.resolve("vit_large_patch16_dinov3", None, None, {})
    for name in ("eva02_tiny_patch14_224", "deit_tiny_distilled_patch16_224", "beit_base_patch16_224"):
        assert not any(line.startswith(f"{name}.") for line in listed)
        with pytest.raises(InputError, match="unknown backbone"):
            load.resolve(name, None, None, {})
