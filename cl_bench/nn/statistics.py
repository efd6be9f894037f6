"""Second moments of frozen attention, accumulated in one plain forward pass.

Of a prompted block (NSP2 paper, section 4.3) the null spaces need Omega1 = [Q_h W_k,h]_h and Omega2 =
[S_P,h]_h over all images, heads and image tokens. Omega1' Omega1 = sum_h W_k,h' (sum Q_h' Q_h) W_k,h, so a d
x d matrix per head is enough; S_P comes out of the same fused attention call as extra value columns that are
one-hot on the rows of the prompts (of a pool, on those that the image attends to), or out of the attention
map where that is computed anyway.
"""

from collections.abc import Callable, Sequence

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.nn import attention
from cl_bench.nn.attention import queries
from cl_bench.nn.edits import Edits, Watched
from cl_bench.nn.forward import embedded, through_blocks
from cl_bench.nn.head_moments import affinity_covariances
from cl_bench.nn.prompts import ExtraKeys


class AttentionMoments:
    """Sums over rows of Q_h' Q_h and S_P' S_P in float64.

    They are independent of how images are cut into batches, up to float32 rounding. With `batch_means` sums
    over batches of the mean over each one's rows, as NSP2's published code has them.
    """

    def __init__(self, P: Tensor, vit: nn.Module, batch_means: bool = False):
        layers, count, _ = P.shape
        heads, d = vit.blocks[0].attn.num_heads, vit.blocks[0].attn.head_dim
        self.vit, self.rows, self.batch_means = vit, 0, batch_means
        self.queries = torch.zeros(layers, heads, d, d, dtype=torch.float64, device=P.device)
        self.weights = torch.zeros(layers, count, count, dtype=torch.float64, device=P.device)

    def observing(self, prompts: ExtraKeys) -> Watched:
        """Exactly the prompts' own attention, which sums each batch's moments as it goes."""
        return Watched(prompts, lambda l, block, x, read: self._attend(l, block, x, read, prompts))

    def _attend(
        self, index: int, block: nn.Module, x: Tensor, read: int | None, prompts: ExtraKeys
    ) -> Tensor:
        attn, tokens = block.attn, block.norm1(x)
        if index >= len(self.weights):
            return attention.attention_with(attn, tokens, read=read)
        wanted, k, v = attention.queries_keys_values(attn, tokens, read)  # (B, H, read or N, d), (B, H, N, d)
        more_k, more_v = prompts.keys_values(index, block)
        k, v = attention.with_extra(k, more_k), attention.with_extra(v, more_v)
        picked = prompts.rows.to(v.dtype)  # (M, R) or (B, M, R)
        q = wanted if read is None else queries(attn, tokens)  # (B, H, N, d)
        mixed, s_p = self._mixed(attn, q, k, v, picked if picked.dim() == 2 else picked[:, None])
        if read is not None:
            mixed = attention.mixed_values(
                attn, wanted, k, v
            )  # to the last bit what is computed where nobody observes
        s_p = s_p.flatten(0, 2)  # (B * H * N, R)
        q_h = q.transpose(0, 1).flatten(1, 2)  # (H, B * N, d)
        rows = len(s_p) if self.batch_means else 1
        self.queries[index] += q_h.transpose(1, 2) @ q_h / rows
        self.weights[index] += s_p.T @ s_p / rows
        if index == 0:
            self.rows += len(s_p)
        return attention.merge_heads(attn, mixed, tokens[:, :read])

    @staticmethod
    def _mixed(attn: nn.Module, q: Tensor, k: Tensor, v: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mixed values (B, H, N, d) and S_P (B, H, N, R).

        Of the N + M keys the last M stand for prompts, `rows` ((B, 1,) M, R).
        """
        count, d = rows.shape[-1], q.shape[-1]
        if attention.explicit(q):
            weights = attention.attention_map(attn, q, k)
            return weights @ v, weights[..., -rows.shape[-2] :] @ rows
        one_hot = F.pad(rows, (0, 0, k.shape[2] - rows.shape[-2], 0))
        one_hot = one_hot.expand(*v.shape[:2], -1, -1)  # (B, H, N + M, R)
        # queries and keys are padded with zeros, since fused kernels want equal lengths
        mixed = F.scaled_dot_product_attention(
            F.pad(q, (0, count)), F.pad(k, (0, count)), torch.cat([v, one_hot], dim=3), scale=attn.scale
        )
        return mixed[..., :d], mixed[..., d:]

    def sums(self) -> dict[str, Tensor]:
        """All that was accumulated."""
        rows = torch.tensor(self.rows, device=self.queries.device)
        return {"queries": self.queries, "weights": self.weights, "rows": rows}

    def take(self, sums: dict[str, Tensor]) -> None:
        """Go on from what `sums` returned."""
        self.queries, self.weights, self.rows = sums["queries"], sums["weights"], int(sums["rows"])

    def covariances(self, exact: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Sums over all rows Omega1' Omega1 (L, D, D) and Omega2' Omega2 (L, M, M), float64.

        Given the prompts (L, M, D) as `exact`, those of the conditions with LayerNorm's scale and the
        prompts' deviation.
        """
        first, second = affinity_covariances(self.vit, self.queries), self.weights.clone()
        if exact is None:
            return first, second
        scales = [block.norm1.weight.double() for block in self.vit.blocks[: len(exact)]]
        alpha = torch.stack(scales)  # (L, D)
        sigma = exact.double().std(dim=2, correction=0)  # (L, M)
        return alpha[:, :, None] * first * alpha[:, None, :], second / (sigma[:, :, None] * sigma[:, None, :])


class TokenMoments:
    """Sum over image tokens of X' X in float64, X the tokens that enter each of the first L blocks.

    They are seen before or (`normalized`) after its norm1. P (L, ., D) is what a method has in these blocks,
    prompts or low-rank maps.
    """

    def __init__(self, P: Tensor, normalized: bool = False):
        layers, _, width = P.shape
        self.normalized, self.rows = normalized, 0
        self.sums = torch.zeros(layers, width, width, dtype=torch.float64, device=P.device)

    def observing(self, edits: Edits) -> Watched:
        """Exactly the edits' own attention, which sums each batch's moments as it goes."""

        def attend(index: int, block: nn.Module, x: Tensor, read: int | None) -> Tensor:
            self.see(index, block.norm1(x) if self.normalized and index < len(self.sums) else x)
            return edits.attend(index, block, x, read)

        return Watched(edits, attend)

    def see(self, index: int, tokens: Tensor) -> None:
        """Add image tokens (B, N, D) that enter block `index`; nothing for a block behind the first L."""
        if index < len(self.sums):
            flat = tokens.flatten(0, 1)
            self.sums[index] += flat.T @ flat
            if index == 0:
                self.rows += len(flat)

    def means(self, add: Callable[[Sequence[Tensor]], None] = lambda tensors: None) -> Tensor:
        """X' X over the number of rows, (L, D, D); `add` adds up what several processes have seen."""
        rows = torch.tensor(self.rows, device=self.sums.device)
        add([self.sums, rows])
        return self.sums / rows


class QueryMoments:
    """Sums over image tokens of Q_h' Q_h in float64, for every head of the first L blocks: (L, H, d, d)."""

    def __init__(self, layers: int, vit: nn.Module):
        heads, d = vit.blocks[0].attn.num_heads, vit.blocks[0].attn.head_dim
        device, self.rows = vit.blocks[0].attn.qkv.weight.device, 0
        self.sums = torch.zeros(layers, heads, d, d, dtype=torch.float64, device=device)

    def observing(self, prompts: ExtraKeys) -> Watched:
        """Exactly the prompts' own attention, which sums each batch's moments as it goes."""

        def attend(index: int, block: nn.Module, x: Tensor, read: int | None) -> Tensor:
            if index < len(self.sums):
                q = queries(block.attn, block.norm1(x)).transpose(0, 1).flatten(1, 2)  # (H, B * N, d)
                self.sums[index] += q.transpose(1, 2) @ q
                if index == 0:
                    self.rows += q.shape[1]
            return prompts.attend(index, block, x, read)

        return Watched(prompts, attend)

    def means(self) -> Tensor:
        """Q_h' Q_h over the number of rows, (L, H, d, d)."""
        return self.sums / self.rows


def block_queries(vit: VisionTransformer, images: Tensor, edits: Edits, index: int) -> Tensor:
    """Attention queries q (B, H, N, d) of block `index` under the edits."""
    block = vit.blocks[index]
    x = through_blocks(vit, embedded(vit, images, edits), edits, until=index)
    return queries(block.attn, block.norm1(edits.tokens(index, x)))
