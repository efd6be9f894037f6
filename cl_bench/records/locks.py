"""A run's lock: who holds it is working on the run, and it dies with its process.

`filelock` would not do: it opens a lock for writing to look at it, which a listing of a read-only folder cannot.
"""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cl_bench.errors import Busy, InputError
from cl_bench.records.sealed import is_missing

if TYPE_CHECKING:
    from cl_bench.records.record import RunSpec
    from cl_bench.records.store import Store

WHOLE_FOLDER = "lock"  # in a folder that is locked as a whole
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EINVAL)  # what file systems without them answer


class CannotLock(InputError):
    """Whether a process is working on a run cannot be known, so that nothing may be begun there."""


def take(file: IO, path: Path, wait: bool) -> bool:
    """Take the lock of an open file, which goes with it; False where another process holds it and `wait` is not set. Raises CannotLock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise _cannot(path, error) from error
    return True


def _cannot(path: Path, error: OSError) -> CannotLock:
    if error.errno in NO_LOCKS:
        how = "the file system has no locks; keep results on one that has (--results), `cl-bench merge` brings them together"
    else:
        how = "give this user write access, or `cl-bench merge` the runs into a folder that can be written"
    return CannotLock(f"cannot lock {path}: {error.strerror or error}; {how}")


def is_held(store: Store, spec: RunSpec) -> bool:
    """Whether a process is working on the run. Raises CannotLock where that cannot be known."""
    return is_held_by_name(store, store.folder(spec).name)


def is_held_by_name(store: Store, name: str) -> bool:
    """The same of a run's folder."""
    return is_taken(store.root / "runs" / f".{name}.lock")


def is_taken(path: Path) -> bool:
    """Whether a process holds the lock of this file, which may be missing. Raises CannotLock."""
    with ExitStack() as stack:
        try:
            try:
                lock = stack.enter_context(open(path, "rb+"))  # network file systems lock what is open for writing alone
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
                lock = stack.enter_context(open(path, "rb"))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _cannot(path, error) from error
        return not take(lock, path, wait=False)


@contextmanager
def sole_owner(store: Store, spec: RunSpec, say: Callable[[str], None], wait: bool = True) -> Iterator[None]:
    """Hold the run's lock; a second process with the same specification waits here, or raises Busy. The lock dies with its process;
    its empty file stays, since removing it would let two waiting processes hold different locks. Raises CannotLock, and CannotRead where the
    run's folder cannot be entered."""
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
            raise _cannot(path, error) from error
        if not take(lock, path, wait=False):
            if not wait:
                raise Busy("another process is working on this run")
            say("another process is working on this run; waiting for it")
            take(lock, path, wait=True)
        yield
