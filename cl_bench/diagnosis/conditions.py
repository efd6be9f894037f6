"""How far a change of prompts is from the two conditions under which attention of old images stays.

NSP2 (Lu et al., NeurIPS 2024), section 4: Q W_k dP' = 0 keeps affinity Q K_P', and S_P dP = 0 then keeps
aggregation S_P V_P, as long as the prompts' mean and deviation stay. Both drop LayerNorm's scale alpha and
the prompts' deviation sigma; what must vanish is the same of dP / sigma * alpha.
"""

from typing import Any

import torch
from torch import Tensor, nn

from cl_bench.nn.attention import prompt_keys_values
from cl_bench.nn.head_moments import key_weights, value_weights


class BlockConditions:
    """Both conditions in a block, under Q_h' Q_h (H, d, d) and S_h' S_h (H, R, R) of old images, float64."""

    def __init__(self, block: Any, queries: Tensor, weights: Tensor):
        self.block, self.queries, self.weights = block, queries, weights

    def residuals(self, old: Tensor, new: Tensor) -> dict[str, float | None]:
        """What becomes of them when prompts (R, D) change, by the names of `cl_bench.records.diagnosis`."""
        delta = (new - old).double()
        return {**self._published(old.double(), delta), **self._actual(old, new, delta)}

    def _published(self, P: Tensor, delta: Tensor) -> dict[str, float | None]:
        """Of dP as it is, and of a random one of the same length: tr(C) spread over all dimensions."""
        w_k, aggregated = key_weights(self.block.attn).double(), self.weights.sum(0)
        size, (rows, width) = float(delta.square().sum()), delta.shape
        trace = float(((w_k.mT @ self.queries) * w_k.mT).sum())
        affinity, aggregation = self._affinity(P @ w_k.mT), float((P * (aggregated @ P)).sum())
        return {
            "affinity_published": _ratio(self._affinity(delta @ w_k.mT), affinity),
            "affinity_random": _ratio(size * trace / width, affinity),
            "aggregation_published": _ratio(float((delta * (aggregated @ delta)).sum()), aggregation),
            "aggregation_random": _ratio(size * float(aggregated.trace()) / rows, aggregation),
        }

    def _actual(self, old: Tensor, new: Tensor, delta: Tensor) -> dict[str, float | None]:
        """Of keys and values, as they are and with LayerNorm's mean and deviation held."""
        (K, V), (K_new, V_new) = (self._keys_values(P) for P in (old, new))
        affinity, aggregation = self._affinity(K), self._aggregation(V)
        found: dict[str, float | None] = {
            "affinity_change": _ratio(self._affinity(K_new - K), affinity),
            "aggregation_change": _ratio(self._aggregation(V_new - V), aggregation),
            "affinity_exact": None,
            "aggregation_exact": None,
        }
        norm, attn = self.block.norm1, self.block.attn
        if isinstance(norm, nn.LayerNorm) and isinstance(attn.k_norm, nn.Identity):
            sigma = (old.double().var(dim=1, correction=0, keepdim=True) + norm.eps).sqrt()
            step = delta / sigma * (1 if norm.weight is None else norm.weight.double())
            keys, values = (step @ W(attn).double().mT for W in (key_weights, value_weights))  # (H, R, d)
            found["affinity_exact"] = _ratio(self._affinity(keys), affinity)
            found["aggregation_exact"] = _ratio(self._aggregation(values), aggregation)
        return found

    def _keys_values(self, P: Tensor) -> tuple[Tensor, Tensor]:
        k, v = prompt_keys_values(self.block.attn, self.block.norm1(P))  # (H, R, d)
        return k.double(), v.double()

    def _affinity(self, K: Tensor) -> float:
        """|Q K'|^2 over all heads, of K (H, R, d)."""
        return float((K @ self.queries * K).sum())

    def _aggregation(self, V: Tensor) -> float:
        """|S V|^2 over all heads, of V (H, R, d)."""
        return float((self.weights @ V * V).sum())


def _ratio(changed: float, whole: float) -> float | None:
    """Of lengths, from their squares; None where there was nothing to change."""
    return (max(changed, 0.0) / whole) ** 0.5 if whole > 0 else None


def changed_statistics(old: Tensor, new: Tensor) -> dict[str, float]:
    """How mean and deviation of prompts (R, D), which LayerNorm divides by, have changed."""
    deviation, new_deviation = (P.std(dim=1, correction=0) for P in (old, new))  # (R,)
    scale = deviation.mean().clamp(min=torch.finfo(old.dtype).tiny)
    return {
        "mean_change": float((new.mean(dim=1) - old.mean(dim=1)).abs().mean() / scale),
        "deviation_change": float((new_deviation - deviation).abs().mean() / scale),
    }
