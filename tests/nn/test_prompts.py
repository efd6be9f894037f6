"""Prompts that join an image's tokens, and prefixes among the keys and values of its attention."""

import pytest
import torch
import toys

from cl_bench.nn.edits import Edits
from cl_bench.nn.prompts import JoinedPrompts, ShallowPrompts, SharedPrefixes, StochasticDepth, TaskPrompts


def test_prompts_join_behind_the_class_token_and_stay_in_all_blocks_behind():
    trunk = toys.backbone(depth=3)
    images, vit = torch.randn(4, 3, 16, 16), trunk.vit
    first, second = torch.randn(2, 32), torch.randn(4, 5, 32)  # for all images, and one set for each
    found = trunk.hidden(images, 3, JoinedPrompts({0: first, 2: second}))
    x = vit._pos_embed(vit.patch_embed(images))
    x = torch.cat([x[:, :1], first.repeat(4, 1, 1), x[:, 1:]], dim=1)
    x = vit.blocks[1](vit.blocks[0](x))
    x = vit.blocks[2](torch.cat([x[:, :1], second, x[:, 1:]], dim=1))
    assert found.shape == (4, 5 + 2 + 5, 32)
    assert torch.allclose(found, x, atol=1e-5)


def test_shallow_prompts_join_in_front_of_the_first_block_and_get_a_gradient():
    trunk, images = toys.backbone(), torch.randn(4, 3, 16, 16)
    prompts = ShallowPrompts(3, 32, torch.Generator().manual_seed(0))
    assert dict(prompts.named_parameters()).keys() == {"P"} and prompts.P.abs().max() <= 1
    found = trunk.features(images, prompts)
    assert torch.equal(found, trunk.features(images, JoinedPrompts({0: prompts.P})))
    found.square().sum().backward()
    assert all(prompts.P.grad.norm(dim=1) > 0)


def test_shared_prefixes_are_keys_and_values_of_the_first_blocks_as_they_are():
    trunk, x = toys.backbone(), torch.randn(3, 5, 32)
    prefixes = SharedPrefixes([6], 32, torch.Generator().manual_seed(0))
    block, [P] = trunk.vit.blocks[0], prefixes.P
    q, k, v = block.attn.qkv(block.norm1(x)).chunk(3, dim=-1)
    k, v = torch.cat([P[:3].expand(3, -1, -1), k], dim=1), torch.cat([P[3:].expand(3, -1, -1), v], dim=1)
    heads = [slice(0, 16), slice(16, 32)]
    mixed = [(q[..., h] @ k[..., h].mT / 4).softmax(dim=-1) @ v[..., h] for h in heads]
    expected = block.attn.proj(torch.cat(mixed, dim=-1))
    assert torch.allclose(prefixes.attend(0, block, x), expected, atol=1e-5)
    assert torch.equal(prefixes.attend(1, block, x), Edits().attend(1, block, x))


def test_branches_are_left_out_more_often_the_deeper_they_are_and_never_in_the_first_block():
    trunk, blocks = toys.backbone(), {1: torch.randn(3, 1, 32)}
    images = torch.randn(3, 3, 16, 16)
    whole = StochasticDepth(blocks, 0.0, trunk.depth)
    assert torch.allclose(
        trunk.features(images, whole), trunk.features(images, JoinedPrompts(blocks)), atol=1e-5
    )
    block, x, attended = trunk.vit.blocks[1], torch.randn(4000, 1, 32), torch.ones(4000, 1, 32)
    dropping = StochasticDepth({}, 0.25, 2)
    assert torch.allclose(
        dropping.feed_forward(0, block, x, attended), whole.feed_forward(0, block, x, attended)
    )
    torch.manual_seed(0)
    plain = x + block.mlp(block.norm2(x))  # where attention is left out, and the MLP is not
    found = dropping.feed_forward(1, block, x, attended)
    left_out = (found - x).abs().amax(dim=(1, 2)) == 0
    assert left_out.float().mean().item() == pytest.approx(0.25**2, abs=0.02)
    alone = (found - x - (plain - x) / 0.75).abs().amax(dim=(1, 2)) < 1e-4
    assert alone.float().mean().item() == pytest.approx(0.25 * 0.75, abs=0.02)


def test_prompts_of_a_task_start_as_those_before_and_each_image_is_given_one_tasks():
    prompts, generator = TaskPrompts((0, 2), 3, 16), torch.Generator().manual_seed(0)
    for _ in range(2):
        prompts.grow(generator, torch.device("cpu"))
    first, second = prompts.P
    assert first.shape == (2, 3, 16) and torch.equal(first, second)
    assert 0.2 < float(first.detach().abs().max()) <= 0.25
    assert [P.requires_grad for P in prompts.P] == [False, True]
    with torch.no_grad():
        second.normal_()
    joined = prompts.of([1, 0, 1]).blocks
    assert joined.keys() == {0, 2}
    for place, block in enumerate((0, 2)):
        assert torch.equal(joined[block], torch.stack([second[place], first[place], second[place]]))
