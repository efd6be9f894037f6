"""The processes that draw: importing matplotlib and drawing is half the time of a report, so others do it.

This imports nothing that takes long, so that the first of them can start before anything else does.
"""

import os
import pickle
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context, util
from pathlib import Path

from cl_bench.errors import RunFailed

PROCESSES = 4  # at most, and not more than there are processors
# figures that wait for a process before another is started: starting one takes as long as drawing two
QUEUE = 3
_BEGUN: list[Future] = []  # and not finished


def prepare() -> None:
    """Let a process import what drawing needs, while this one does something else."""
    submit()


def submit(*arguments) -> Future:
    """Begin to draw a figure; the arguments are those of `draw.files`."""
    # here and now: the executor's own thread would pickle rows while tables go on filling what they know
    content = pickle.dumps(arguments)
    _BEGUN[:] = [begun for begun in _BEGUN if not begun.done()]
    place = min(len(_BEGUN) // QUEUE, PROCESSES - 1, (os.cpu_count() or 1) - 1)
    try:
        begun = _process(place).submit(_draw, content)
    except BrokenProcessPool:  # it was ended from outside since
        _process.cache_clear()
        begun = _process(place).submit(_draw, content)
    _BEGUN.extend([begun] if arguments else [])
    return begun


def result(begun: Future) -> list[Path]:
    """The files of a figure that was begun. Raises RunFailed when its process is gone."""
    try:
        return begun.result()
    except BrokenProcessPool as error:
        _process.cache_clear()
        reason = "too little memory, or a script without `if __name__ == '__main__':`"
        raise RunFailed(f"the process that draws the figures ended early: {reason}") from error


def _draw(content: bytes) -> list[Path]:
    from cl_bench.report.figures import files

    arguments = pickle.loads(content)
    return files.files(*arguments) if arguments else []


@cache
def _process(place: int) -> ProcessPoolExecutor:
    """One that draws, kept for the next report of this process."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """Ctrl-C is for the process that waits; when that ends, this one just stops.

    Taking all modules apart takes half a second.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    util.Finalize(None, os._exit, (0,), exitpriority=0)
