"""Prompts that join an image's tokens."""

import torch
import toys

from cl_bench.nn.prompts import JoinedPrompts


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
