"""Gradients of attention's input maps without what flows through the attention of some tokens.

Lu et al., "Attention Retention for Continual Learning with Vision Transformers", AAAI 2026.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.shown_attention import Attended

LARGEST = 10.0  # ratio


class MaskedGradients:
    r"""Beside the true gradient of every block's map W (3 D', D) of queries, keys and values, a masked one.

    With weights m (N,) of a block's tokens as they attend, A its scores, S their softmax and O = S V,
    \[ dQ = s (m \circ dA) K, \quad dK = s (m \circ dA)^T Q, \quad dV = (m \circ S)^T dO, \] of which each is
    multiplied by the tokens X. dA and dO are those of the backward pass as it is: only what W gets of them is
    masked. Gradients of several backward passes add up until `ratios` is asked.
    """

    def __init__(self, maps: Sequence[nn.Parameter], rows: Tensor):
        """`rows` are the weights m of every block, (L, N)."""
        self.maps, self.rows = maps, rows.to(maps[0])
        self.gradients = [torch.zeros_like(W) for W in maps]

    def see(self, attended: Attended) -> None:
        """Wait for the gradients of a block's attention, where there will be any."""
        if not attended.mixed.requires_grad:
            return
        m = self.rows[attended.index][: attended.scores.shape[2], None]  # (R, 1)
        # hooks that knew the tensor they hang on, or what follows from it, would keep every step's graph
        shown = (attended.scaled, attended.keys, attended.weights)
        scaled, keys, weights = (part.detach() for part in shown)
        index, scale, tokens = attended.index, attended.scale, attended.tokens.detach()

        def of_scores(dA: Tensor) -> None:
            dA = m * dA.to(m)
            self._add(index, tokens, 0, scale * dA @ keys.to(m))
            self._add(index, tokens, 1, dA.mT @ scaled.to(m))

        def of_mixed(dO: Tensor) -> None:
            self._add(index, tokens, 2, (m * weights.to(m)).mT @ dO.to(m))

        attended.scores.register_hook(of_scores)
        attended.mixed.register_hook(of_mixed)

    @torch.no_grad()
    def _add(self, index: int, tokens: Tensor, part: int, d: Tensor) -> None:
        """What queries, keys or values of a block contribute, given their gradient (B, H, n, d)."""
        d = d.transpose(1, 2).flatten(2)  # (B, n, D')
        X = tokens[:, : d.shape[1]].to(d)
        self.gradients[index].chunk(3)[part].add_(d.flatten(0, 1).T @ X.flatten(0, 1))

    @torch.no_grad()
    def ratios(self) -> list[Tensor]:
        """Masked over true gradient of each map, entry by entry, within -10..10; 1 where both are 0."""
        found = []
        for W, masked in zip(self.maps, self.gradients, strict=True):
            ratio = masked / W.grad
            found.append(torch.where(ratio.isnan(), 1.0, ratio).clamp(-LARGEST, LARGEST))
            masked.zero_()
        return found


def require_linear_maps(backbone: Backbone, method: str) -> None:
    """Raise InputError where queries or keys are normed, so that they are no linear map of the tokens."""
    attn = backbone.vit.blocks[0].attn
    if not isinstance(attn.q_norm, nn.Identity) or not isinstance(attn.k_norm, nn.Identity):
        normed = f"backbone {backbone.spec.name!r} normalizes its queries and keys"
        raise InputError(f"{normed}, for which {method} has no masked gradient; choose another backbone")
