"""Optimal transport, exactly: the cheapest way to bring the mass of some points to others."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

ROUNDING = 1e-12  # of the mean mass of a row: what is less counts as nothing


def transport_plan(supply: np.ndarray, demand: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """The plan (n, m), float64, of least total cost: rows add up to supply (n,), columns to demand (m,).

    Both are positive and have the same sum; cost is (n, m). Successive shortest paths (Ahuja, Magnanti &
    Orlin, "Network Flows", 1993, section 9.7): prices u, v keep every reduced cost C_ij - u_i - v_j at 0 or
    above, and mass moves where it is 0. While rows have mass left, the cheapest ways from them to all columns
    that lack some are found, prices are raised until these ways cost nothing, and mass is sent along them.
    """
    moved = _Moved(supply, demand, cost)
    while moved.unfinished():
        moved.send(moved.cheapest_ways())
    return moved.plan()


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


class _Ways:
    """A forest: each column is reached from row `via_row`, a row from column `via_column` (-1: a root)."""

    def __init__(self, via_row: np.ndarray, via_column: np.ndarray, length: np.ndarray):
        self.via_row, self.via_column, self.length = via_row, via_column, length  # (m,), (n,), (m,)

    def steps(self, column: int) -> list[tuple[int, int, int]]:
        """From a column back to a root: (row, the column it sends to, the column that it takes from)."""
        found, before = [], column
        while before >= 0:
            column, row = before, int(self.via_row[before])
            before = int(self.via_column[row])
            found.append((row, column, before))
        return found


class _Moved:
    """Mass moved so far, by column and row; what rows have left and columns lack; prices of both."""

    def __init__(self, supply: np.ndarray, demand: np.ndarray, cost: np.ndarray):
        self.cost = np.ascontiguousarray(cost, dtype=np.float64)
        self.left, self.lack = (np.array(mass, dtype=np.float64) for mass in (supply, demand))
        self.nothing = ROUNDING * self.left.mean()
        self.v = self.cost.min(axis=0)
        self.u = (self.cost - self.v).min(axis=1)
        self.flow: list[dict[int, float]] = [{} for _ in self.lack]

    def unfinished(self) -> bool:
        """Whether there are both mass and a place for it."""
        return bool((self.left > self.nothing).any() and (self.lack > self.nothing).any())

    def plan(self) -> np.ndarray:
        """The mass moved, (n, m)."""
        found = np.zeros(self.cost.shape)
        for column, sent in enumerate(self.flow):
            found[list(sent), column] = list(sent.values())
        return found

    def cheapest_ways(self) -> _Ways:
        """Shortest paths in reduced cost to all columns that lack mass (Dijkstra); prices follow.

        A row that sent mass to a column may take it back at no cost, and send it elsewhere.
        """
        roots = np.flatnonzero(self.left > self.nothing)
        reduced = self.cost[roots] - self.u[roots, None]
        nearest = reduced.argmin(axis=0)
        ahead = reduced[nearest, np.arange(len(self.lack))] - self.v  # of columns not yet reached
        via_row, via_column = roots[nearest], np.full(len(self.left), -1)
        to_column, to_row = np.full(len(self.lack), np.inf), np.full(len(self.left), np.inf)
        to_row[roots], length, wanted = 0.0, 0.0, int((self.lack > self.nothing).sum())
        while wanted:
            column = int(ahead.argmin())
            length = float(ahead[column])
            to_column[column], ahead[column] = length, np.inf
            wanted -= bool(self.lack[column] > self.nothing)
            for row in self.flow[column]:
                if to_row[row] == np.inf:
                    to_row[row], via_column[row] = length, column
                    beyond = self.cost[row] - self.v
                    beyond += length - self.u[row]
                    shorter = (beyond < ahead) & (to_column == np.inf)
                    ahead[shorter], via_row[shorter] = beyond[shorter], row
        to_column, to_row = np.minimum(to_column, length), np.minimum(to_row, length)
        self.u += length - to_row
        self.v += to_column - length
        return _Ways(via_row, via_column, to_column)

    def send(self, ways: _Ways) -> None:
        """Send what each way holds, the cheapest first."""
        lacking = np.flatnonzero(self.lack > self.nothing)
        for column in lacking[np.argsort(ways.length[lacking], kind="stable")].tolist():
            steps = ways.steps(column)
            held = [self.flow[source].get(row, 0.0) for row, _, source in steps[:-1]]
            root = steps[-1][0]
            mass = min(self.lack[column], self.left[root], *held)
            if mass <= 0:
                continue
            self.lack[column] -= mass
            self.left[root] -= mass
            for row, target, source in steps:
                self.flow[target][row] = self.flow[target].get(row, 0.0) + mass
                if source >= 0:
                    self.flow[source][row] -= mass
                    if self.flow[source][row] <= 0:
                        del self.flow[source][row]
