"""What several methods' tests are given."""

import numpy as np
import pytest
import torch
from torch import Tensor

from cl_bench.nn.gaussians import ClassGaussians, unpack


@pytest.fixture
def given_draws(monkeypatch):
    """The page's numbers in the place of random ones, of the alignment's passes one after another."""
    state = {"pass": 0}

    def normals(known: ClassGaussians, count: int, generator) -> Tensor:
        keys = [[23, state["pass"], k] for k in range(len(known.means))]
        z = torch.stack(
            [torch.tensor(np.random.default_rng(key).standard_normal((count, 48))) for key in keys]
        )
        return known.means[:, None] + z.float() @ unpack(known.factors, 48).mT

    def permutation(count: int, **options) -> Tensor:
        order = np.random.default_rng([29, state["pass"]]).permutation(count)
        state["pass"] += 1
        return torch.tensor(order)

    monkeypatch.setattr(ClassGaussians, "sample", normals)
    monkeypatch.setattr(torch, "randperm", permutation)
