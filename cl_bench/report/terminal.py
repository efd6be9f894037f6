"""Tables on a terminal: aligned columns, the best number of each bold and the second underlined."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from cl_bench.report.table import DIFFERENCE_HEADS, DIFFERENCE_WORDS, Cell, Table
from cl_bench.text.escape import visible

STYLES = {"best": "bold", "second": "underline", "": ""}


def show(table: Table, console: Console) -> None:
    """Print a table with its footnotes and differences."""
    grid = _grid(table.title, table.heads, len(table.word_heads), style="bold")
    for line in table.lines:
        if line.rule and grid.row_count:
            grid.add_section()
        style = "dim" if line.quiet else ""
        words = [Text(visible(word), style=style) for word in table.words(line)]
        cells = [_cell(found, style) for found in line.cells]
        grid.add_row(*words, *cells, *map(Text, table.count(line)))
    console.print(grid)
    for note in table.notes:
        console.print(Text(visible(f"- {note}"), style="dim"))
    if table.differences:
        differences = _grid(table.differences_title, DIFFERENCE_HEADS, DIFFERENCE_WORDS)
        for found in table.differences:
            differences.add_row(*(Text(visible(word)) for word in found.words))
        console.print(differences)
    console.print()


def _grid(title: str, heads: Sequence[str], words: int, style: str = "") -> Grid:
    """A table with these headings, the first `words` columns to the left."""
    shown = Text(visible(title), style=style)
    grid = Grid(title=shown, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for place, head in enumerate(heads):
        grid.add_column(Text(visible(head)), justify="left" if place < words else "right")
    return grid


def _cell(found: Cell, style: str) -> Text:
    marks = f" {found.marks}" if found.marks else ""
    return Text(visible(found.text) + marks, style=style or STYLES[found.rank])
