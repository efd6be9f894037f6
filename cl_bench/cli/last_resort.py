"""A fault of this program in one line for whoever meets it, with a file for whoever mends it."""

import errno
import os
import shlex
import tempfile
import traceback
from collections.abc import Sequence

import cl_bench
from cl_bench.text import user_text

CODE = 70  # "internal software error" of sysexits.h
MOST_SHOWN = 300  # characters of what an exception says
# what the machine says of a path, whoever opened it: no fault of this program
REFUSALS = (
    "ENAMETOOLONG",
    "ELOOP",
    "EACCES",
    "EPERM",
    "EROFS",
    "ENOTDIR",
    "EISDIR",
    "ENOSPC",
    "EDQUOT",
    "EIO",
    "ESTALE",
)


def refused_path(error: Exception) -> str | None:
    """The path that the machine refuses, and why; None where the error is something else."""
    if isinstance(error, ValueError) and str(error).startswith("embedded null"):
        return "a path holds a zero byte; leave it out"
    if not isinstance(error, OSError):
        return None
    code = errno.errorcode.get(error.errno or 0)
    if error.filename is None and code in ("ENOSPC", "EDQUOT", "EIO"):
        return f"cannot write: {error.strerror}"
    if error.filename is not None and code in REFUSALS:
        return f"cannot use {user_text.short(os.fsdecode(error.filename))}: {error.strerror}"
    return None


def describe(error: Exception, arguments: Sequence[str]) -> str:
    """What happened, and the file that its traceback was written to, in the folder for temporary files."""
    said = " ".join(str(error).split())
    said = said if len(said) <= MOST_SHOWN else f"{said[:MOST_SHOWN]}..."
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    lines = [
        f"cl-bench {cl_bench.__version__}: {shlex.join(arguments)}\n",
        *traceback.format_exception(error),
    ]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="cl-bench-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.writelines(lines)
    except (OSError, ValueError) as full:
        return f"this is a fault of cl-bench ({what}), and its traceback could not be written ({full})"
    fault = f"this is a fault of cl-bench ({what}); its traceback is in {file.name}"
    return f"{fault}, please report it with that file"
