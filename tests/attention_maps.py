"""Attention of a block by its definition, with explicit maps."""

import torch

from cl_bench.nn.attention import attention_with, prompt_keys_values


def omegas(block, x, P):
    """Omega1 (H N B, D) and Omega2 (H N B, M) of one block by definition, with explicit attention maps."""
    attn = block.attn
    B, N, D = x.shape
    H, d = attn.num_heads, D // attn.num_heads
    w_q, w_k, _ = attn.qkv.weight.chunk(3)
    b_q, b_k, _ = attn.qkv.bias.chunk(3)
    tokens, prompts = block.norm1(x), block.norm1(P)
    first, second = [], []
    for h in range(H):
        rows = slice(h * d, (h + 1) * d)
        q = tokens @ w_q[rows].T + b_q[rows]
        k = torch.cat([tokens, prompts.expand(B, -1, -1)], 1) @ w_k[rows].T + b_k[rows]
        first.append((q @ w_k[rows]).reshape(-1, D))
        second.append((q @ k.transpose(1, 2) * d**-0.5).softmax(-1)[..., N:].reshape(-1, len(P)))
    return torch.cat(first), torch.cat(second)


def block_output(block, x, prompts):
    x = x + attention_with(block.attn, block.norm1(x), prompt_keys_values(block.attn, prompts))
    return x + block.mlp(block.norm2(x))
