"""Text files that users write, and their text in messages."""

import unicodedata
from pathlib import Path

from cl_bench.errors import InputError

MOST_BYTES = 1_000_000  # of a file written by hand


def read_bytes(path: Path, what: str = "") -> bytes:
    """A user's file of text. Raises InputError when it cannot be read, or is far too long."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"cannot read {what}{path}: {reason}") from error
    if len(data) > MOST_BYTES:
        raise InputError(f"cannot read {what}{path}: it is longer than {MOST_BYTES:,} bytes")
    return data


def read(path: Path, what: str = "") -> str:
    """A user's text in UTF-8. Raises InputError."""
    try:
        return read_bytes(path, what).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise InputError(f"cannot read {what}{path}: not a text file in UTF-8") from None


def short(text: str) -> str:
    """A text in quotes, its middle left out where it is long."""
    return repr(text if len(text) <= 80 else f"{text[:40]}...{text[-20:]}")


def composed(text: str) -> str:
    """A text with accents as one character with their letters: texts equal on screen are mostly equal so."""
    return unicodedata.normalize("NFC", text)


def printable(text: Path | str) -> str:
    """A name with whatever is no text in it escaped."""
    return str(text).encode("utf-8", "backslashreplace").decode()
