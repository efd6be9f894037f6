"""Progress of long preparations on standard error, and sizes and times as people read them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import filesize, progress
from rich.console import Console

from cl_bench.text.escape import visible

SECONDS_A_LINE = 30.0  # between two lines on a download where there is no terminal


@contextmanager
def bar(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields the function that advances a bar with time left; where there is no terminal, one line is all."""
    console, description = Console(stderr=True), visible(description)
    if not console.is_terminal:
        line = f"{description} ({total} files)" if total else description
        console.print(line, highlight=False, markup=False, emoji=False)
        yield lambda count: None
        return
    with progress.Progress(*columns(progress.MofNCompleteColumn()), console=console, transient=True) as bars:
        task = bars.add_task(description, total=total)
        yield lambda count: bars.advance(task, count)


@contextmanager
def download(name: str, total: int | None, have: int = 0) -> Iterator[Callable[[int], None]]:
    """Yields the function that counts bytes of a download, of whose `total` there are `have` already.

    On a terminal it moves a bar with time left; elsewhere lines say the same now and then.
    """
    console, name = Console(stderr=True), visible(name)
    if console.is_terminal:
        with progress.Progress(*columns(progress.DownloadColumn()), console=console) as bars:
            task = bars.add_task(name, total=total, completed=have)
            yield lambda count: bars.advance(task, count)
        return
    lines = _Lines(name, total, have)
    yield lines.advance
    lines.end()


class _Lines:
    """What is said on a download where there is no terminal."""

    def __init__(self, name: str, total: int | None, have: int):
        self._name, self._total, self._there, self._came = name, total, have, 0
        self._started = self._said = time.monotonic()
        there = f", {size(have)} are there" if have else ""
        self._say(f"downloading {name} ({'size unknown' if total is None else size(total)}{there})")

    @staticmethod
    def _say(line: str) -> None:
        Console(stderr=True).print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def advance(self, count: int) -> None:
        self._came += count
        self._there += count
        now = time.monotonic()
        if now - self._said >= SECONDS_A_LINE:
            self._said = now
            of = "" if self._total is None else f" of {size(self._total)}{self._left(now)}"
            self._say(f"downloading {self._name}: {size(self._there)}{of}")

    def _left(self, now: float) -> str:
        """Such as ", 2:03 left" at the pace so far."""
        if self._total is None or self._came <= 0:
            return ""
        return f", {duration((self._total - self._there) / self._came * (now - self._started))} left"

    def end(self) -> None:
        took = time.monotonic() - self._started
        if took >= SECONDS_A_LINE:
            self._say(f"downloaded {self._name} ({size(self._there)}) in {duration(took)}")


def columns(done: progress.ProgressColumn) -> tuple[progress.ProgressColumn, ...]:
    """What a bar shows: what it is about, how much is done, and the time left."""
    about = progress.TextColumn("{task.description}", markup=False)
    return about, progress.BarColumn(), done, progress.TimeRemainingColumn()


def short(number: float) -> str:
    """Such as 12.3k or 4.56M."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{name}"
    return f"{number:.0f}"


def size(number: float) -> str:
    """Bytes in powers of ten, such as 12.30 MB."""
    return filesize.decimal(round(number), precision=2)


def duration(seconds: float) -> str:
    """Such as 1:05 or 2:03:10."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
