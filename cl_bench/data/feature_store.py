"""Features of frozen networks on disk: computed once for the images of a class, for all runs that ask."""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from cl_bench.config import canonical_json
from cl_bench.data.cache import cache_folder
from cl_bench.errors import InputError
from cl_bench.files import write_atomically

LOCK = "lock"


def features_folder() -> Path:
    """Where features of frozen networks are kept: a folder for each network and set of images."""
    return cache_folder() / "features"


class Removals(Protocol):
    """What may be removed, and what not."""

    kept: list[str]

    def add(self, path: Path, what: str) -> None:
        """Put a folder on the list."""


def offer(removals: Removals) -> None:
    """Put all that is kept on the list, but for folders in which a process computes."""
    for folder in sorted(features_folder().glob("*")):
        try:
            with FileLock(folder / LOCK, timeout=0):
                removals.add(folder, "features of a frozen network")
        except Timeout:
            removals.kept.append(f"{folder} is in use by a run")


class FeatureStore:
    """Features of one side of a data set, as it enters networks: a file for each class.

    A folder belongs to all that decides them to the last bit: images and how they enter, the network's
    weights, the machine. So runs, seeds and methods share them, and a changed file or setting finds nothing.
    """

    def __init__(self, images: dict):
        """`images` says which images these are, how they enter a network, and where it computes."""
        self._images = images

    def once(self, network: dict, name: str, compute: Callable[[], Tensor]) -> tuple[Tensor, float]:
        """The features (n, D) that `compute()` returns, or returned to whoever asked first.

        With them the seconds that they took then, but for those that were spent here, computing or waiting
        for another process. A file whose digest is another one is damaged, and made anew. Raises InputError
        where the cache folder cannot be read or written.
        """
        key = {**self._images, **network}
        folder = features_folder() / hashlib.sha256(canonical_json(key).encode()).hexdigest()[:24]
        path, start = folder / f"{name}.safetensors", time.perf_counter()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            found = _read(path)
            if found is None:
                with FileLock(folder / LOCK):
                    found = _read(path)  # of a process that was waited for
                    if found is None:
                        write_atomically(folder / "key.json", json.dumps(key, indent=1).encode())
                        return _made(path, compute), 0.0
        except OSError as error:
            what_to_do = "set CL_BENCH_CACHE to a writable folder with enough space"
            reason = f"{error.strerror or error}; {what_to_do}"
            raise InputError(f"cannot keep features in {folder}: {reason}") from error
        features, seconds = found
        return features, max(0.0, seconds - (time.perf_counter() - start))


def _made(path: Path, compute: Callable[[], Tensor]) -> Tensor:
    """What `compute()` returns, written to a file with its digest and the seconds that it took."""
    start = time.perf_counter()
    features = compute()
    kept = features.cpu()
    facts = {"seconds": f"{time.perf_counter() - start:.6f}", "sha256": _digest(kept)}
    write_atomically(path, save({"features": kept}, facts))
    return features


def _read(path: Path) -> tuple[Tensor, float] | None:
    """Features and seconds of a file, None where there is none or it is damaged. Raises OSError."""
    if not path.exists():
        return None
    with open(path, "rb"):  # whatever forbids reading is no damage
        pass
    try:
        with safe_open(path, "pt") as file:
            facts, features = file.metadata() or {}, file.get_tensor("features")
    except SafetensorError:
        return None
    if facts.get("sha256") != _digest(features):
        return None
    return features, float(facts["seconds"])


def _digest(features: Tensor) -> str:
    return hashlib.sha256(features.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
