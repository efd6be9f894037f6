"""Weight files: read without running code, held against what a module expects, and digested."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from cl_bench.config import BackboneSpec
from cl_bench.errors import InputError


def read(path: str) -> tuple[dict[str, Tensor], str]:
    """The file's tensors by name, and its sha256. Raises InputError for a file that is neither safetensors nor tensors alone."""
    try:
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        if path.endswith(".safetensors"):
            return load_file(path), digest
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {key: value for key, value in state.items() if isinstance(value, Tensor)}, digest
    except Exception as error:  # each reader has its own exceptions for a file that is none of its kind
        raise InputError(f"cannot read weights {path}: {str(error).splitlines()[0]}; expected .safetensors, or .pth with tensors only") from error


def require_fit(state: Mapping[str, Tensor], expected: Mapping[str, Tensor], spec: BackboneSpec) -> None:
    """Raise InputError naming the first tensors that are missing, unexpected or of another shape."""
    problems = [f"missing {key}" for key in expected if key not in state] + [f"unexpected {key}" for key in state if key not in expected]
    problems += [
        f"{key} is {tuple(state[key].shape)}, expected {tuple(value.shape)}"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise InputError(f"weights {spec.weights} do not fit {spec.name!r}: {'; '.join(problems[:3])}{more}")


def digest(module: nn.Module) -> str:
    """sha256 of every tensor's name and bytes."""
    found = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        found.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()
