"""Edits of a frozen network: the identity, each hook, and passes in two parts."""

import pytest
import torch
import toys
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from cl_bench.errors import InputError
from cl_bench.nn.edits import NONE, Edits, Watched
from cl_bench.nn.prompts import DeepPrompts

IMAGES = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


class Plain(Edits):
    """Every hook overridden, by what the network does anyway."""

    def patches(self, x):
        return x.clone()

    def norm(self, l, name, own):
        return lambda x: own(x)

    def linear(self, l, name, own):
        return lambda x: own(x)

    def beside_attention(self, l, h):
        return torch.zeros_like(h)

    def beside_mlp(self, l, x):
        return torch.zeros_like(x)


@pytest.mark.parametrize(
    "changes",
    [{}, {"init_values": 0.1}, {"qk_norm": True}, {"class_token": False, "global_pool": "avg"}],
    ids=str,
)
def test_hooks_that_do_what_the_network_does_change_nothing(changes):
    trunk = toys.backbone(**changes)
    assert torch.allclose(trunk.features(IMAGES, Plain()), trunk.features(IMAGES), atol=1e-6)


@pytest.mark.parametrize("name", ["qkv", "proj", "fc1", "fc2"])
def test_a_linear_map_beside_the_networks_own_equals_the_sum_of_both_weights(name):
    class Beside(Edits):
        def __init__(self, weights):
            self.weights = weights

        def linear(self, l, part, own):
            return (lambda x: own(x) + x @ self.weights[l].T) if part == name else own

    trunk, merged = toys.backbone(), toys.backbone()
    weights = []
    for block in merged.vit.blocks:
        own = getattr(block.attn if name in ("qkv", "proj") else block.mlp, name)
        weights.append(0.1 * torch.randn_like(own.weight))
        own.weight.data += weights[-1]
    assert torch.allclose(trunk.features(IMAGES, Beside(weights)), merged.features(IMAGES), atol=1e-5)


@pytest.mark.parametrize("name", ["norm1", "norm2", "norm"])
def test_a_norm_of_ones_own_stands_in_the_place_of_the_networks(name):
    class Own(Edits):
        def norm(self, l, part, own):
            return scaled if part == name and l in (1, 2) else own

    trunk, changed = toys.backbone(), toys.backbone()
    scaled = nn.LayerNorm(32, eps=1e-6)
    nn.init.normal_(scaled.weight)
    where = changed.vit if name == "norm" else changed.vit.blocks[1]
    setattr(where, name, scaled)
    assert torch.allclose(trunk.features(IMAGES, Own()), changed.features(IMAGES), atol=1e-6)


def test_what_stands_beside_attention_and_mlp_is_added_to_their_output():
    trunk = toys.backbone()
    block, x = trunk.vit.blocks[0], torch.randn(2, 5, 32)

    class Beside(Edits):
        def beside_attention(self, l, h):
            return 2 * h

        def beside_mlp(self, l, tokens):
            return 3 * tokens

    h = block.norm1(x)
    attended = block.attn(h) + 2 * h
    assert torch.allclose(Beside().attend(0, block, x), attended, atol=1e-5)
    y = x + attended
    assert torch.allclose(
        Beside().feed_forward(0, block, x, attended), y + block.mlp(block.norm2(y)) + 3 * y, atol=1e-5
    )


def test_an_mlp_of_other_parts_is_refused_where_a_part_is_edited():
    class Beside(Edits):
        def linear(self, l, name, own):
            return lambda x: own(x)

    trunk = toys.backbone()
    trunk.vit.blocks[0].mlp = nn.Sequential()
    trunk.vit.blocks[0].mlp.fc1 = trunk.vit.blocks[0].mlp.fc2 = nn.Identity()
    with pytest.raises(InputError, match="MLP is a Sequential"):
        trunk.features(IMAGES, Beside())


def test_patches_are_edited_before_class_token_and_positions_and_where_attention_is_watched_too():
    class Moved(Edits):
        def patches(self, x):
            return x + shift

    shift = torch.linspace(-1, 1, 32)
    trunk, moved, edits = toys.backbone(), toys.backbone(), Moved()
    moved.vit.patch_embed.proj.bias.data += shift
    expected = moved.features(IMAGES)
    assert not torch.allclose(expected, trunk.features(IMAGES), atol=1e-2)
    for found in (edits, Watched(edits, edits.attend)):
        assert torch.allclose(trunk.features(IMAGES, found), expected, atol=1e-5)
    assert torch.allclose(trunk.hidden(IMAGES, 1, edits), moved.hidden(IMAGES, 1), atol=1e-5)
    assert torch.allclose(trunk.class_tokens(IMAGES, edits), moved.class_tokens(IMAGES), atol=1e-5)


@pytest.mark.parametrize("until", [0, 1, 2])
def test_a_pass_in_two_parts_is_the_pass(until):
    trunk = toys.backbone()
    prompts = DeepPrompts(2, 3, 32, torch.Generator().manual_seed(1))
    for edits in (NONE, prompts):
        hidden = trunk.hidden(IMAGES, until, edits)
        assert hidden.shape == (3, 5, 32)
        assert torch.allclose(trunk.finish(hidden, until, edits), trunk.features(IMAGES, edits), atol=1e-6)


def test_a_trainable_copy_learns_and_leaves_the_network_alone():
    trunk = toys.backbone()
    twin, before = trunk.trainable_copy(), trunk.features(IMAGES)
    assert isinstance(twin.vit, VisionTransformer) and all(
        parameter.requires_grad for parameter in twin.vit.parameters()
    )
    twin.features(IMAGES).square().sum().backward()
    with torch.no_grad():
        for parameter in twin.vit.parameters():
            parameter -= 0.01 * parameter.grad
    assert torch.equal(trunk.features(IMAGES), before) and not torch.allclose(
        twin.features(IMAGES), before, atol=1e-3
    )
    assert not any(parameter.requires_grad for parameter in trunk.parameters())


def test_a_copy_of_which_a_part_is_trained_shares_the_other_tensors():
    trunk = toys.backbone()
    twin = trunk.trainable_copy(lambda name: name.endswith("bias"))
    own = dict(trunk.vit.named_parameters())
    for name, parameter in twin.vit.named_parameters():
        assert parameter.requires_grad == name.endswith("bias") == (parameter is not own[name]), name
    assert not any(parameter.requires_grad for parameter in own.values())
    assert torch.equal(twin.features(IMAGES), trunk.features(IMAGES))
