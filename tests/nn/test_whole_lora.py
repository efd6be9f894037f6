"""LoRA beside whole linear maps, which starts from the singular vectors of their weights."""

import pytest
import torch
import toys

from cl_bench.errors import InputError
from cl_bench.nn.lora import WholeLoRA, leading_inputs, weights

IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
NAMES = ("qkv", "proj", "fc1", "fc2")


def started(rank: int = 3, names: tuple[str, ...] = NAMES) -> tuple[WholeLoRA, list]:
    blocks = toys.backbone().vit.blocks
    lora = WholeLoRA(blocks, rank, names, scale=0.5)
    lora.start(blocks)
    return lora, blocks


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_leading_inputs_are_right_singular_vectors_but_for_their_signs(shape):
    W = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    expected = torch.linalg.svd(W).Vh[:2]
    found = leading_inputs(W, 2)
    assert torch.allclose((found * expected).sum(1).abs(), torch.ones(2), atol=1e-5)
    assert torch.allclose(found @ found.T, torch.eye(2), atol=1e-5)


def test_a_starts_in_every_map_as_its_leading_singular_vectors_and_the_network_as_it_is():
    lora, blocks = started()
    for name in NAMES:
        for l, W in enumerate(weights(blocks, name)):
            _, s, Vh = torch.linalg.svd(W)
            A = lora.A[name][l].detach()
            assert torch.allclose(A.T @ A, Vh[:3].T @ Vh[:3], atol=1e-4)
            assert torch.allclose((W @ A.T).norm(dim=0), s[:3], rtol=1e-4)
    trunk = toys.backbone()
    assert torch.equal(trunk.features(IMAGES, lora), trunk.features(IMAGES))


def test_low_rank_updates_equal_the_sum_with_the_weights():
    lora, _ = started(names=("qkv", "fc2"))
    trunk, merged = toys.backbone(), toys.backbone()
    with torch.no_grad():
        for name, B in lora.B.items():
            B.normal_(generator=torch.Generator().manual_seed(3))
            for l, W in enumerate(weights(merged.vit.blocks, name)):
                W += 0.5 * B[l] @ lora.A[name][l]
    assert not torch.allclose(merged.features(IMAGES), trunk.features(IMAGES), atol=1e-3)
    assert torch.allclose(trunk.features(IMAGES, lora), merged.features(IMAGES), atol=1e-4)
    own = trunk.vit.blocks[0].mlp.fc1
    assert lora.linear(0, "fc1", own) is own


def test_ranks_beyond_a_map_and_maps_that_are_missing_are_refused():
    blocks = toys.backbone().vit.blocks
    with pytest.raises(InputError, match="rank=33, but qkv of a block has 32 directions"):
        WholeLoRA(blocks, 33, ("qkv",))
    blocks[1].mlp.fc1 = torch.nn.Identity()
    with pytest.raises(InputError, match="LoRA beside fc1 needs blocks with such a linear map"):
        WholeLoRA(blocks, 2, NAMES)
