"""What running processes report: on a terminal a bar for each and one for all, elsewhere a line per task."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from cl_bench.console import duration
from cl_bench.launch.overall import NO_SIZES, Overall, Sizes
from cl_bench.records.spec import RunSpec, name
from cl_bench.text.escape import visible

POLL_SECONDS = 0.3
BAR, LONGEST_BAR = 8, 24  # characters; longer where a terminal has room
NOTES = 59  # characters of a line that are not the run's name, at most
QUIET, USUAL, EVERY_PASS = -1, 0, 1  # how much is said


class Follower(Protocol):
    """Who waits for a run's process: a `Monitor`, or what stands in its place on another machine."""

    def follow(self, spec: RunSpec, path: Path, process: subprocess.Popen) -> int:
        """Wait for the process, which reports into the file `path`; returns its exit code."""


class Monitor:
    """Follows processes, and asks them to stop when the user does."""

    def __init__(
        self, console: Console, specs: Sequence[RunSpec] = (), sizes: Sizes = NO_SIZES, level: int = USUAL
    ):
        """`specs` are what is to be run, `sizes` their work, by run id, where it is known."""
        self._console, self.level = console, level
        self._bars = _bars(console) if console.is_terminal and level > QUIET else None
        self.overall = Overall([spec.run_id() for spec in specs], sizes)
        self.several = len({spec.benchmark_key() for spec in specs}) > 1
        self._all = None
        if self._bars is not None and len(specs) > 1:
            self._all = self._bars.add_task("all runs", total=1.0, note=self.overall.text())
        self.interrupts = 0  # one: stop after the task in progress; more: stop at once

    def __enter__(self) -> "Monitor":
        self._context = self._bars or nullcontext()
        self._context.__enter__()
        return self

    def __exit__(self, *exception) -> None:
        self._context.__exit__(*exception)

    def say(self, line: str) -> None:
        """One line above the bars, whatever the level."""
        self._console.print(visible(line), highlight=False, markup=False, emoji=False, soft_wrap=True)

    def tell(self, line: str) -> None:
        """The same of what goes well, which nobody has to know."""
        if self.level > QUIET:
            self.say(line)

    def ended(self, run: str, line: str, failed: bool) -> None:
        """Nothing is left of a run to do; the line is told, and said where it failed."""
        self.update(run, 1.0)
        self.say(line) if failed else self.tell(line)

    def update(self, run: str, done: float) -> None:
        """So much of a run is done: shown in the line of all."""
        self.overall.update(run, done)
        if self._bars is not None and self._all is not None:
            self._bars.update(self._all, completed=self.overall.done, note=self.overall.text())

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
        self._bar = None
        if self._bars is not None:
            called = short_name(spec, max(20, min(NOTES, monitor._console.width - NOTES)), monitor.several)
            self._bar = self._bars.add_task(visible(called), total=1.0, note="starting")
        self._first: float | None = None
        self._start, self._learned = time.monotonic(), -1
        self._last: dict | None = None

    def show(self, facts: dict) -> None:
        """Facts as `ProgressFile` writes them."""
        if facts == self._last:
            return
        self._last = facts
        if self._first is None:
            self._first, self._start = facts["done"], time.monotonic()
        gained, left = facts["done"] - self._first, ""
        if gained > 0:
            left = f", {duration((time.monotonic() - self._start) / gained * (1 - facts['done']))} left"
        self._monitor.update(self._spec.run_id(), facts["done"])
        if self._bars is not None and self._bar is not None:
            right = "" if facts["accuracy"] is None else f", {facts['accuracy']:.1%}"
            note = f"task {facts['task']}/{facts['tasks']}{right}, {facts['images_per_second']:.0f}/s{left}"
            self._bars.update(self._bar, completed=facts["done"], note=note)
        elif self._monitor.level >= EVERY_PASS or facts["learned"] > self._learned:
            self._monitor.tell(f"{name(self._spec)}: {_in_words(facts)}{left}")
        self._learned = facts["learned"]

    def close(self) -> None:
        """The run ended."""
        if self._bars is not None and self._bar is not None:
            self._bars.remove_task(self._bar)


def _in_words(facts: dict) -> str:
    """Where a run stands: in a task, or behind it."""
    behind = facts["learned"] == facts["task"]
    now = "learned" if behind else f"pass {facts['pass']}/{facts['passes']}"
    parts = [f"task {facts['task']}/{facts['tasks']} {now}", f"loss {facts['loss']:.3f}"]
    if facts["accuracy"] is not None:
        parts.append(
            f"accuracy {facts['accuracy']:.1%}" + ("" if behind else f" after task {facts['learned']}")
        )
    return ", ".join([*parts, f"{facts['images_per_second']:.0f} images/s"])


def short_name(spec: RunSpec, width: int, several: bool) -> str:
    """A run in so many characters: its seed stands in full, and its benchmark where there are several."""
    place = f" {spec.benchmark_key()}" if several else ""
    behind, label = f"{place} {spec.seed_name()}", spec.label
    room = max(8, width - len(behind))
    if len(label) > room:
        start = room // 2
        label = f"{label[:start]}…{label[start - room + 1 :]}"
    return label + behind


def _bars(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=min(LONGEST_BAR, max(BAR, console.width - 2 * NOTES))),
        TextColumn("{task.percentage:>3.0f}%", markup=False),
        TextColumn("{task.fields[note]}", markup=False),
    )
    return Progress(*columns, console=console, transient=True)
