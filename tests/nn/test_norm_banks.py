"""Banks of LayerNorms: what they are for one task, for each image, and where every norm chooses."""

import pytest
import torch
import toys
from torch.nn import functional as F

from cl_bench.errors import InputError
from cl_bench.nn.norm_banks import NormBanks, RoutedNorms, TaskNorms
from cl_bench.nn.pool import attended_cosines

IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def banks(tasks: int, key_for_each_norm: bool = False, new_keys: bool = True) -> NormBanks:
    """Banks of the toy network (two blocks: five norms of 32), away from where they start."""
    found = NormBanks(toys.backbone().vit, key_for_each_norm)
    generator = torch.Generator().manual_seed(0)
    for _ in range(tasks):
        found.grow(3, new_keys)
        for parameter in found.newest():
            parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return found


def with_norms(gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """Features of a network that has these norms as its own."""
    trunk = toys.backbone()
    norms = [norm for block in trunk.vit.blocks for norm in (block.norm1, block.norm2)] + [trunk.vit.norm]
    for norm, scale, shift in zip(norms, gamma, beta, strict=True):
        norm.weight.data, norm.bias.data = scale.detach(), shift.detach()
    return trunk.features(IMAGES)


def test_new_norms_change_nothing_and_later_ones_start_as_the_last():
    trunk = toys.backbone()
    fresh = NormBanks(trunk.vit, key_for_each_norm=True)
    fresh.grow(3, new_keys=True)
    expected = trunk.features(IMAGES)
    assert torch.allclose(trunk.features(IMAGES, fresh.of_task()), expected, atol=1e-6)
    assert torch.allclose(trunk.features(IMAGES, fresh.routed()), expected, atol=1e-6)
    moved = banks(1)
    moved.grow(3, new_keys=False)
    for bank in (moved.gamma, moved.beta, moved.keys):
        assert torch.equal(bank[0], bank[1]) and bank[0] is not bank[1]
        assert [parameter.requires_grad for parameter in bank] == [False, True]


def test_the_norms_of_a_task_stand_in_the_place_of_the_networks():
    found, trunk = banks(2), toys.backbone()
    for index in range(2):
        edits = TaskNorms(found.gamma[index], found.beta[index])
        expected = with_norms(found.gamma[index], found.beta[index])
        assert torch.allclose(trunk.features(IMAGES, edits), expected, atol=1e-5)


def test_every_image_has_the_norms_of_the_key_nearest_to_its_query():
    found, trunk = banks(3), toys.backbone()
    ids = torch.tensor([2, 0, 1, 2])
    queries = torch.cat([*found.keys])[ids] * torch.tensor([[1.0], [3.0], [0.1], [2.0]])
    features = trunk.features(IMAGES, found.nearest(queries))
    for image, index in enumerate(ids):
        expected = with_norms(found.gamma[index], found.beta[index])[image]
        assert torch.allclose(features[image], expected, atol=1e-5)


def test_drawn_keys_are_orthonormal_over_the_tasks_at_every_norm():
    fresh = NormBanks(toys.backbone().vit, key_for_each_norm=True)
    for _ in range(4):
        fresh.grow(3, new_keys=True)
    for bank in (fresh.keys, fresh.attention):
        rows = torch.stack([*bank], dim=1)  # (5, 4, 32)
        assert torch.allclose(rows @ rows.mT, torch.eye(4).expand(5, 4, 4), atol=1e-5)
    assert not torch.allclose(fresh.keys[0], fresh.attention[0])


def test_more_drawn_keys_than_dimensions_are_refused_and_copies_are_not():
    found = NormBanks(toys.backbone(embed_dim=4, num_heads=2).vit, key_for_each_norm=False)
    for _ in range(4):
        found.grow(3, new_keys=True)
    with pytest.raises(InputError, match="keys of 5 tasks cannot be orthogonal in 4 dimensions"):
        found.grow(3, new_keys=True)
    found = NormBanks(toys.backbone(embed_dim=4, num_heads=2).vit, key_for_each_norm=False)
    for _ in range(5):
        found.grow(3, new_keys=False)


def test_a_network_without_layernorm_is_refused():
    from timm.layers import RmsNorm

    with pytest.raises(InputError, match="whose norms are all LayerNorms.*has a RmsNorm"):
        NormBanks(toys.backbone(norm_layer=RmsNorm).vit, key_for_each_norm=False)


def test_attended_cosines_are_those_of_products():
    generator = torch.Generator().manual_seed(0)
    q, A, K = (torch.randn(rows, 6, generator=generator) for rows in (3, 4, 4))
    expected = F.cosine_similarity(q[:, None] * A, K[None], dim=2)
    assert torch.allclose(attended_cosines(q, A, K), expected, atol=1e-6)


def test_a_routed_norm_takes_each_images_nearest_task_by_its_class_token_there():
    found = banks(3, key_for_each_norm=True)
    edits, place = found.routed(), 3  # the second norm of the second block
    x = torch.randn(6, 5, 32, generator=torch.Generator().manual_seed(2))
    normed = edits.norm(1, "norm2", toys.backbone().vit.norm)(x)
    chosen = []
    for image, tokens in enumerate(x):
        pairs = [(found.attention[s][place], found.keys[s][place]) for s in range(3)]
        cosines = [F.cosine_similarity(tokens[0] * a, k, dim=0).item() for a, k in pairs]
        chosen.append(cosines.index(max(cosines)))
        scale, shift = found.gamma[chosen[-1]][place], found.beta[chosen[-1]][place]
        expected = F.layer_norm(tokens, (32,), scale, shift, 1e-6)
        assert torch.allclose(normed[image], expected, atol=1e-5)
    assert len(set(chosen)) > 1


def test_the_mean_similarity_weighs_the_final_norm_as_a_block():
    """Two blocks: (mean(1, 3) + mean(5, 7) + 10) / 3 = (2 + 6 + 10) / 3 = 6."""
    edits = RoutedNorms(*torch.zeros(4, 1, 5, 2))
    edits.similarities = [torch.full((2, 1), value) for value in (1.0, 3.0, 5.0, 7.0, 10.0)]
    assert edits.mean_similarity().item() == pytest.approx(6)
