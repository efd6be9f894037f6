"""Where first tasks that several runs share are kept in a results folder."""

import os
from pathlib import Path

from cl_bench.records.sealed import entries
from cl_bench.records.store import Store

FACTS = "trained.json"  # written last: what is there without it has not been trained


def folder(store: Store, key: str) -> Path:
    """Where the first task of this key is kept."""
    return store.root / "first-tasks" / key[:16]


def is_stored(store: Store, key: str) -> bool:
    """Whether it has been trained."""
    return os.path.exists(folder(store, key) / FACTS)


def folders(store: Store) -> list[Path]:
    """Those of all first tasks. Raises as `entries`."""
    return [path for path in entries(store.root / "first-tasks", "*") if path.is_dir()]
