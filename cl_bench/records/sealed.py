"""A run's record as a file: sealed with a digest, and believed only when it is exactly what was written.

Three things are never taken for each other: a file that is missing, one that cannot be read, and one that was
read in full and is damaged.
"""

import os
import re
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import from_json

from cl_bench.config import canonical_json
from cl_bench.errors import CannotRead
from cl_bench.records.plausible import contradiction
from cl_bench.records.record import RunRecord

_HEAD = rb'\{"digest": "(?P<digest>\w+)", "run_id": "(?P<run_id>\w+)", "record":'
_WRITTEN = re.compile(_HEAD + rb"\n(?P<content>.+)\n\}\n")


class DamagedRecord(Exception):
    """A record that was read and is truncated, edited, at odds with itself, or in a folder not its own."""


def is_missing(path: Path) -> bool:
    """Whether there is nothing at this path.

    Raises CannotRead where that cannot be known: for a link to nothing, in a folder that may not be entered.
    """
    try:
        os.stat(path)
    except FileNotFoundError as error:
        if os.path.islink(path):
            raise CannotRead(path, error) from error
        if path.parent != path:
            is_missing(path.parent)
        return True
    except OSError as error:
        raise CannotRead(path, error) from error
    return False


def content_of(path: Path) -> bytes | None:
    """What a file holds, None where there is none. Raises CannotRead."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        if is_missing(path):
            return None
        raise CannotRead(path, error) from error
    except OSError as error:
        raise CannotRead(path, error) from error


def entries(folder: Path, *patterns: str) -> list[Path]:
    """What a folder holds under names of these patterns, by name; nothing where there is no folder.

    Raises CannotRead where it may not be listed, of which `Path.glob` says nothing.
    """
    if is_missing(folder):
        return []
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise CannotRead(folder, error) from error
    return [folder / name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def seal(record: RunRecord) -> bytes:
    """The content of the record's file."""
    content = canonical_json(record.model_dump(mode="json"))
    digest, run_id = sha256(content.encode()).hexdigest(), record.spec.run_id()
    return f'{{"digest": "{digest}", "run_id": "{run_id}", "record":\n{content}\n}}\n'.encode()


def read_record(path: Path) -> RunRecord:
    """The record in a file.

    Raises DamagedRecord when it is not exactly what `seal` made, CannotRead when it cannot be read or is not
    there.
    """
    data = content_of(path)
    if data is None:
        raise CannotRead(path, "it is gone")
    try:
        content, stated_id, unchanged = unsealed(data)
        record = RunRecord.model_validate_json(content)
        run_id = record.spec.run_id()
    except ValidationError as error:
        unknown = (found["loc"] for found in error.errors() if found["type"] == "extra_forbidden")
        strange = [".".join(map(str, place)) for place in unknown]
        if unchanged and strange:
            with_what = f"with what this one does not know ({', '.join(strange[:3])})"
            raise CannotRead(path, f"it was written by another version, {with_what}") from error
        bad = f"{error.error_count()} bad values"
        raise DamagedRecord(f"{path} is truncated or not a record ({bad})") from error
    except (ValueError, KeyError, TypeError) as error:
        bad = f"{type(error).__name__}: {error}"
        raise DamagedRecord(f"{path} is truncated or not a record ({bad})") from error
    if not unchanged:
        changed = "was changed after it was written (its content does not match its digest)"
        raise DamagedRecord(f"{path} {changed}")
    if stated_id != run_id:
        raise DamagedRecord(f"{path} does not belong to its run id")
    if wrong := contradiction(record):
        raise DamagedRecord(f"{path} contradicts itself: {wrong}")
    return record


def unsealed(data: bytes) -> tuple[bytes, str, bool]:
    """From a record's file: the record's JSON, the run id beside it, and whether the digest is its own.

    Raises ValueError, KeyError or TypeError for what is not such a file. White space and the order of keys
    may differ from what `seal` writes; as it writes them, the content need not be decoded to be believed.
    """
    written = _WRITTEN.fullmatch(data)
    if written and sha256(written["content"]).hexdigest() == written["digest"].decode():
        return written["content"], written["run_id"].decode(), True
    sealed = from_json(data)
    content = canonical_json(sealed["record"]).encode()
    return content, sealed["run_id"], sealed["digest"] == sha256(content).hexdigest()
