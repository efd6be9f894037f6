"""Locks of files: who holds one is at work, and it dies with its process."""

from __future__ import annotations

import errno
import fcntl
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from cl_bench.errors import InputError

# what file systems without locks answer
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EINVAL)


class CannotLock(InputError):
    """Whether a process is working on a run cannot be known, so that nothing may be begun there."""


def take(file: IO, path: Path, wait: bool) -> bool:
    """Take the lock of an open file, which goes with it; False where another process holds it, unless `wait`.

    Raises CannotLock.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise cannot_lock(path, error) from error
    return True


def cannot_lock(path: Path, error: OSError) -> CannotLock:
    if error.errno in NO_LOCKS:
        how = "the file system has no locks; keep results on one that has (--results), "
        how += "`cl-bench merge` brings them together"
    else:
        how = "give this user write access, or `cl-bench merge` the runs into a folder that can be written"
    return CannotLock(f"cannot lock {path}: {error.strerror or error}; {how}")


def is_taken(path: Path) -> bool:
    """Whether a process holds the lock of this file, which may be missing. Raises CannotLock."""
    with ExitStack() as stack:
        try:
            try:  # network file systems lock only what is open for writing
                lock: IO[bytes] = stack.enter_context(open(path, "rb+"))
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
                lock = stack.enter_context(open(path, "rb"))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise cannot_lock(path, error) from error
        return not take(lock, path, wait=False)
