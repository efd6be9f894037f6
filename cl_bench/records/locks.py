"""A run's lock: who holds it is working on the run, and it dies with its process.

`filelock` would not do: it opens a lock for writing to look at it, which a listing of a read-only folder
cannot.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from cl_bench.errors import Busy, InputError
from cl_bench.records.file_lock import cannot_lock, is_taken, take
from cl_bench.records.sealed import is_missing
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import Store

WHOLE_FOLDER = "lock"  # in a folder that is locked as a whole


def is_held(store: Store, spec: RunSpec) -> bool:
    """Whether a process is working on the run. Raises CannotLock where that cannot be known."""
    return is_held_by_name(store, store.folder(spec).name)


def is_held_by_name(store: Store, name: str) -> bool:
    """The same of a run's folder."""
    return is_taken(store.root / "runs" / f".{name}.lock")


@contextmanager
def sole_owner(store: Store, spec: RunSpec, say: Callable[[str], None], wait: bool = True) -> Iterator[None]:
    """Hold the run's lock; a second process with the same specification waits here, or raises Busy.

    The lock dies with its process; its empty file stays, since removing it would let two waiting processes
    hold different locks. Raises CannotLock, and CannotRead where the run's folder cannot be entered.
    """
    with held(store, store.folder(spec).name, say, wait):
        folder = store.folder(spec)
        try:
            if is_missing(folder):
                folder.mkdir()
        except OSError as error:
            raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
        yield


@contextmanager
def held(store: Store, name: str, say: Callable[[str], None], wait: bool) -> Iterator[None]:
    """As `sole_owner`, of the folder of a run that may not have one yet."""
    path = store.root / "runs" / f".{name}.lock"
    with ExitStack() as stack:
        try:
            lock = stack.enter_context(open(path, "ab"))
        except OSError as error:
            raise cannot_lock(path, error) from error
        if not take(lock, path, wait=False):
            if not wait:
                raise Busy("another process is working on this run")
            say("another process is working on this run; waiting for it")
            take(lock, path, wait=True)
        yield
