"""What needs a GPU is skipped where there is none."""

import pytest
import torch


def pytest_collection_modifyitems(items):
    """Say why each such test is skipped."""
    if not torch.cuda.is_available():
        reason = pytest.mark.skip(reason="there is no CUDA device")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(reason)


@pytest.fixture(autouse=True)
def full_precision():
    """As runs: matrix products in fp32 are not in TF32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
