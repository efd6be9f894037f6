"""A folder that this process may read and not write, also where tests run as root."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Inside, the folder is another user's."""
    places = [folder, *(place for place in folder.parents if not place.stat().st_mode & 0o001)]
    modes = {place: place.stat().st_mode for place in places}
    is_root = os.geteuid() == 0
    for place in places:
        place.chmod(0o555)
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for place, mode in modes.items():
            place.chmod(mode)
