"""What running processes report, on a terminal a line each that changes, elsewhere a line per task."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cl_bench.console import duration
from cl_bench.records.spec import RunSpec, name
from cl_bench.text.escape import visible

POLL_SECONDS = 0.3


class Monitor:
    """Follows processes, and asks them to stop when the user does."""

    def __init__(self, console: Console):
        self._console, self._bars = console, _bars(console) if console.is_terminal else None
        self.interrupts = 0  # one: stop after the task in progress; more: stop at once

    def __enter__(self) -> "Monitor":
        self._context = self._bars or nullcontext()
        self._context.__enter__()
        return self

    def __exit__(self, *exception) -> None:
        self._context.__exit__(*exception)

    def say(self, line: str) -> None:
        """One line above the bars."""
        self._console.print(visible(line), highlight=False, markup=False, emoji=False, soft_wrap=True)

    @contextmanager
    def handling_interrupts(self, stop: Callable[[], None]) -> Iterator[None]:
        """Count Ctrl-C instead of raising it; the first one calls `stop`.

        Outside the main thread signals stay as they are.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number, frame) -> None:
            self.interrupts += 1
            stop()
            if self.interrupts == 1:
                stopping = "stopping when the tasks in progress are finished and saved"
                self.say(f"{stopping}; Ctrl-C again stops at once")

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def follow(self, spec: RunSpec, path: Path, process: subprocess.Popen) -> int:
        """Wait for the process, showing what it writes into the file `path`; returns its exit code."""
        line, asked = Line(self, spec), 0
        try:
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
                if self.interrupts > asked:
                    process.send_signal(signal.SIGINT if self.interrupts == 1 else signal.SIGKILL)
                    asked = self.interrupts
                try:
                    line.show(json.loads(path.read_text(encoding="utf-8")))
                except (OSError, ValueError):
                    continue
        finally:
            line.close()
        return process.wait()


class Line:
    """What is shown of one run."""

    def __init__(self, monitor: Monitor, spec: RunSpec):
        self._monitor, self._spec, self._bars = monitor, spec, monitor._bars
        self._bar = self._bars and self._bars.add_task(visible(name(spec)), total=1.0, note="starting")
        self._first: float | None = None
        self._start, self._last, self._task = time.monotonic(), None, 0

    def show(self, facts: dict) -> None:
        """Facts as `ProgressFile` writes them."""
        if facts == self._last:
            return
        self._last = facts
        if self._first is None:
            self._first, self._start = facts["done"], time.monotonic()
        gained = facts["done"] - self._first
        parts = [
            f"task {facts['task']}/{facts['tasks']}",
            f"pass {facts['pass']}/{facts['passes']}",
            f"loss {facts['loss']:.3f}",
        ]
        if facts["accuracy"] is not None:
            parts.append(f"accuracy {facts['accuracy']:.1%}")
        parts.append(f"{facts['images_per_second']:.0f} images/s")
        if gained > 0:
            left = (time.monotonic() - self._start) / gained * (1 - facts["done"])
            parts.append(f"{duration(left)} left")
        if self._bar is not None:
            self._bars.update(self._bar, completed=facts["done"], note=", ".join(parts))
        elif facts["task"] > self._task:
            self._task = facts["task"]
            self._monitor.say(f"{name(self._spec)}: {', '.join(parts)}")

    def close(self) -> None:
        """The run ended."""
        if self._bar is not None:
            self._bars.remove_task(self._bar)


def _bars(console: Console) -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True)
