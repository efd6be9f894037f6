"""Tests use one thread and never touch the user's cache folder."""

import os
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import runs
import torch
import toys

torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """One cache folder for the whole test session."""
    os.environ["CL_BENCH_CACHE"] = str(tmp_path_factory.getbasetemp() / "cache")


@pytest.fixture(scope="session")
def toy_request(tmp_path_factory):
    return {
        **toys.write_inputs(tmp_path_factory.mktemp("runner"), classes=8),
        "splits": "4",
        "set": runs.QUICK,
    }


@pytest.fixture(scope="session")
def whole_run(toy_request, tmp_path_factory):
    """The uninterrupted run everything is compared with."""
    root = tmp_path_factory.mktemp("whole")
    spec = runs.spec_of(toy_request)
    return spec, runs.execute(spec, root), root
