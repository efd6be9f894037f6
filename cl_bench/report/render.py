"""Tables as Markdown, and the table of everything that was run on one benchmark."""

from collections.abc import Iterable

from cl_bench.report.table import Cell, Line, Table
from cl_bench.text.escape import markdown as plain


def markdown(table: Table) -> str:
    """One Markdown table with title and footnotes, best value of a column bold, second underlined; then the differences to a baseline."""
    name, dash, rest = table.title.partition(" — ")
    aligned = (
        "|:--" * (len(table.labels) + table.method_column)
        + "|--:" * (sum(len(found) for _, found in table.groups) + table.counted)
        + "|"
    )
    lines = [f"**{plain(name)}**{dash}{plain(rest)}", "", _markdown_row(map(plain, table.heads)), aligned]
    for line in table.lines:
        words = [
            f"<small>{plain(word)}</small>" if line.quiet and word else plain(word)
            for word in table.words(line)
        ]
        lines.append(
            _markdown_row(
                [*words, *(_markdown_cell(found, line.quiet) for found in line.cells), *_count(table, line)]
            )
        )
    lines += ["", *(f"- {plain(note, begins_line=True)}" for note in table.notes)]
    if table.differences:
        lines += [
            "",
            f"Differences to {plain(table.baseline)} in percentage points:",
            "",
            *_markdown_differences(table),
        ]
    return "\n".join(lines) + "\n"


def _markdown_row(words: Iterable[str]) -> str:
    return "| " + " | ".join(words) + " |"


def _markdown_cell(found: Cell, quiet: bool) -> str:
    text = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}[found.rank].format(found.text)
    text = f"<small>{text}</small>" if quiet and found.text != Cell().text else text
    return text + (f"<sup>{found.marks}</sup>" if found.marks else "")


def _count(table: Table, line: Line) -> list[str]:
    return [str(len(line.cells[0].row.finished))] if table.counted else []


def _markdown_differences(table: Table) -> list[str]:
    rows = [_markdown_row(DIFFERENCES), "|:--|:--|:--" + "|--:" * (len(DIFFERENCES) - 3) + "|"]
    return [
        *rows,
        *(_markdown_row(map(plain, difference_words(table, i))) for i in range(len(table.differences))),
        "",
        *(f"- {note}" for note in DIFFERENCE_NOTES),
    ]


DIFFERENCES = ("Row", "Benchmark", "Metric", "Difference", "95 % interval", "p (Holm)")
DIFFERENCE_NOTES = (
    "Pairs of runs with the same class order and seeds. p: two-sided permutation test over the pairs, exact up to 20, Holm-adjusted over the table; "
    "with fewer than six pairs no outcome could be significant, and a table of several tests needs more.",
    "95 % interval: bootstrap over the test images, the same ones for both rows; it speaks about these images, not about other seeds.",
)


def difference_words(table: Table, index: int) -> list[str]:
    """A line of the table of differences."""
    found = table.differences[index]
    return [
        found.row,
        found.column,
        found.metric,
        f"{found.mean:+.2f} (n = {found.pairs})",
        found.span,
        found.verdict,
    ]
