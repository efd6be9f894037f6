"""How far points are from their neighbors, which says how thinly populated their surroundings are."""

import torch
from torch import Tensor

ROWS = 4096  # queries whose distances to all points are held at a time


def kth_distances(queries: Tensor, points: Tensor, k: int) -> Tensor:
    """The distance (Q,) of each query (Q, D) from its k-th nearest point (N, D), k of 1..N.

    A query that is one of the points is its own first neighbor.
    """
    parts = queries.split(ROWS)
    return torch.cat([torch.cdist(part, points).topk(k, largest=False).values[:, -1] for part in parts])
