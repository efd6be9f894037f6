"""Prompts and prefixes: what image tokens attend to besides themselves."""

from collections.abc import Sequence

import torch
from timm.layers import drop_path
from torch import Tensor, nn

from cl_bench.errors import InputError
from cl_bench.nn.attention import attention_beside, prompt_keys_values, split_heads
from cl_bench.nn.edits import Edits


class ExtraKeys(Edits):
    """Edits that are keys and values alone.

    `rows` says which rows of `P` (L, R, D) they come from: one-hot (M, R) for all images or (B, M, R).
    """

    P: Tensor

    @property
    def rows(self) -> Tensor:
        """Which row of P each of the extra keys is."""
        raise NotImplementedError


class DeepPrompts(nn.Module, ExtraKeys):
    """P (L, M, D): M prompts for each of the first L blocks, drawn from U(-1, 1)."""

    def __init__(self, layers: int, prompts: int, width: int, generator: torch.Generator):
        super().__init__()
        self.P = nn.Parameter(torch.empty(layers, prompts, width).uniform_(-1.0, 1.0, generator=generator))

    def keys_values(self, l: int, block: nn.Module) -> tuple[Tensor, Tensor] | None:
        """k, v (H, M, d): the same for all images."""
        return prompt_keys_values(block.attn, block.norm1(self.P[l])) if l < len(self.P) else None

    @property
    def rows(self) -> Tensor:
        """The identity (M, M)."""
        return torch.eye(self.P.shape[1], device=self.P.device)


class JoinedPrompts(Edits):
    """Prompts that join the image's tokens behind the class token and stay.

    `blocks` says in front of which block they join: block index -> (M, D), or (B, M, D) of each image.
    """

    in_front = True

    def __init__(self, blocks: dict[int, Tensor]):
        self.blocks = blocks

    def tokens(self, l: int, x: Tensor) -> Tensor:
        """x with the prompts of block l between its first token and the others, (B, N + M, D)."""
        if l not in self.blocks:
            return x
        prompts = self.blocks[l].to(x.dtype).expand(len(x), -1, -1)
        return torch.cat([x[:, :1], prompts, x[:, 1:]], dim=1)


class ShallowPrompts(nn.Module, JoinedPrompts):
    """P (M, D): M prompts that join in front of the first block, drawn from U(-1, 1)."""

    def __init__(self, prompts: int, width: int, generator: torch.Generator):
        super().__init__()
        self.P = nn.Parameter(torch.empty(prompts, width).uniform_(-1.0, 1.0, generator=generator))

    @property
    def blocks(self) -> dict[int, Tensor]:
        """All of them, in front of block 0."""
        return {0: self.P}


class StochasticDepth(JoinedPrompts):
    """The same, and every residual branch is left out at random, image by image (Huang et al., ECCV 2016).

    Block l of L leaves its branches out with probability rate l / (L - 1), and scales those that stay.
    """

    def __init__(self, blocks: dict[int, Tensor], rate: float, depth: int):
        super().__init__(blocks)
        self.rate, self.depth = rate, depth

    def feed_forward(self, l: int, block: nn.Module, x: Tensor, attended: Tensor) -> Tensor:
        """The block's branches, some of them left out."""
        rate = self.rate * l / max(1, self.depth - 1)
        x = x + drop_path(block.ls1(attended), rate, training=True)
        return x + drop_path(block.ls2(block.mlp(block.norm2(x))), rate, training=True)


class TaskPrompts(nn.Module):
    """P_t (L, M, D) of every task: M tokens that join in front of each of L blocks."""

    def __init__(self, blocks: Sequence[int], prompts: int, width: int):
        super().__init__()
        self.blocks, self.shape = blocks, (len(blocks), prompts, width)
        self.P = nn.ParameterList()

    def grow(self, generator: torch.Generator, device: torch.device) -> None:
        """Add a task's; they start as those before, at first from U(-1/sqrt(D), 1/sqrt(D)). Others freeze."""
        bound = self.shape[-1] ** -0.5
        first = torch.empty(self.shape).uniform_(-bound, bound, generator=generator).to(device)
        start = self.P[-1].detach().clone() if self.P else first
        self.P.requires_grad_(False).append(nn.Parameter(start))

    def of(self, tasks: Sequence[int]) -> JoinedPrompts:
        """Those of a task for each image, or of one task for all."""
        chosen = torch.stack([self.P[task] for task in tasks], dim=1)  # (L, B, M, D)
        return JoinedPrompts(dict(zip(self.blocks, chosen, strict=True)))


