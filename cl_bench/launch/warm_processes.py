"""Starts the processes of runs before there is anything for them to do.

Importing torch and timm takes as long as learning a small task. This imports nothing that takes long, so that
the first process can start before anything else does, and until it is told its run that process answers what
only torch can tell: the command that started it never imports torch.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import IO, Any, TypeVar

import cl_bench
from cl_bench.errors import RunFailed
from cl_bench.launch.calls import here
from cl_bench.plugins import search_path

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
        self._channel, its_end = Pipe()
        self._lock = threading.Lock()  # one question at a time
        terminal = os.dup(2)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cl_bench", "warm-run", str(its_end.fileno()), str(terminal)],
                pass_fds=(its_end.fileno(), terminal),
                stdin=subprocess.DEVNULL,
                stdout=self._early,
                stderr=self._early,
                env=run_environment(threads),
                start_new_session=True,  # Ctrl-C reaches the orchestrator alone
            )
        finally:
            its_end.close()
            os.close(terminal)

    def call(self, function: str, *arguments) -> Any:
        """What the function returns there, or raises; what it says on standard error is said here.

        Raises EOFError where the process ends before, or cannot send the answer.
        """
        with self._lock:
            try:
                self._channel.send(("call", function, arguments, search_path.asked()))
                answer, raised = self._channel.recv()
            except (EOFError, OSError) as error:
                self.end()
                raise EOFError from error
        if raised:
            raise answer
        return answer

    def assign(self, arguments: Sequence[str], log: Path) -> None:
        """Let it do as `run-one` with these arguments, everything it prints going to the log."""
        with suppress(OSError):  # it could not import: `early` says why
            self._channel.send(("run", ["run-one", *arguments], str(log.absolute())))
        self.leave()

    def leave(self) -> None:
        """Tell it nothing more: where it has not been assigned a run, it ends."""
        self._channel.close()

    def early(self) -> bytes:
        """What it printed before it knew its log."""
        self._early.seek(0)
        return self._early.read()

    def end(self) -> None:
        """It is not needed."""
        self.process.kill()
        self.process.wait()
        self.leave()


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

    def call(self, function: str, *arguments) -> Any:
        """What a function that needs torch returns, such as "cl_bench.devices:devices", or raises.

        The process that is ready carries it out; this one does where it has torch itself, or none is ready.
        """
        with self._lock:
            ready = self.ready
        if ready is not None and "torch" not in sys.modules:
            try:
                return ready.call(function, *arguments)
            except EOFError:
                with self._lock:
                    self.ready = None
        return here(function, *arguments)

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

    by_default = (signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it quietly
    context = get_context("spawn")
    with ProcessPoolExecutor(
        1, mp_context=context, initializer=signal.signal, initargs=by_default
    ) as process:
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
