"""Where data lies, and arrays that are built once and mapped by every run."""

import fcntl
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import platformdirs

from cl_bench.config import canonical_json
from cl_bench.errors import InputError


def data_folder(name: str) -> Path:
    """Where a data set's own files go: $CL_BENCH_DATA/NAME, else in the user's data folder."""
    return Path(os.environ.get("CL_BENCH_DATA") or platformdirs.user_data_dir("cl-bench")) / name


def cache_folder() -> Path:
    """Where decoded images are kept: $CL_BENCH_CACHE, else the user's cache folder."""
    return Path(os.environ.get("CL_BENCH_CACHE") or platformdirs.user_cache_dir("cl-bench"))


def cached_arrays(key: dict, build: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays `build` returns, memory-mapped from the cache; built once per `key`. See `cached_files`."""

    def write(folder: Path) -> None:
        for name, array in build().items():
            with open(folder / f"{name}.npy", "wb") as file:
                np.save(file, array)
                file.flush()
                os.fsync(file.fileno())

    return cached_files(key, write)


def cached_files(key: dict, build: Callable[[Path], None]) -> dict[str, np.ndarray]:
    """The .npy files `build` writes into the folder it is given, memory-mapped by name.

    Built once per `key` by one process while others wait, and moved into place whole or not at all. Raises
    InputError when the cache folder cannot be written.
    """
    folder = cache_folder() / hashlib.sha256(canonical_json(key).encode()).hexdigest()[:24]
    try:
        if not _is_whole(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with open(folder.with_suffix(".lock"), "a", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not _is_whole(folder):
                    _write(folder, key, build)
    except OSError as error:
        what_to_do = "set CL_BENCH_CACHE to a writable folder with enough space"
        reason = f"{error.strerror or error}; {what_to_do}"
        raise InputError(f"cannot write the image cache {folder.parent}: {reason}") from error
    return _loaded(folder)


def _loaded(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of a folder. Raises InputError for one that is no array any more."""
    try:
        return {path.stem: np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))}
    except (OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the image cache {folder} is damaged ({reason}); remove it and repeat") from error


def _is_whole(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / "key.json").read_text(encoding="utf-8"))["sizes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


def _write(folder: Path, key: dict, build: Callable[[Path], None]) -> None:
    """Build beside `folder` and rename; the lock is held, so what lies there is left by a killed process."""
    for left in folder.parent.glob(f"{folder.name}.*.partial"):
        shutil.rmtree(left, ignore_errors=True)
    partial = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}.partial")
    partial.mkdir()
    try:
        build(partial)
        sizes = {path.name: path.stat().st_size for path in partial.glob("*.npy")}
        facts = json.dumps({"key": key, "sizes": sizes}, indent=1)
        (partial / "key.json").write_text(facts, encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
