"""Starts the processes of runs before there is anything for them to do.

Importing torch and timm takes as long as learning a small task.
This imports nothing that takes long, so that the first process can start before anything else does.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

import cl_bench
from cl_bench.errors import RunFailed

Result = TypeVar("Result")

# Tensors of a few megabytes come and go with every layer: memory that is kept, in large pages, need not be
# mapped and cleared each time.
ALLOCATION = {"hugetlb": 1, "mmap_threshold": 1 << 25, "trim_threshold": 1 << 30, "top_pad": 1 << 26}


class WarmProcess:
    """A process that has imported, or is about to import, what a run needs, and waits to be assigned one."""

    def __init__(self, threads: int):
        self.threads = threads
        # for what it prints before it knows its log
        self._early: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cl_bench", "warm-run"],
            stdin=subprocess.PIPE,
            stdout=self._early,
            stderr=self._early,
            env=run_environment(threads),
            start_new_session=True,  # Ctrl-C reaches the orchestrator alone
        )

    def assign(self, arguments: Sequence[str], log: Path) -> None:
        """Let it do as `run-one` with these arguments, everything it prints going to the log."""
        with suppress(BrokenPipeError):  # it could not import: `early` says why
            line = json.dumps({"arguments": ["run-one", *arguments], "log": str(log.absolute())})
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.close()

    def early(self) -> bytes:
        """What it printed before it knew its log."""
        self._early.seek(0)
        return self._early.read()

    def end(self) -> None:
        """It is not needed."""
        self.process.kill()
        self.process.wait()
        with suppress(BrokenPipeError):
            self.process.stdin.close()


class Starter:
    """Starts a process a run and keeps one ready while more runs are to come; as a context, ends it."""

    def __init__(self):
        self.ready: WarmProcess | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> "Starter":
        return self

    def __exit__(self, *exception) -> None:
        with self._lock:
            if self.ready is not None:
                self.ready.end()
                self.ready = None

    def prepare(self, threads: int) -> None:
        """Let a process get ready for a run with so many threads.

        Where none can be started, the run that needs one says why.
        """
        with self._lock, suppress(OSError):
            if self.ready is None:
                self.ready = WarmProcess(threads)

    def start(self, threads: int, more: bool) -> WarmProcess:
        """A process for a run with so many threads; one more gets ready where `more` runs wait.

        Raises OSError when none can be started.
        """
        with self._lock:
            found, self.ready = self.ready, None
        if found is not None and (found.threads != threads or found.process.poll() is not None):
            found.end()
            found = None
        found = found or WarmProcess(threads)
        if more:
            self.prepare(threads)
        return found


def run_environment(threads: int) -> dict[str, str]:
    """Threads, memory, unbuffered output, and this process's package, whatever the current folder has."""
    folders = [str(Path(cl_bench.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH")]
    return {
        "GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in ALLOCATION.items()),
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONIOENCODING": "utf-8:backslashreplace",  # of the log, whatever the locale
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, folders)),
    }


def called(function: Callable[..., Result], threads: int, *arguments) -> Result:
    """function(*arguments) of a process with the environment of a run.

    Raises what it raises, and RunFailed when the process ends before.
    """
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    ended_quietly = {"initializer": signal.signal, "initargs": (signal.SIGINT, signal.SIG_DFL)}  # by Ctrl-C
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), **ended_quietly) as process:
        before = dict(os.environ)
        os.environ.update(run_environment(threads))
        try:
            answer = process.submit(function, *arguments)
        finally:
            os.environ.clear()
            os.environ.update(before)
        try:
            return answer.result()
        except BrokenProcessPool as error:
            ended = "the process that measured was ended from outside"
            raise RunFailed(f"{ended}; where memory is short, give a smaller batch") from error
