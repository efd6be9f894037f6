"""The two kinds of failure a user sees, each one line and an exit code."""

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

# what Python's and numpy's readers raise for an archive that is cut short, broken, encrypted or compressed
# in a way that they do not know
UNREADABLE_ARCHIVE = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error, EOFError, MemoryError,
    LookupError, ValueError, OverflowError, RuntimeError,
)  # fmt: skip


class InputError(Exception):
    """The input cannot be used: what was expected, what came, what to do. Exit code 2."""


class RunFailed(Exception):
    """A run stopped before its end; its record and log are kept. Exit code 1."""


class DownloadFailed(RunFailed):
    """A server did not send what was asked of it: the same command may have it later. Exit code 1."""


class OutOfMemory(RunFailed):
    """The device's memory did not suffice; smaller steps may."""


class CannotWrite(RunFailed):
    """What was learned cannot be saved: no more should be learned until it can."""


class CannotRead(RunFailed):
    """What is there and may not be read, or not now: neither missing nor damaged, and nothing replaces it."""

    def __init__(self, path: object, reason: OSError | str):
        self.path, self.reason = path, reason if isinstance(reason, str) else reason.strerror or str(reason)
        self.errno = None if isinstance(reason, str) else reason.errno
        super().__init__(f"cannot read {path}: {self.reason}; it was left as it is")


class TimeIsUp(RunFailed):
    """A run reached its time limit; it can go on after its last finished task."""


class Stopped(Exception):
    """A run was asked to stop, and did after a finished task; it can go on there."""


class Busy(Exception):
    """Another process is working on the run."""


@contextmanager
def pointing_at(where: str) -> Iterator[None]:
    """What cannot be used in the body stands here, such as in a line of a file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
