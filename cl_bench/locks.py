"""A run's lock: who holds it is working on the run, and it dies with its process."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cl_bench.errors import Busy
from cl_bench.record import RunSpec
from cl_bench.store import Store


def is_held(store: Store, spec: RunSpec) -> bool:
    """Whether a process is working on the run."""
    return is_held_by_name(store, store.folder(spec).name)


def is_held_by_name(store: Store, name: str) -> bool:
    """The same of a run's folder."""
    try:
        with open(_lock_path(store, name), encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


def _lock_path(store: Store, name: str) -> Path:
    return store.root / "runs" / f".{name}.lock"


@contextmanager
def sole_owner(store: Store, spec: RunSpec, say: Callable[[str], None], wait: bool = True) -> Iterator[None]:
    """Hold the run's lock; a second process with the same specification waits here, or raises Busy. The lock dies with its process;
    its empty file stays, since removing it would let two waiting processes hold different locks."""
    with open(_lock_path(store, store.folder(spec).name), "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise Busy("another process is working on this run") from None
            say("another process is working on this run; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        store.folder(spec).mkdir(exist_ok=True)
        yield
