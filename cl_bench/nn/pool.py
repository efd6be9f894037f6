"""A pool of prompts; an image is given those whose keys are near its query (Wang et al., L2P, CVPR 2022)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.nn.attention import prompt_keys_values
from cl_bench.nn.edits import Edits
from cl_bench.nn.prompts import ExtraKeys
from cl_bench.nn.statistics import TokenMoments


def cosines(queries: Tensor, keys: Tensor) -> Tensor:
    """cos(q_b, K_i), (B, S), of queries (B, D) and keys (S, D)."""
    return F.normalize(queries, dim=1) @ F.normalize(keys, dim=1).T


def attended_cosines(queries: Tensor, attention: Tensor, keys: Tensor) -> Tensor:
    """cos(q_b * A_i, K_i), (B, S), of queries (B, D), attention vectors and keys (S, D).

    It does without the (B, S, D) array of products.
    """
    lengths = (queries.square() @ attention.square().T).sqrt() * keys.norm(dim=1)
    return queries @ (attention * keys).T / lengths.clamp(min=1e-12)


def nearest(similarity: Tensor, count: int) -> Tensor:
    """Positions (B, count) of each row's largest entries (B, S), largest first; of equal ones the lower."""
    return similarity.sort(dim=1, descending=True, stable=True).indices[:, :count]


def majority(chosen: Tensor, size: int) -> Tensor:
    """The k of `size` entries that occur most often in a batch's choices (B, k), for all images, (1, k).

    Of equally frequent ones the lower are taken.
    """
    counts = tally(chosen, size)
    return counts.sort(descending=True, stable=True).indices[None, : chosen.shape[1]]


def tally(chosen: Tensor, size: int) -> Tensor:
    """How often each of `size` entries occurs in `chosen`, (size,)."""
    counts, ids = torch.zeros(size, dtype=torch.long, device=chosen.device), chosen.flatten()
    return counts.scatter_add_(0, ids, torch.ones_like(ids))


def picked(entries: Tensor, ids: Tensor) -> Tensor:
    """Entries (S, ...) at `ids` (...), as a product with one-hot rows.

    Its gradient has one order of summation on every device.
    """
    one_hot = torch.zeros(*ids.shape, len(entries), device=entries.device).scatter_(-1, ids[..., None], 1.0)
    return (one_hot @ entries.flatten(1)).unflatten(-1, entries.shape[1:])


def uniform(shape: tuple[int, ...], init: str, key: tuple, device: torch.device) -> nn.Parameter:
    """Prompts or keys from U(-1, 1) ("port": the PyTorch port) or U(0, 0.01) ("jax": the original code).

    `key` seeds them.
    """
    low, high = (-1.0, 1.0) if init == "port" else (0.0, 0.01)
    drawn = torch.empty(shape).uniform_(low, high, generator=seeds.generator(*key))
    return nn.Parameter(drawn.to(device))


class Chosen(ExtraKeys):
    """The pool entries that each image attends to.

    P (L, S * m, D) holds S entries of m prompts for L blocks, `ids` are (B, k), or (1, k) for all. Prompts
    pass LayerNorm and the key and value projections once per step, not once per image.
    """

    def __init__(self, P: Tensor, ids: Tensor, size: int):
        self.P, self.ids, self.size = P, ids, size
        zeros = torch.zeros(*ids.shape, size, device=P.device)
        self._one_hot = zeros.scatter_(2, ids[..., None], 1.0)  # (B, k, S)

    def _pick(self, entries: Tensor) -> Tensor:
        """(S, ...) -> (B, k, ...), as a product with one-hot rows, see `picked`."""
        return (self._one_hot.to(entries.dtype) @ entries.flatten(1)).unflatten(2, entries.shape[1:])

    def keys_values(self, l: int, block: nn.Module) -> tuple[Tensor, Tensor] | None:
        """k, v (B, H, k * m, d)."""
        if l >= len(self.P):
            return None
        pair = torch.stack(prompt_keys_values(block.attn, block.norm1(self.P[l])))  # (2, H, S * m, d)
        entries = pair.unflatten(2, (self.size, -1)).movedim(2, 0)  # (S, 2, H, m, d)
        chosen = self._pick(entries)  # (B, k, 2, H, m, d)
        k, v = chosen.movedim(1, 3).flatten(3, 4).unbind(1)  # (B, H, k * m, d)
        return k, v

    def as_tokens(self, l: int) -> Tensor:
        """The chosen prompts of block l as tokens, (B, k * m, D)."""
        return self._pick(self.P[l].unflatten(0, (self.size, -1))).flatten(1, 2)

    @property
    def rows(self) -> Tensor:
        """One-hot (B, k * m, S * m): the pool rows that an image attends to."""
        m = self.P.shape[1] // self.size
        return torch.kron(self._one_hot, torch.eye(m, device=self.P.device))


class Carried(Edits):
    """The chosen prompts of the first L blocks as tokens that join the image's and stay.

    `moments` may see the image tokens of every block.
    """

    def __init__(self, chosen: Chosen, position: Tensor | None, moments: TokenMoments | None):
        self.chosen, self.position, self.moments = chosen, position, moments
        self.layers, self.size = len(chosen.P), chosen.ids.shape[1] * (chosen.P.shape[1] // chosen.size)

    def tokens(self, l: int, x: Tensor) -> Tensor:
        """x with the prompts of block l behind it, in the first one at the class token's position."""
        if self.moments:
            self.moments.see(l, x[:, : x.shape[1] - min(l, self.layers) * self.size])
        if l >= self.layers:
            return x
        prompts = self.chosen.as_tokens(l).to(x.dtype).expand(len(x), -1, -1)
        return torch.cat([x, prompts if self.position is None or l else prompts + self.position], dim=1)
