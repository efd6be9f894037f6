"""Optimal transport, exactly: the cheapest way to bring the mass of some points to others."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cl_bench.errors import RunFailed

PIVOTS = 10**7  # of the network simplex at most: 3840 x 3840 points take less than 10**5


def transport_plan(supply: np.ndarray, demand: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """The plan (n, m), float64, of least total cost: rows add up to supply (n,), columns to demand (m,).

    Both are positive and have the same sum; cost is (n, m). POT's network simplex finds it.

    Raises RunFailed where a value is not finite, or the solver ends before an optimal plan.
    """
    from ot import emd  # takes seconds to import

    if not all(np.isfinite(part).all() for part in (supply, demand, cost)):
        raise RunFailed("units cannot be matched: a weight is not finite; lower learning_rate")
    plan, log = emd(supply, demand, cost, numItermax=PIVOTS, log=True)
    if log["warning"]:
        size = " x ".join(map(str, cost.shape))
        raise RunFailed(f"no optimal transport plan of {size} points in {PIVOTS} pivots: {log['warning']}")
    return plan


def matching(units: Tensor, seen: Tensor, reference: Tensor) -> Tensor:
    """T (n, n), columns adding up to 1: which of n units, by share, stand for each unit of a reference.

    A unit's mass is the length of its weights (n, k) in the 1-norm; what it costs to match two is the squared
    distance of their directions, those of `seen`, the units as they are compared (Singh & Jaggi, "Model
    Fusion via Optimal Transport", NeurIPS 2020).
    """
    supply, demand = (F.normalize(rows.abs().sum(dim=1) + 1e-9, p=1, dim=0) for rows in (units, reference))
    a, b = (F.normalize(rows, dim=1, eps=1e-9) for rows in (seen, reference))
    cost = a.square().sum(dim=1)[:, None] + b.square().sum(dim=1) - 2 * a @ b.T
    T = torch.from_numpy(transport_plan(*(part.double().cpu().numpy() for part in (supply, demand, cost))))
    return (T / (T.sum(dim=0) + 1e-7)).to(units)
