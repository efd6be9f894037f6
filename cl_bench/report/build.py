"""The tables of a report: cells, ranks, published numbers."""

from collections.abc import Sequence

from cl_bench.errors import pointing_at
from cl_bench.records import metrics
from cl_bench.records.metrics import Conventions
from cl_bench.report import comparable, differences, findings, notes, significance
from cl_bench.report.lookup import Found
from cl_bench.report.published import METRICS, Published
from cl_bench.report.rows import MARKS, Benchmark, Row
from cl_bench.report.spec import RowLayout, TableLayout
from cl_bench.report.table import (
    COLUMNS,
    Cell,
    Line,
    Table,
    cell,
    number,
    rank,
)


def table(layout: TableLayout, grid: Sequence[Sequence[Row | None]], found: Found) -> Table:
    """The table of a specification; `grid` has the runs of every row and column."""
    groups = [(column.heading, list(layout.metrics)) for column in layout.columns]
    labels = list(layout.labels)
    made = Table(layout.name, layout.title, groups, [], labels=labels, method_column=layout.method_column)
    letters: dict[str, str] = {}
    planned = [_seeds(column) for column in zip(*grid, strict=True)]
    for wanted, rows in zip(layout.rows, grid, strict=True):
        made.lines.append(_line(layout, wanted, rows, planned, found))
        if wanted.published and (below := _published_line(layout, wanted, rows, found, letters)):
            made.lines.append(below)
    _rank(layout, made)
    differences.add(layout, grid, found, made)
    columns = [[row for row in column if row] for column in zip(*grid, strict=True)]
    _say_n(made)
    made.notes = [_columns_note(columns), *notes.of_table(columns, found.conventions, layout.metrics)]
    made.notes += _findings(layout, grid, found) if "accuracy" in layout.metrics else []
    if any("*" in cell_.marks for line in made.lines for cell_ in line.cells):
        below = f"p below {significance.LEVEL}"
        test = "permutation test over seeds, Holm-adjusted over the table"
        named = any(row.against for row in layout.rows)
        other = "the row it is compared with below" if named else made.baseline
        made.notes.append(f"*: differs from {other}, {below} ({test}).")
    made.notes += [f"{letter}: {reason}." for reason, letter in letters.items()]
    if letters or any(line.quiet for line in made.lines):
        header, title = found.registry.header, found.registry.titles[layout.published]
        paper = f"{header.title} ({header.venue}), {title}"
        made.notes.append(f"Published: {paper}; in brackets ours - published.")
    return made


def _findings(layout: TableLayout, grid: Sequence[Sequence[Row | None]], found: Found) -> list[str]:
    """What must be said of each column's rows."""
    told = []
    for column, rows in zip(layout.columns, zip(*grid, strict=True), strict=True):
        both = [(wanted, row) for wanted, row in zip(layout.rows, rows, strict=True) if row]
        bounds = [row for wanted, row in both if wanted.bound or row.joint]
        where = f" on {column.heading}" if len(layout.columns) > 1 else ""
        shown = [row for _, row in both]
        told += findings.of_column(shown, bounds, found.conventions, found.answers, where)
    return told


def _seeds(column: Sequence[Row | None]) -> list[str]:
    """The names of all seeds in a column, finished or not."""
    run_here = [row for row in column if row and not row.imported]
    return sorted({record.spec.seed_name() for row in run_here for record in row.records})


def _columns_note(columns: Sequence[Sequence[Row]]) -> str:
    """Which benchmarks and backbones the columns are, with every deviation from the full protocol."""
    on: dict[str, dict[str, dict[str, None]]] = {}  # backbone -> benchmark -> rows
    for column in columns:
        for row in (row for row in column if not row.imported):
            backbone = f"backbone {row.spec.backbone.name}, {row.spec.backbone.image_size} px"
            on.setdefault(backbone, {}).setdefault(row.benchmark, {})[row.name] = None
    told = []
    for backbone, benchmarks in on.items():
        rows = dict.fromkeys(name for names in benchmarks.values() for name in names)
        told.append(f"{', '.join(benchmarks)}: {backbone}" + (f" ({', '.join(rows)})" if len(on) > 1 else ""))
    return f"Run here on {'; '.join(told)}." if told else "Nothing of this was run here."


def _say_n(made: Table) -> None:
    """Give a number its n where not all of the table have the same; cells that lack seeds say so already."""
    shown = [cell_ for line in made.lines if not line.quiet for cell_ in line.cells]
    cells = [cell_ for cell_ in shown if cell_.value is not None]
    several = len({cell_.count for cell_ in cells}) > 1
    for cell_ in cells:
        if several and "seeds)" not in cell_.text:
            cell_.text += f" (n = {cell_.count})"


