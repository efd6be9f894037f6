"""Accuracy matrices in text files as pandas, numpy or a spreadsheet write them.

They may have headings, an index, or decimal commas. Lines are read as they are; what makes the difference
between two readings is found from the number of tasks, and said in `remarks`.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cl_bench.errors import InputError
from cl_bench.text import user_text

MISSING = {"", "nan", "na", "n/a", "<na>", "none", "null", "-", "–", "—"}
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,2})?", re.IGNORECASE)
DELIMITERS = {";": "semicolons", "\t": "tabs", ",": "commas", None: "spaces"}


@dataclass(frozen=True)
class Value:
    """An accuracy as written, and half of its last digit: how far it may be rounded."""

    number: float
    rounding: float


@dataclass(frozen=True)
class MatrixFile:
    """A lower triangle: after each task the accuracies on the tasks so far."""

    path: Path
    rows: list[list[Value]]
    lines: list[int]  # in the file, from 1
    percent: bool  # whether percent signs stand in it
    remarks: list[str] = field(default_factory=list)  # how it was read, where that is not the only way

    def error(self, row: int, reason: str) -> InputError:
        """What is wrong in a row (from 0)."""
        return InputError(f"{self.path}, line {self.lines[row]}{reason}")


def read(path: Path, tasks: int) -> MatrixFile:
    """The triangle of so many tasks in the file; above the diagonal may stand nothing, NaN or 0.

    Raises InputError with the line of the first thing that is not part of such a file.
    """
    lines, remarks = _cells(path)
    numbers, rows = [number for number, _ in lines], [cells for _, cells in lines]
    headed = bool(rows) and _is_heading(rows, tasks)
    heading = rows[0] if headed else []
    if headed:
        numbers, rows = numbers[1:], rows[1:]
    if not rows:
        raise InputError(f"{path} holds no numbers; expected one line of accuracies after each task")
    if len(rows) != tasks:
        lines_found = f"{len(rows)} lines of accuracies{' below a heading' * headed}"
        raise InputError(f"{path} has {lines_found}, expected {tasks}: one after each task")
    if _has_index(rows, heading, tasks):
        remarks.append(f"first column read as an index ({rows[0][0] or 'empty'} to {rows[-1][0] or 'empty'})")
        rows = [cells[1:] for cells in rows]
    if headed:
        remarks.append(f"line {lines[0][0]} read as a heading")
    signs = [any("%" in cell for cell in cells) for cells in rows]
    found = MatrixFile(path, [], numbers, any(signs), remarks)
    _fill(found, rows)
    remarks += ["percent signs: the accuracies are percentages"] if found.percent else []
    return found


def _cells(path: Path) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """Number and cells of every line that is neither empty nor a comment, and what stands between them."""
    text = _text(path).replace("\r\n", "\n").replace("\r", "\n")
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip(" \t;,")]
    lines = [(number, line) for number, line in lines if not line.lstrip().startswith("#")]
    kept = "".join(line for _, line in lines)
    delimiter = next((mark for mark in (";", "\t", ",") if mark in kept), None)
    cells = []
    for number, line in lines:
        try:
            found = line.split() if delimiter is None else next(csv.reader([line], delimiter=delimiter))
        except csv.Error as error:
            raise InputError(f"cannot read {path}: {error}") from error
        cells.append((number, [cell.strip() for cell in found]))
    remarks = [] if delimiter in (",", None) else [f"{DELIMITERS[delimiter]} between the cells"]
    return cells, remarks


def _text(path: Path) -> str:
    data = user_text.read_bytes(path)
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        problem = "this is not text in UTF-8; export the matrix as CSV in UTF-8"
        raise InputError(f"{path}, line {line}: {problem}") from error
    if "\0" in text:
        raise InputError(f"{path} is not a text file; export the matrix as CSV")
    return text


def _plain(cell: str) -> str:
    """A cell without its percent sign, with a decimal point."""
    return re.sub(r"^([+-]?\d*),(\d+)$", r"\1.\2", cell.removesuffix("%").rstrip())


def _is_number(cell: str) -> bool:
    return NUMBER.fullmatch(_plain(cell)) is not None


def _counts(cells: Sequence[str]) -> bool:
    """Whether they are 0, 1, 2, ... or 1, 2, 3, ..."""
    counts = [list(range(start, start + len(cells))) for start in (0, 1)]
    return all(cell.isdecimal() for cell in cells) and [int(cell) for cell in cells] in counts


def _is_heading(rows: Sequence[Sequence[str]], tasks: int) -> bool:
    """Whether the first line is none of the matrix.

    Such a line has no number in it, a count of columns after an empty cell or, where there is one line more
    than tasks, words or a count.
    """
    first = [cell for cell in rows[0] if cell.lower() not in MISSING]
    if not any(map(_is_number, first)):
        return True
    beyond = [cell for cell in rows[0][1:] if cell.lower() not in MISSING]
    if not rows[0][0] and _counts(beyond):
        return True
    return len(rows) == tasks + 1 and (not all(map(_is_number, beyond)) or _counts(first) or _counts(beyond))


def _has_index(rows: Sequence[Sequence[str]], heading: Sequence[str], tasks: int) -> bool:
    """Whether the first column names the lines.

    It does by words, or by counting under an empty heading or in one column more than tasks.
    """
    first = [cells[0] for cells in rows]
    if not any(map(_is_number, first)) and any(cell.lower() not in MISSING for cell in first):
        return True
    wider = [cells for cells in rows if len(cells) > tasks]
    filled = any(cells[tasks] for cells in wider)
    unnamed = bool(heading) and (not heading[0] or len(heading) == tasks)
    return _counts(first) and (filled or (unnamed and bool(wider)))


def _fill(found: MatrixFile, rows: Sequence[Sequence[str]]) -> None:
    """Put the numbers up to the diagonal into the matrix, and look that there are none above it."""
    commas = points = None
    for row, cells in enumerate(rows):
        needed, above = cells[: row + 1], cells[row + 1 :]
        present = [cell for cell in needed if cell.lower() not in MISSING]
        if len(present) <= row:
            expected = f"expected {row + 1} accuracies (tasks 1 to {row + 1})"
            raise found.error(row, f": {expected}, got {len(present)}")
        above = [cell for cell in above if cell.lower() not in MISSING]
        for column, cell in enumerate([*needed, *above], 1):
            place = f", task {column}: {cell!r}"
            if not _is_number(cell):
                raise found.error(row, f"{place} is not a number; expected such as 81.25 or 0.8125")
            commas, points = commas or "," in cell, points or "." in cell
            if commas and points:
                both = "decimal commas and decimal points in one file"
                raise found.error(row, f"{place}: {both}; use one of them")
            if found.percent and "%" not in cell and float(_plain(cell)) != 0:
                raise found.error(row, f"{place} has no percent sign, others have; write all of them alike")
        if any(float(_plain(cell)) != 0 for cell in above):
            raise found.error(row, f": there are accuracies on tasks not yet learned; {_why_above(rows)}")
        found.rows.append([value_of(cell) for cell in needed])
    if commas:
        found.remarks.append("decimal commas")


def _why_above(rows: Sequence[Sequence[str]]) -> str:
    widest = max(len(cells) for cells in rows)
    if widest > len(rows):
        return f"there are {widest} columns for {len(rows)} tasks: leave out those that are no task"
    return "is the matrix transposed, or do decimal commas stand between commas?"


def value_of(cell: str) -> Value:
    """The number in a text that holds one, with or without a percent sign."""
    text = _plain(cell)
    digits, _, exponent = text.lower().partition("e")
    return Value(float(text), 0.5 * 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2])))
