"""Class attention is timm's own block of CaiT, computed with fewer products."""

import torch
import torch.nn.functional as F
from timm.models.cait import LayerScaleBlockClassAttn

from cl_bench.nn.class_attention import EPSILON, ClassAttention, normalized


def made(width: int = 12, heads: int = 3) -> ClassAttention:
    generator = torch.Generator().manual_seed(0)
    block = ClassAttention(torch.randn(width, generator=generator), heads, width // 2, generator)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return block


def timms(block: ClassAttention, heads: int = 3, width: int = 12) -> LayerScaleBlockClassAttn:
    """timm's block with the same weights, its scales 1, and keys with a bias of their own."""
    other = LayerScaleBlockClassAttn(width, heads, mlp_ratio=0.5, qkv_bias=True, init_values=1.0)
    other.norm1.eps = other.norm2.eps = EPSILON
    parts = {"attn.q": block.q, "attn.k": block.k, "attn.v": block.v, "attn.proj": block.proj}
    parts |= {"norm1": block.norm1, "norm2": block.norm2, "mlp.fc1": block.fc1, "mlp.fc2": block.fc2}
    state = other.state_dict()
    for name, part in parts.items():
        state |= {f"{name}.{key}": value.detach().clone() for key, value in part.state_dict().items()}
    state["attn.k.bias"] = torch.linspace(-1, 1, width)
    other.load_state_dict(state)
    return other.eval()


def test_values_and_gradients_are_those_of_timms_block_whatever_bias_its_keys_have():
    block, Z = made(), torch.randn(4, 5, 12, generator=torch.Generator().manual_seed(1))
    other, token, tokens = timms(block), block.token.detach().clone().requires_grad_(True), Z.clone()
    tokens.requires_grad_(True)
    Z.requires_grad_(True)
    expected = other(tokens, token.expand(4, 1, -1))[:, 0]
    found = block(normalized(Z))
    assert torch.allclose(found, expected, atol=1e-5)
    towards = torch.randn(4, 12, generator=torch.Generator().manual_seed(2))
    (found * towards).sum().backward()
    (expected * towards).sum().backward()
    assert torch.allclose(block.token.grad, token.grad, atol=1e-5)
    assert torch.allclose(Z.grad, tokens.grad, atol=1e-5)
    pairs = [(block.q, other.attn.q), (block.v, other.attn.v), (block.norm1, other.norm1)]
    for own, theirs in [*pairs, (block.norm2, other.norm2), (block.fc1, other.mlp.fc1)]:
        assert torch.allclose(own.weight.grad, theirs.weight.grad, atol=1e-5)
        assert torch.allclose(own.bias.grad, theirs.bias.grad, atol=1e-5)
    assert torch.allclose(block.k.weight.grad, other.attn.k.weight.grad, atol=1e-5)
    assert other.attn.k.bias.grad.abs().max() < 1e-5


def test_a_new_block_starts_from_the_token_with_small_normal_weights_and_no_bias():
    token = torch.linspace(-1, 1, 64)
    block = ClassAttention(token, 4, 32, torch.Generator().manual_seed(0))
    assert torch.equal(block.token, token) and block.token is not token
    for part in (block.q, block.k, block.v, block.proj, block.fc1, block.fc2):
        assert 0.019 < part.weight.std() < 0.021 and (part.bias is None or not part.bias.any())
    assert block.k.bias is None


def test_tokens_are_normalized_in_full_precision():
    tokens = torch.randn(2, 3, 8, dtype=torch.bfloat16)
    found = normalized(tokens)
    assert found.dtype == torch.float32
    assert torch.allclose(found, F.layer_norm(tokens.float(), (8,), eps=EPSILON))