def _title(wanted: RowLayout, rows: Sequence[Row | None]) -> str:
    """The row's name, with the marks that its runs carry."""
    own = next((row for row in rows if row), None)
    title = wanted.title or (own.name if own else wanted.select or wanted.imported or wanted.published or "")
    present = [row for row in rows if row]
    return title + "".join(mark for mark in MARKS if any(mark in row.marks for row in present))


def _line(
    layout: TableLayout, wanted: RowLayout, rows: Sequence[Row | None], planned: Sequence[list], found: Found
) -> Line:
    cells = []
    for row, seeds in zip(rows, planned, strict=True):
        for metric in layout.metrics:
            made = cell(row, metric, found.conventions)
            if row and made.value is not None and made.count < len(seeds) and not row.imported:
                made.text += f" ({made.count} of {len(seeds)} seeds)"
            elif row and not row.finished:
                made.text = row.state
            cells.append(made)
    labels = list(wanted.labels)
    bound = wanted.bound or any(row.joint for row in rows if row)
    return Line(_title(wanted, rows), cells, labels, wanted.rule, bound)


def _published_line(
    layout: TableLayout, wanted: RowLayout, rows: Sequence[Row | None], found: Found, letters: dict[str, str]
) -> Line | None:
    """The paper's numbers for a row, the difference of ours where the two may be compared.

    Where not, a letter stands for the reason; None where the paper has no numbers.
    """
    cells = []
    for column, row in zip(layout.columns, rows, strict=True):
        for metric in layout.metrics:
            place = column.published or column.benchmark
            named = column.published is not None  # else it may be the user's own
            theirs = None
            if metric in METRICS:
                with pointing_at(wanted.at):
                    theirs = found.registry.number(layout.published, wanted.published, place, metric, named)
            cells.append(_published_cell(theirs, row, found, letters) if theirs else Cell(metric=metric))
    return Line("published", cells, quiet=True) if any(made.text != Cell().text for made in cells) else None


def _published_cell(theirs: Published, row: Row | None, found: Found, letters: dict[str, str]) -> Cell:
    spread = None if theirs.spread is None else theirs.spread / 100
    made = Cell(number(theirs.mean / 100, spread), metric=theirs.metric)
    ours, caveats = cell(row, theirs.metric, found.conventions), []
    if row and ours.value is not None:
        if row.imported:
            reasons = ["imported, not run here"]
        else:
            reasons = comparable.why_not(found.registry, theirs, row.spec, found.conventions)
        if reasons:
            caveats.append("not comparable: " + ", ".join(reasons))
        else:
            caveats += found.registry.doubts(theirs, row.spec)
            printed = float(metrics.percent(ours.value))
            made.text += f" ({metrics.signed_percent((printed - theirs.mean) / 100)})"
    if theirs.by:
        caveats.append(f"run by the authors of {theirs.by}")
    made.marks = ",".join(letters.setdefault(caveat, _letter(len(letters))) for caveat in caveats)
    return made


def _letter(count: int) -> str:
    return chr(ord("a") + count % 26) * (1 + count // 26)


def _rank(layout: TableLayout, made: Table) -> None:
    if layout.rank == "all":
        rank(made.lines)
        return
    start = 0
    for end in [*(i for i, line in enumerate(made.lines) if line.rule and i), len(made.lines)]:
        rank(made.lines[start:end])
        start = end


def of_benchmark(
    benchmark: Benchmark, conventions: Conventions, answers: findings.Asked = findings.unknown
) -> Table:
    """All rows of a benchmark with all metrics and the number of seeds."""
    lines = [
        Line(row.title, [cell(row, metric, conventions) for metric in COLUMNS], bound=row.joint)
        for row in benchmark.rows
    ]
    for before, line in zip(lines, lines[1:], strict=False):
        line.rule = line.bound and not before.bound
    rank(lines)
    found = notes.of_table([benchmark.rows], conventions, list(COLUMNS))
    bounds = [row for row in benchmark.rows if row.joint]
    found += findings.of_column(benchmark.rows, bounds, conventions, answers)
    if benchmark.shared_options:
        found.insert(3, f"All rows: {', '.join(benchmark.shared_options)}.")
    # a user's data: other reports may be about others of the same name
    own = benchmark.spec and benchmark.spec.dataset_argument
    data = f"data {benchmark.spec.manifest_digest[:8]}, " if own else ""
    title = f"{benchmark.name} — {data}backbone {benchmark.backbone}; percent"
    return Table(benchmark.slug, title, [("", list(COLUMNS))], lines, found, counted=True)
