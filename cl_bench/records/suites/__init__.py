"""Result logs of other continual-learning suites, a reader each; its docstring has the facts of the lines."""

from pathlib import Path
from types import ModuleType

from cl_bench.config import unknown
from cl_bench.errors import InputError
from cl_bench.records.suites import avalanche, coda, mammoth, nsp2, pilot
from cl_bench.records.suites.log import SuiteLog, lines_of

READERS: dict[str, ModuleType] = {
    "pilot": pilot,
    "mammoth": mammoth,
    "nsp2": nsp2,
    "coda": coda,
    "avalanche": avalanche,
}


def read(suite: str, path: Path) -> SuiteLog:
    """What a log of this suite says.

    Raises InputError for a name that is no suite's, and for a log without results or with a line that cannot
    be what the suite writes.
    """
    if suite not in READERS:
        raise unknown("suite", suite, READERS, "--from")
    reader, lines = READERS[suite], lines_of(path)
    if not any(reader.MARK.search(text) for _, text in lines):
        marks = {name: other.MARK for name, other in READERS.items() if name != suite}
        like = [name for name, mark in marks.items() if any(mark.search(text) for _, text in lines)]
        hint = f"; it looks like a log for --from {like[0]}" if like else ""
        raise InputError(f"{path} has no results of {reader.NAME}; expected such as {reader.EXAMPLE}{hint}")
    return reader.read(path, lines)