class Prefixes(ExtraKeys):
    """Prefixes of some blocks: block index -> (K, V), each (B, m, D) or (1, m, D) for all images."""

    def __init__(self, blocks: dict[int, tuple[Tensor, Tensor]]):
        self.blocks = blocks

    def keys_values(self, l: int, block: nn.Module) -> tuple[Tensor, Tensor] | None:
        """k, v (B, H, m, d)."""
        if l not in self.blocks or self.blocks[l][0].shape[1] == 0:
            return None
        K, V = self.blocks[l]
        return split_heads(block.attn, K), split_heads(block.attn, V)

    def mean_norms(self) -> list[Tensor]:
        """For every block, the length of an image's keys and values as one vector, averaged over a batch."""
        both = [torch.cat(pair, dim=1).detach() for pair in self.blocks.values()]  # (B, 2 m, D)
        return [rows.flatten(1).norm(dim=1).mean() for rows in both]

    def without_permute(self, first: int, batch: int) -> "Prefixes":
        """These prefixes, from block `first` on as the public PyTorch code mixes them in a batch."""
        mixed = {
            l: pair if l < first else without_permute(*(half.expand(batch, -1, -1) for half in pair))
            for l, pair in self.blocks.items()
        }
        return Prefixes(mixed)


class TunedPrefixes(nn.Module, Edits):
    """K, V (L, m, D) that are learned, for all images, among the keys and values of the first L blocks.

    They are drawn from U(0, 0.01) and stand there times learned scales (L, 2), which start at 1. Their
    weights in attention are made to sum to 1, see `attention_beside`.
    """

    def __init__(self, depth: int, width: int, length: int, generator: torch.Generator):
        super().__init__()
        drawn = torch.empty(2, depth, length, width).uniform_(0, 0.01, generator=generator)
        self.K, self.V = map(nn.Parameter, drawn)
        self.scale = nn.Parameter(torch.ones(depth, 2))

    def attend(self, l: int, block: nn.Module, x: Tensor, read: int | None = None) -> Tensor:
        """Attention over the tokens and, in the first L blocks, the prefixes."""
        if l >= len(self.K):
            return super().attend(l, block, x, read)
        scaled = (scale * part[l] for scale, part in zip(self.scale[l], (self.K, self.V), strict=True))
        extra = tuple(split_heads(block.attn, part) for part in scaled)  # (H, m, d)
        return attention_beside(block.attn, x, extra, read, block.norm1)


class SharedPrefixes(nn.Module, Edits):
    """Prefixes of the first blocks, of these lengths and the same for all images, drawn from U(0, 1).

    Block l has P_l (L_l, D): its first half are keys, the others values.
    """

    def __init__(self, lengths: Sequence[int], width: int, generator: torch.Generator):
        super().__init__()
        drawn = [torch.empty(length, width).uniform_(0, 1, generator=generator) for length in lengths]
        self.P = nn.ParameterList(map(nn.Parameter, drawn))

    def keys_values(self, l: int, block: nn.Module) -> tuple[Tensor, Tensor] | None:
        """k, v (H, L_l / 2, d)."""
        if l >= len(self.P):
            return None
        K, V = self.P[l].chunk(2)
        return split_heads(block.attn, K), split_heads(block.attn, V)

    def keys(self) -> dict[int, int]:
        """How many there are in each block."""
        return {l: len(P) // 2 for l, P in enumerate(self.P)}


def without_permute(K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """What the public PyTorch code makes of prefixes (B, m, D): an array (2, B, ...) read as (B, 2, ...).

    Image b is given entries 2b and 2b + 1 of all keys followed by all values: two keys in the first half of
    the batch, two values in the second, and those of other images.
    """
    return torch.stack([K, V]).reshape(len(K), 2, *K.shape[1:]).unbind(1)


def prefix_lengths(split: str, **lengths: int) -> list[int]:
    """Keys, and as many values, of prefixes of these lengths by option: all ("full"), or the first "half".

    Raises InputError for an odd length that is to be halved.
    """
    half = split == "half"
    if half and any(length % 2 for length in lengths.values()):
        got = " and ".join(f"{option}={length}" for option, length in lengths.items())
        raise InputError(f"kv_split=half needs even lengths, got {got}")
    return [length // 2 if half else length for length in lengths.values()]
