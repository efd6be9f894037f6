"""What readers of other suites' logs share: lines, numbers, and the runs that stand in a log."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cl_bench.errors import InputError
from cl_bench.records.matrix_file import NUMBER, Value, value_of

MOST_BYTES = 500_000_000
COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
SCALAR = re.compile(
    r"(?:np\.|numpy\.)?float(?:16|32|64)\(([^()]*)\)"
)  # how numpy 2 writes a number in a list

Lines = Sequence[tuple[int, str]]


@dataclass
class LogRun:
    """One run: after each task the accuracies on the tasks so far, their average, or both.

    `rows` is empty where the log has no accuracies per task, `curve` where it prints no average.
    """

    line: int  # where it begins
    seed: str | None = None  # as the log names it
    rows: list[list[Value]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # the last one of each task
    curve: list[Value] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)  # of each task, as far as the log says
    of: int | None = None  # tasks in all, where the log says
    cut: str = ""  # what stands there of a task that is not complete

    @property
    def tasks(self) -> int:
        """Those that are complete."""
        return len(self.lines)


@dataclass
class SuiteLog:
    """The runs of a log, and how its suite prints numbers."""

    path: Path
    suite: str
    unit: float  # 100 for percent, 1 for fractions
    digits: str  # such as "percent, rounded to 2 digits"
    runs: list[LogRun]
    convention: Literal["task_mean", "sample"]  # of what its averages are
    remarks: list[str] = field(default_factory=list)  # how it was read, and what was not

    def check(self) -> None:
        """Raises InputError for numbers that cannot be accuracies, or averages that are none of theirs."""
        for run in self.runs:
            for place, line in enumerate(run.lines):
                row = run.rows[place] if run.rows else []
                curve = run.curve[place : place + 1]
                for value in (*row, *curve):
                    if not 0 <= value.number <= self.unit:
                        between = f"{value.number:g} is not between 0 and {self.unit:g}"
                        raise wrong(self.path, line, f"{between}; expected {self.digits}")
                if row and curve:
                    self._check_average(row, curve[0], line)
            if self.unit == 100 and run.lines and all(value.number <= 1 for value in _numbers(run)):
                fractions = "no accuracy is above 1; expected percentages, are these fractions?"
                raise wrong(self.path, run.lines[-1], fractions)

    def _check_average(self, row: Sequence[Value], average: Value, line: int) -> None:
        """An average over images lies between lowest and highest task, one over tasks is their mean."""
        numbers, slack = [value.number for value in row], max(value.rounding for value in row)
        slack += average.rounding + 1e-6 * self.unit
        mean = math.fsum(numbers) / len(numbers)
        low, high = (mean, mean) if self.convention == "task_mean" else (min(numbers), max(numbers))
        if not low - slack <= average.number <= high + slack:
            of = f"{len(row)} tasks, whose accuracies are {min(numbers):g} to {max(numbers):g}"
            raise wrong(self.path, line, f"the average {average.number:g} cannot be that of {of}")


def _numbers(run: LogRun) -> list[Value]:
    return [value for row in run.rows for value in row] + run.curve


def lines_of(path: Path) -> Lines:
    """Number and text of every line; a progress bar's states are lines of one number.

    Raises InputError for what cannot be read.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; name the log in it")
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"cannot read {path}: {reason}") from error
    if len(data) > MOST_BYTES:
        raise InputError(f"cannot read {path}: it is longer than {MOST_BYTES:,} bytes")
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    text = COLOR.sub("", data.decode(encoding, "replace"))
    parts = ((number, line.split("\r")) for number, line in enumerate(text.split("\n"), 1))
    return [(number, part) for number, line in parts for part in line if part.strip()]


def ends_whole(path: Path) -> bool:
    """Whether the last line has an end, and was not cut in the middle."""
    with open(path, "rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - 1))
        return file.read() in (b"\n", b"\0")


def wrong(path: Path, line: int, reason: str) -> InputError:
    """What a line of the log has that it should not."""
    return InputError(f"{path}, line {line}: {reason}")


def value(path: Path, line: int, text: str) -> Value:
    """A number as the log has it. Raises InputError."""
    text = plain(text).strip()
    if not NUMBER.fullmatch(text):
        raise wrong(path, line, f"{text[:40]!r} is not a number; expected an accuracy")
    return value_of(text)


def plain(text: str) -> str:
    """Numbers as numpy 1 wrote them in lists and mappings."""
    return SCALAR.sub(r"\1", text)


def numbers(path: Path, line: int, text: str) -> list[Value]:
    """Those in a list such as "[86.5, np.float64(81.2)]". Raises InputError."""
    inner = plain(text).strip().removeprefix("[").removesuffix("]")
    return [value(path, line, part) for part in re.split(r"[,\s]+", inner.strip()) if part]
