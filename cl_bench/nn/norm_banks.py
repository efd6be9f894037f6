"""LayerNorms whose scales and shifts are a task's own, and keys by which an image's task is chosen."""

from collections.abc import Callable
from functools import partial

import torch
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.errors import InputError
from cl_bench.nn.attention import attention_with
from cl_bench.nn.edits import Edits
from cl_bench.nn.pool import attended_cosines, cosines, nearest
from cl_bench.nn.subspaces import orthonormal_beside


class NormBanks(nn.Module):
    """Of each task gamma and beta (S, D), and keys: (1, D), or (S, D) and as many attention vectors.

    The S = 2 L + 1 norms of L blocks are norm1 and norm2 of every block, then the final one. The first gamma
    and beta are the network's, the others start as those of the task before; the newest are trained.
    """

    def __init__(self, vit: VisionTransformer, key_for_each_norm: bool):
        super().__init__()
        self._norms = [norm for block in vit.blocks for norm in (block.norm1, block.norm2)] + [vit.norm]
        for norm in self._norms:
            if not isinstance(norm, nn.LayerNorm) or norm.weight is None or norm.bias is None:
                needed = (
                    "LayerNorm tuning needs a backbone whose norms are all LayerNorms with scale and shift"
                )
                raise InputError(f"{needed}; this one has a {type(norm).__name__}")
        self.gamma, self.beta, self.keys = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()
        self.attention = nn.ParameterList() if key_for_each_norm else None

    def grow(self, init_seed: int, new_keys: bool) -> None:
        """Add a task's; keys and attention vectors are drawn, or start as those of the task before."""
        for bank, part in ((self.gamma, "weight"), (self.beta, "bias")):
            own = None if len(bank) else torch.stack([getattr(norm, part) for norm in self._norms])
            _add(bank, own)
        places = 1 if self.attention is None else len(self._norms)
        for bank, name in ((self.keys, "keys"), (self.attention, "attention")):
            if bank is not None:
                drawn = new_keys or not len(bank)
                _add(bank, self._drawn(places, len(bank), (init_seed, name)) if drawn else None)

    def _drawn(self, places: int, task: int, key: tuple) -> Tensor:
        """Unit rows (places, D), each orthogonal to those drawn for earlier tasks.

        Raises InputError for more tasks than dimensions.
        """
        D = self.gamma[0].shape[1]
        if task >= D:
            many = f"keys of {task + 1} tasks cannot be orthogonal in {D} dimensions"
            raise InputError(f"{many}; let them start as those of the task before (new_keys=off)")
        rows = [torch.randn(places, D, generator=seeds.generator(*key, index)) for index in range(task + 1)]
        drawn = torch.stack(rows, dim=1)  # (places, t, D)
        return orthonormal_beside(drawn, drawn[:, :0], "qr")[:, -1].to(self.gamma[0].device)

    def newest(self) -> list[nn.Parameter]:
        """The newest norms and, where each has one, their keys and attention vectors: learned together."""
        together = [] if self.attention is None else [self.keys[-1], self.attention[-1]]
        return [self.gamma[-1], self.beta[-1], *together]

    def of_task(self) -> "TaskNorms":
        """The newest norms, for all images."""
        return TaskNorms(self.gamma[-1], self.beta[-1])

    def nearest(self, queries: Tensor) -> "TaskNorms":
        """For each image the norms of the task whose key is nearest to its query (B, D)."""
        ids = nearest(cosines(queries, torch.cat([*self.keys])), 1)[:, 0]  # (B,)
        return TaskNorms(*(torch.stack([*bank])[ids] for bank in (self.gamma, self.beta)))

    def routed(self, first: int = 0) -> "RoutedNorms":
        """Norms that each choose among the tasks from `first` on."""
        banks = (self.gamma, self.beta, self.attention, self.keys)
        return RoutedNorms(*(torch.stack([*bank][first:]) for bank in banks))


def _add(bank: nn.ParameterList, start: Tensor | None) -> None:
    start = bank[-1] if start is None else start
    bank.requires_grad_(False).append(nn.Parameter(start.detach().clone()))


class TaskNorms(Edits):
    """gamma and beta (S, D) for all images, or (B, S, D) of each."""

    def __init__(self, gamma: Tensor, beta: Tensor):
        self.gamma, self.beta = gamma, beta

    def affine(self, place: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift, (D,) or (B, D), of tokens x (B, N, D) at one of the S places."""
        return self.gamma[..., place, :], self.beta[..., place, :]

    def norm(self, l: int, name: str, own: nn.Module) -> Callable[[Tensor], Tensor]:
        """The network's LayerNorm with scale and shift of the task."""
        return partial(self.normed, 2 * l + (name == "norm2"), own.eps)

    def normed(self, place: int, eps: float, x: Tensor) -> Tensor:
        """Tokens x (B, N, D) behind the norm at one of the S places."""
        gamma, beta = self.affine(place, x)
        if gamma.ndim == 1:
            return F.layer_norm(x, x.shape[-1:], gamma, beta, eps)
        return F.layer_norm(x, x.shape[-1:], eps=eps) * gamma[:, None] + beta[:, None]

    def attend(self, l: int, block: Block, x: Tensor, read: int | None = None) -> Tensor:
        """Attention of tokens that are normed here, so that what is compiled knows nothing of tasks."""
        return attention_with(block.attn, self.norm(l, "norm1", block.norm1)(x), read=read)


class RoutedNorms(TaskNorms):
    r"""Every norm chooses for itself: the task s with the largest \( \cos(x_{cls} \odot a_s, k_s) \).

    gamma, beta, attention vectors a and keys k of the tasks are (t, S, D). Where there is one task no norm
    has a choice. `similarities` are the cosines (B, t) at the norms that a batch has passed.
    """

    def __init__(self, gamma: Tensor, beta: Tensor, attention: Tensor, keys: Tensor):
        super().__init__(gamma, beta)
        self.attention, self.keys = attention, keys
        self.similarities: list[Tensor] = []

    def affine(self, place: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift of the tasks that class tokens are nearest to."""
        with torch.autocast(x.device.type, enabled=False):
            similarity = attended_cosines(x[:, 0].float(), self.attention[:, place], self.keys[:, place])
        self.similarities.append(similarity)
        if len(self.keys) == 1:
            return self.gamma[0, place], self.beta[0, place]
        ids = nearest(similarity, 1)[:, 0]
        return self.gamma[ids, place], self.beta[ids, place]

    def mean_similarity(self) -> Tensor:
        """Cosines averaged over images and both norms of a block, then over the blocks and the final norm."""
        found = torch.stack([similarity.mean() for similarity in self.similarities])  # (S,)
        blocks = found[:-1].unflatten(0, (-1, 2)).mean(dim=1)
        return torch.cat([blocks, found[-1:]]).mean()
