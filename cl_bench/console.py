"""Progress of long preparations on standard error, and sizes and times as people read them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import filesize, progress
from rich.console import Console

from cl_bench.text.escape import visible


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
