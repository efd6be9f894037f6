"""Files are known by their content: a digest of each, read again wherever the file may be another one."""

import hashlib
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from cl_bench.config import canonical_json
from cl_bench.data.cache import cache_folder
from cl_bench.data.decode import in_threads
from cl_bench.errors import InputError
from cl_bench.files import write_atomically

FORMAT = 1  # of the stored notes
STAMPS = 4  # values that the file system gives a file
SAMPLE = 64  # files that are read again at every opening, drawn anew each time
LONG = 1000  # files, whose reading takes so long that it shows its progress
YOUNG_NS = 2_000_000_000  # a file changed so shortly before may change again within one tick of its clock


class Fingerprints:
    """Digests of the files below a folder.

    A file is not read again while size, modification time, change time and inode are those of its last
    reading. A sample is read at every opening all the same: where one differs, no stamp of this file system
    is believed.
    """

    def __init__(self, base: Path, algorithm: str = "sha256"):
        self._base, self._algorithm = base, algorithm
        place = hashlib.sha256(canonical_json([FORMAT, str(base), algorithm]).encode()).hexdigest()[:24]
        self._notes = cache_folder() / f"files-{place}.json"
        self._digests: dict[str, str] = {}

    def digests(self, paths: Sequence[str], verify: bool = False) -> dict[str, str]:
        """Path below the base -> digest of its content; `verify` reads every file.

        Raises InputError for a file that cannot be read.
        """
        known, believed = {} if verify else self._known(), {}
        for path in paths:
            stamp = _stamp(self._base / path)
            if path in known and known[path][:-1] == stamp:
                believed[path] = known[path][-1]
        sample = random.SystemRandom().sample(list(believed), min(SAMPLE, len(believed)))
        if any(self._read(path)[-1] != believed[path] for path in sample):
            believed = {}
        wanted = [path for path in paths if path not in believed]
        if wanted:
            description = f"reading {self._base}" if len(wanted) >= LONG else None
            read = dict(zip(wanted, in_threads(self._read, wanted, description), strict=True))
            self._remember({path: known[path] for path in believed} | read)
            believed |= {path: found[-1] for path, found in read.items()}
        self._digests = {path: believed[path] for path in paths}
        return self._digests

    def content(self, path: str) -> bytes:
        """The file's bytes. Raises InputError where they are not those of its digest."""
        content = _content(self._base / path)
        if self._digest(content) != self._digests[path]:
            what_to_do = "repeat the command once nothing writes there"
            raise InputError(f"{self._base / path} changed while it was used; {what_to_do}")
        return content

    def _digest(self, content: bytes) -> str:
        return hashlib.new(self._algorithm, content, usedforsecurity=False).hexdigest()

    def _read(self, path: str) -> list:
        stamp, now = _stamp(self._base / path), time.time_ns()
        digest = self._digest(_content(self._base / path))
        young = now - stamp[2] < YOUNG_NS or 0 <= now - stamp[1] < YOUNG_NS
        return [*([None] if young else stamp), digest]

    def _known(self) -> dict[str, list]:
        try:
            files = dict(json.loads(self._notes.read_text(encoding="utf-8"))["files"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):  # the notes only save time
            return {}
        return {path: found for path, found in files.items() if _is_note(found)}

    def _remember(self, files: dict[str, list]) -> None:
        try:
            self._notes.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._notes, json.dumps({"base": str(self._base), "files": files}).encode())
        except OSError:  # what is needed there says so; without notes all is read again
            return


def _is_note(found: object) -> bool:
    return isinstance(found, list) and len(found) == STAMPS + 1


def _stamp(path: Path) -> list[int]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; put it back or mend it") from error
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; put it back or mend it") from error
