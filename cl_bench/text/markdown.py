"""Writes tables as Markdown."""

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> list[str]:
    """The lines of a table whose cells are Markdown already; the first `words` columns are no numbers."""
    sides = ["|:--"] * words + ["|--:"] * (len(heads) - words)
    return [_row(heads), "".join(sides) + "|", *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
