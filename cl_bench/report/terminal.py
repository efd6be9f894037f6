"""Tables on a terminal: aligned columns, the best number of each bold and the second underlined."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from cl_bench.report.render import DIFFERENCES, difference_words
from cl_bench.report.table import Cell, Table
from cl_bench.text.escape import visible

STYLES = {"best": "bold", "second": "underline", "": ""}


def show(table: Table, console: Console) -> None:
    """Print a table with its footnotes and differences."""
    grid = Grid(
        title=Text(visible(table.title), style="bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    words = len(table.labels) + table.method_column
    for place, head in enumerate(table.heads):
        grid.add_column(Text(visible(head)), justify="left" if place < words else "right")
    for line in table.lines:
        if line.rule and grid.row_count:
            grid.add_section()
        style = "dim" if line.quiet else ""
        cells = [_cell(found, style) for found in line.cells]
        counts = [Text(str(len(line.cells[0].row.finished)))] if table.counted else []
        grid.add_row(*(Text(visible(word), style=style) for word in table.words(line)), *cells, *counts)
    console.print(grid)
    for note in table.notes:
        console.print(Text(visible(f"- {note}"), style="dim"))
    if table.differences:
        differences = Grid(
            title=Text(visible(f"Differences to {table.baseline} in percentage points")),
            title_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        for place, head in enumerate(DIFFERENCES):
            differences.add_column(head, justify="left" if place < 3 else "right")
        for index in range(len(table.differences)):
            differences.add_row(*(Text(visible(word)) for word in difference_words(table, index)))
        console.print(differences)
    console.print()


def _cell(found: Cell, style: str) -> Text:
    marks = f" {found.marks}" if found.marks else ""
    return Text(found.text + marks, style=style or STYLES[found.rank])
