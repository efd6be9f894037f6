"""Weight files: read without running code, held against what a module expects, and digested."""

import hashlib
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from cl_bench.config import BackboneSpec
from cl_bench.errors import InputError

HEADS = ("head.", "head_dist.")  # classifiers of a vision transformer, which no method uses
# Runs with the backbone of the glyphs were recorded under the digest of its file; its tensors keep that name,
# whatever file holds them.
RECORDED = {
    "91937d5f8ee16bce1e10afd65d3076125d317e978b06164ae747dfb2eb6e3e98": (
        "3f3a0d3b7943169a824b1b0663dae7cb7e5cb1c36d8917e91aaf2dccc7ab72c0"
    ),
}


def read(path: str) -> dict[str, Tensor]:
    """The file's tensors by name, floating-point ones in fp32, without heads.

    A dictionary around them, as of a training's checkpoint, is taken off. Raises InputError for a file that
    is neither safetensors nor tensors alone, that holds several sets of them, or values that are no numbers.
    """
    try:
        if not Path(path).stat().st_size:
            raise InputError(f"cannot read weights {path}: the file is empty; copy or download it again")
        if path.endswith(".safetensors"):
            state = load_file(path)
        else:
            state = _only_set(torch.load(path, map_location="cpu", weights_only=True), path)
    except InputError:
        raise
    except Exception as error:  # each reader has its own exceptions for a file that is none of its kind
        raise InputError(
            f"cannot read weights {path}: {_reason(error)}; expected .safetensors, or .pth with tensors only"
        ) from error
    state = {key: value.detach() for key, value in state.items() if not key.startswith(HEADS)}
    for key, value in state.items():
        if value.layout != torch.strided or value.is_quantized or value.is_complex():
            raise InputError(f"weights {path}: {key} is sparse, quantized or complex; expected plain numbers")
    state = {key: value.float() if value.is_floating_point() else value for key, value in state.items()}
    bad = [key for key, value in state.items() if not value.isfinite().all()]
    if bad:
        more = f", and so do {len(bad) - 1} more" if len(bad) > 1 else ""
        holds = f"weights {path}: {bad[0]} holds NaN or infinite values{more}"
        raise InputError(f"{holds}; the file is broken, or its training diverged")
    return state


def _only_set(content, path: str) -> dict[str, Tensor]:
    """The one set of tensors in what a .pth holds. Raises InputError where there are none or several."""
    found = dict(_sets(content, ""))
    if len(found) == 1:
        return found.popitem()[1]
    if found:
        names = ", ".join(name or "its own" for name in found)
        raise InputError(f"weights {path} holds several sets of tensors: {names}; save the one that is meant")
    holds = f"a {type(content).__name__}"
    if isinstance(content, Mapping) and content:
        holds = ", ".join(map(str, content))
    raise InputError(f"weights {path} holds no tensors, but {holds}; expected tensors by name")


def _sets(content, name: str) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Every mapping of names to tensors, at whatever depth, by its keys.

    Single numbers alone (a step, a scale) are none.
    """
    # an optimizer numbers its tensors
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        return
    tensors = {key: value for key, value in content.items() if isinstance(value, Tensor)}
    if any(value.ndim for value in tensors.values()):
        yield name, tensors
    for key, value in content.items():
        yield from _sets(value, f"{name}.{key}" if name else key)


def _reason(error: Exception) -> str:
    """One line of what a reader says; torch's advice to run the file's code is left out."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, pickle.UnpicklingError):
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        return f"it holds {named[1]}, and only tensors are loaded" if named else "it is no file of torch's"
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def require_fit(state: Mapping[str, Tensor], expected: Mapping[str, Tensor], spec: BackboneSpec) -> None:
    """Raise InputError naming the first tensors that are missing, unexpected or of another shape."""
    problems = [f"missing {key}" for key in expected if key not in state]
    problems += [f"unexpected {key}" for key in state if key not in expected]
    problems += [
        f"{key} is {tuple(state[key].shape)}, expected {tuple(value.shape)}"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise InputError(f"weights {spec.weights} do not fit {spec.name!r}: {'; '.join(problems[:3])}{more}")


def digest(state: Mapping[str, Tensor]) -> str:
    """What names these weights in a run's identity: sha256 of every tensor's name and bytes.

    It does not depend on the file they came from.
    """
    found = hashlib.sha256()
    for name, value in sorted(state.items()):
        found.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return RECORDED.get(found.hexdigest(), found.hexdigest())


def file_digest(path: str) -> str:
    """sha256 of the file, by which older records name weights."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
