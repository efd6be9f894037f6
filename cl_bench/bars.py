"""Progress of long preparations on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cl_bench.escape import visible


@contextmanager
def bar(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar with time left while the body runs, a single line where standard error is no terminal; yields the function that advances it."""
    console, description = Console(stderr=True), visible(description)
    if not console.is_terminal:
        console.print(f"{description} ({total} files)" if total else description, highlight=False, markup=False, emoji=False)
        yield lambda count: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(description, total=total)
        yield lambda count: bars.advance(task, count)
