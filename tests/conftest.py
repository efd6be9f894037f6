"""Tests use one thread and never touch the user's cache folder."""

import os
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """One cache folder for the whole test session."""
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
