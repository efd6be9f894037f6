"""Transport plans: masses arrive, and no plan is cheaper."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import coo_array

from cl_bench.errors import RunFailed
from cl_bench.nn import transport
from cl_bench.nn.transport import transport_plan


def least_cost(supply, demand, cost) -> float:
    """By a general solver of linear programs."""
    (n, m), each = cost.shape, np.arange(cost.size)
    rows = np.concatenate([each // m, n + each % m])
    sums = coo_array((np.ones(2 * cost.size), (rows, np.tile(each, 2))), shape=(n + m, cost.size))
    return linprog(cost.ravel(), A_eq=sums, b_eq=np.concatenate([supply, demand])).fun


@pytest.mark.parametrize("case", range(6))
def test_a_plan_brings_all_mass_and_none_is_cheaper(case):
    rng = np.random.default_rng(case)
    n, m = rng.integers(2, 40, 2)
    supply, demand = (rng.random(size) + 1e-3 for size in (n, m))
    demand *= supply.sum() / demand.sum()
    cost = rng.standard_normal((n, m)) if case % 2 else rng.integers(0, 4, (n, m)).astype(float)  # with ties
    plan = transport_plan(supply, demand, cost)
    assert plan.min() >= 0 and np.allclose(plan.sum(1), supply) and np.allclose(plan.sum(0), demand)
    assert (plan * cost).sum() == pytest.approx(least_cost(supply, demand, cost), abs=1e-9)


def test_equal_masses_are_assigned_one_to_one():
    cost = np.random.default_rng(3).random((50, 50))
    plan = transport_plan(np.full(50, 0.02), np.full(50, 0.02), cost)
    rows, columns = linear_sum_assignment(cost)
    assert np.allclose(plan[rows, columns], 0.02)


def test_a_plan_by_hand():
    """The second row has two of four parts and is far from the first column alone."""
    plan = transport_plan(np.array([0.5, 0.5]), np.array([0.25, 0.75]), np.array([[0.0, 1.0], [5.0, 2.0]]))
    assert np.allclose(plan, [[0.25, 0.25], [0.0, 0.5]])


def test_points_that_are_where_mass_is_wanted_keep_theirs():
    points, mass = np.random.default_rng(0).standard_normal((30, 4)), np.linspace(1, 2, 30)
    cost = ((points[:, None] - points[None]) ** 2).sum(2)
    assert np.allclose(transport_plan(mass, mass, cost), np.diag(mass))


@pytest.mark.filterwarnings("ignore:numItermax")
def test_a_plan_that_is_not_found_in_the_pivots_allowed_fails_the_run(monkeypatch):
    monkeypatch.setattr(transport, "PIVOTS", 3)
    mass, cost = np.full(50, 0.02), np.random.default_rng(0).random((50, 50))
    with pytest.raises(RunFailed, match="50 x 50 points in 3 pivots: numItermax reached"):
        transport_plan(mass, mass, cost)


def test_a_plan_of_what_is_not_finite_fails_the_run():
    mass = np.array([0.5, 0.5])
    for broken in ((mass, mass, np.array([[0.0, np.nan], [1.0, 0.0]])), (mass * np.nan, mass, np.eye(2))):
        with pytest.raises(RunFailed, match="not finite; lower learning_rate"):
            transport_plan(*broken)
