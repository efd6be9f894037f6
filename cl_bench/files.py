"""Files written so that nobody ever sees half of one."""

import os
import threading
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside `path`, fsync, rename: a reader sees the old content or the new, never a part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
