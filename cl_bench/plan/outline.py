"""Methods as planning sees them: shapes without numbers, so nothing large is made before a run starts."""

import copy
from typing import Any

import torch
from torch import nn

from cl_bench.config import Strict
from cl_bench.data.stream import StreamInfo
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.nn.backbone import Backbone
from cl_bench.training import work
from cl_bench.training.method import Method

MOST_BYTES = 1e12  # what a method may need besides the network: more is a slip of the keyboard


def of(backbone: Backbone) -> Backbone:
    """The backbone's shape: the same but for tensors, which have no content (single numbers keep theirs)."""
    bare: dict[int, Any] = {}  # what `copy.deepcopy` knows the copies of: by identity
    for value in backbone.parameters():
        if value.numel() > 1:
            bare[id(value)] = nn.Parameter(value.to("meta"), requires_grad=False)
    for kept in backbone.buffers():
        if kept.numel() > 1:
            bare[id(kept)] = kept.to("meta")
    return copy.deepcopy(backbone, bare)


def build(
    kind: type[Method], config: Strict, shape: Backbone, stream: StreamInfo, name: str, images: int = 1
) -> Method:
    """The method on a backbone's shape, for tasks of about so many images.

    Raises InputError for options that do not fit, and for sizes that no machine has memory for.
    """
    try:
        with torch.device("meta"):
            method = kind(config, shape, stream)
    except (RuntimeError, TypeError, OverflowError, MemoryError) as error:  # and NotImplementedError
        if "meta" in str(error).lower():  # it looks at values while it is made
            return kind(config, load.load(shape.spec, shape.weights_sha256 == load.EMPTY), stream)
        if "overflow" not in str(error).lower():
            raise
        raise InputError(f"{name} is too large for any machine; give smaller sizes") from error
    require_possible(method, name, images)
    return method


def require_possible(method: Method, name: str, images: int) -> None:
    """Raise InputError when learning tasks of so many images would take more memory than any machine has."""
    needed = work.memory_bytes(method, images)
    if needed > MOST_BYTES:
        memory = f"{needed / 1e12:,.1f} TB of memory besides the network"
        raise InputError(f"{name} needs {memory}; give smaller sizes")
