"""Tables as Markdown."""

from cl_bench.report.table import DIFFERENCE_HEADS, DIFFERENCE_WORDS, Cell, Line, Table
from cl_bench.text import markdown as writer
from cl_bench.text.escape import markdown as plain

RANKED = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
DIFFERENCE_NOTES = (
    "Pairs of runs with the same class order and seeds. p: two-sided permutation test over the pairs, "
    "exact up to 20, Holm-adjusted over the table; with fewer than six pairs no outcome could be "
    "significant, and a table of several tests needs more.",
    "95 % interval: bootstrap over the test images, the same ones for both rows; "
    "it speaks about these images, not about other seeds.",
)


def markdown(table: Table) -> str:
    """One Markdown table with title and footnotes, then the differences to a baseline.

    The best value of a column is bold, the second underlined.
    """
    name, dash, rest = table.title.partition(" — ")
    rows = [[*_words(table, line), *_cells(line), *table.count(line)] for line in table.lines]
    lines = [f"**{plain(name)}**{dash}{plain(rest)}", ""]
    lines += writer.table([*map(plain, table.heads)], rows, len(table.word_heads))
    lines += ["", *(f"- {plain(note, begins_line=True)}" for note in table.notes)]
    if table.differences:
        lines += ["", f"{plain(table.differences_title)}:", ""]
        differences = [[*map(plain, found.words)] for found in table.differences]
        lines += writer.table(DIFFERENCE_HEADS, differences, DIFFERENCE_WORDS)
        lines += ["", *(f"- {note}" for note in DIFFERENCE_NOTES)]
    return "\n".join(lines) + "\n"


def _words(table: Table, line: Line) -> list[str]:
    words = map(plain, table.words(line))
    return [f"<small>{word}</small>" if line.quiet and word else word for word in words]


def _cells(line: Line) -> list[str]:
    return [_cell(found, line.quiet) for found in line.cells]


def _cell(found: Cell, quiet: bool) -> str:
    text = RANKED[found.rank].format(plain(found.text))
    text = f"<small>{text}</small>" if quiet and found.text != Cell().text else text
    return text + (f"<sup>{found.marks}</sup>" if found.marks else "")
