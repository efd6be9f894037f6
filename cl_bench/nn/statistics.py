"""Second moments of frozen attention, accumulated in one plain forward pass.

Of a prompted block (NSP2 paper, section 4.3) the null spaces need Omega1 = [Q_h W_k,h]_h and Omega2 = [S_P,h]_h over all images, heads and
image tokens. Omega1' Omega1 = sum_h W_k,h' (sum Q_h' Q_h) W_k,h, so a d x d matrix per head is enough; S_P comes out of the same fused
attention call as M extra value columns that are one-hot on the prompts.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.nn.prompts import DeepPrompts, attention, merge_heads, prompt_keys_values, queries_keys_values


class AttentionMoments:
    """Sums over rows of Q_h' Q_h and S_P' S_P in float64; independent of how images are cut into batches up to float32 rounding."""

    def __init__(self, prompts: DeepPrompts, vit: nn.Module):
        layers, count, _ = prompts.P.shape
        heads, d = vit.blocks[0].attn.num_heads, vit.blocks[0].attn.head_dim
        device = prompts.P.device
        self.prompts, self.vit, self.rows = prompts, vit, 0
        self.queries = torch.zeros(layers, heads, d, d, dtype=torch.float64, device=device)
        self.weights = torch.zeros(layers, count, count, dtype=torch.float64, device=device)

    def attend(self, index: int, block: nn.Module, x: Tensor) -> Tensor:
        """Exactly the prompts' own attention, while summing this batch's moments."""
        attn, tokens = block.attn, block.norm1(x)
        if index >= len(self.weights):
            return attention(attn, tokens, None)
        q, k, v = queries_keys_values(attn, tokens)  # (B, H, N, d)
        k_p, v_p = prompt_keys_values(attn, block.norm1(self.prompts.P[index]))
        count, d = k_p.shape[1], q.shape[-1]
        k = torch.cat([k, k_p.expand(len(k), -1, -1, -1)], dim=2)
        v = torch.cat([v, v_p.expand(len(v), -1, -1, -1)], dim=2)
        one_hot = torch.zeros(k.shape[2], count, dtype=v.dtype, device=v.device)
        one_hot[-count:].fill_diagonal_(1.0)
        v = torch.cat([v, one_hot.expand(*v.shape[:2], -1, -1)], dim=3)  # (B, H, N + M, d + M)
        # queries and keys are padded with zeros, since fused kernels want equal lengths
        mixed = F.scaled_dot_product_attention(F.pad(q, (0, count)), F.pad(k, (0, count)), v, scale=attn.scale)
        s_p = mixed[..., d:].flatten(0, 2)  # (B * H * N, M)
        q_h = q.transpose(0, 1).flatten(1, 2)  # (H, B * N, d)
        self.queries[index] += q_h.transpose(1, 2) @ q_h
        self.weights[index] += s_p.T @ s_p
        if index == 0:
            self.rows += len(s_p)
        return merge_heads(attn, mixed[..., :d], tokens)

    def covariances(self) -> tuple[Tensor, Tensor]:
        """Sums over all rows Omega1' Omega1 (L, D, D) and Omega2' Omega2 (L, M, M), float64."""
        omega1 = []
        for block, gram in zip(self.vit.blocks, self.queries, strict=False):
            inner = block.attn.qkv.out_features // 3
            w_k = block.attn.qkv.weight[inner : 2 * inner].double().unflatten(0, (block.attn.num_heads, -1))  # (H, d, D)
            omega1.append((w_k.transpose(1, 2) @ gram @ w_k).sum(0))
        return torch.stack(omega1), self.weights.clone()


class TokenMoments:
    """Sum over image tokens of X' X in float64, X the tokens that enter each prompted block, before or (`normalised`) after its norm1."""

    def __init__(self, prompts: DeepPrompts, normalised: bool):
        layers, _, width = prompts.P.shape
        self.prompts, self.normalised, self.rows = prompts, normalised, 0
        self.sums = torch.zeros(layers, width, width, dtype=torch.float64, device=prompts.P.device)

    def attend(self, index: int, block: nn.Module, x: Tensor) -> Tensor:
        """Exactly the prompts' own attention, while summing this batch's moments."""
        if index < len(self.sums):
            flat = (block.norm1(x) if self.normalised else x).flatten(0, 1)
            self.sums[index] += flat.T @ flat
            if index == 0:
                self.rows += len(flat)
        return self.prompts.attend(index, block, x)
