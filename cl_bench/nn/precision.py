"""In which precision the frozen network computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_precision: ContextVar[str] = ContextVar("precision", default="fp32")


@contextmanager
def network_in(precision: str) -> Iterator[None]:
    """Within it the frozen network computes in this precision, "fp32" or "bf16".

    What methods do around it stays in fp32.
    """
    before = _precision.set(precision)
    try:
        yield
    finally:
        _precision.reset(before)


def autocast(device: torch.device) -> torch.autocast:
    """For the frozen network: everything between an image and its feature, a method's prompts among it."""
    return torch.autocast(device.type, torch.bfloat16, enabled=_precision.get() == "bf16")
