"""A report's specification: a short TOML file that says which tables and figures to make from which runs."""

from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cl_bench.config import unknown
from cl_bench.errors import pointing_at
from cl_bench.plugins import registry
from cl_bench.plugins.groups import groups
from cl_bench.records import diagnosis
from cl_bench.report import published, toml_file
from cl_bench.report.group_rows import selector, standing, without_groups
from cl_bench.report.table import COLUMNS, COST_COLUMNS
from cl_bench.report.toml_file import Place, Placed, TomlFile
from cl_bench.splits import is_split

Cost = Literal[
    "passes", "trained", "stored", "stored_per_task", "stored_per_class", "images", "seconds", "memory"
]
METRICS = (*COLUMNS, *COST_COLUMNS, *diagnosis.MEASURES)  # of a table


class ColumnLayout(Placed):
    """A benchmark such as "cifar100/10" whose runs make a group of columns, and what else they must be."""

    benchmark: str
    title: str | None = None
    published: str | None = None  # the benchmark of the published numbers beside ours, where it is another
    backbone: str | None = None
    image_size: int | None = None
    limit: int | None = None  # trials stand in a table only where their limit is named
    validation: float | None = None

    @property
    def heading(self) -> str:
        """Its title, or the benchmark's name."""
        return self.title or self.benchmark


class RowLayout(Placed):
    """The runs of one method with one configuration, an imported matrix, or published numbers alone."""

    # a method with its options as after `cl-bench run --methods`, or a group: a row for each of its methods
    select: str | None = None
    imported: str | None = None  # the name of an imported accuracy matrix
    published: str | None = None  # the row of the paper's table
    title: str | None = None
    labels: list[str] = []  # {family} and {venue} are those of the selected method
    against: str | None = None  # select of the row it is compared with, instead of the table's baseline
    by: Literal["family"] | None = None  # of a group: family after family, with lines between them
    backbone: str | None = None  # where it is not that of the column's other rows
    where: dict[str, Any] = {}  # settings that tell runs with equal options apart, such as precision
    rule: bool = False  # a line above it
    bound: bool = False  # an upper bound, never ranked


class TableLayout(Placed):
    """One table."""

    name: str = Field(pattern=r"^[\w.-]+$")
    title: str
    columns: list[ColumnLayout]
    rows: list[RowLayout]
    metrics: list[str] = ["accuracy", "forgetting"]
    published: str | None = None  # label of the paper's table
    labels: list[str] = []  # headings of extra columns before the numbers
    method_column: bool = True
    baseline: str | None = None  # select of the row that others are compared with
    rank: Literal["all", "groups"] = "all"  # best and second over the table, or between its lines


class FigureLayout(Placed):
    """One figure; what its kinds show is said in `cl_bench.report.figures.files`."""

    name: str = Field(pattern=r"^[\w.-]+$")
    kind: Literal["accuracy", "losses", "tradeoff", "pretraining", "matrix", "cost", "diagnosis"]
    title: str = ""
    columns: list[ColumnLayout]
    rows: list[RowLayout]
    sweep: str = "eta"  # the option along the axis of a trade-off
    cost: Cost = "seconds"  # along the axis of a figure of costs
    measure: str = "affinity_change"  # what a diagnosis shows, see `cl_bench.records.diagnosis`

    @property
    def along(self) -> str:
        """What stands along the axis of those figures."""
        return {"cost": self.cost, "diagnosis": self.measure}.get(self.kind, self.sweep)


class Layout(Placed):
    """A report."""

    title: str
    # file of published numbers, relative to the specification; or the name of one that comes with the program
    published: str | None = None
    accuracy: Literal["task_mean", "sample"] = "task_mean"
    forgetting: Literal["chaudhry", "max_including_last", "diagonal"] = "chaudhry"
    tables: list[TableLayout] = []
    figures: list[FigureLayout] = []


KINDS = {"tables": ("table", TableLayout), "figures": ("figure", FigureLayout)}
# an item may be just this of its fields
SHORT = {"columns": (ColumnLayout, "benchmark"), "rows": (RowLayout, "select")}


def read(path: Path) -> Layout:
    """The specification in a TOML file.

    Raises InputError naming the file, the line, the field, and what is expected there.
    """
    file = toml_file.read(path, "report specification")
    fields = {*Layout.model_fields} - {*KINDS, "at"} | {key for key, _ in KINDS.values()}
    for key in file.values:
        if key not in fields:
            raise unknown("key", key, fields, file.where((key,)))
    places = {kind: file.tables(file.values, key) for kind, (key, _) in KINDS.items()}
    _bring_lists([each for found in places.values() for each in found], file)
    made = {kind: [_part(file, KINDS[kind][1], *found) for found in places[kind]] for kind in KINDS}
    head = {key: value for key, value in file.values.items() if key not in ("table", "figure")}
    layout = file.build(Layout, {**head, **made}, ())
    if layout.published is not None:
        with pointing_at(file.where(("published",))):
            layout = layout.model_copy(update={"published": str(published.locate(layout.published, path))})
    taken = {"report"}  # names of files
    for kind, found in places.items():
        for (place, _), part in zip(found, made[kind], strict=True):
            if part.name in taken:
                advice = "each part needs a name of its own, it becomes a file beside report.md"
                raise file.error((*place, "name"), f"{part.name!r} is taken; {advice}")
            taken.add(part.name)
            _check(part, place, file, layout.published)
    each = {kind: [without_groups(part) for part in found] for kind, found in made.items()}
    return layout.model_copy(update=each)


def _bring_lists(parts: list[tuple[Place, dict]], file: TomlFile) -> None:
    """Columns or rows that are a name become those of the table or figure above it. Raises InputError."""
    above: dict[str, dict] = {}
    for place, values in parts:
        for key in SHORT:
            name = values.get(key)
            if not isinstance(name, str):
                continue
            if not above:
                nothing = "is a name, but no table or figure stands above it; expected a list"
                raise file.error((*place, key), f"{name!r} {nothing}")
            if name not in above:
                raise unknown("table or figure above", name, above, file.where((*place, key)))
            values[key] = above[name].get(key)
        if isinstance(values.get("name"), str):
            above[values["name"]] = values


def _part(file: TomlFile, model: type[Placed], place: Place, values: dict) -> Placed:
    """A table or figure; a column may be just its benchmark, a row just what it selects."""
    made = dict(values)
    for key, (kind, short) in SHORT.items():
        found = values.get(key)
        if not isinstance(found, list) or not found:
            raise file.error((*place, key), "expected a list with something in it")
        items = [item if isinstance(item, dict) else {short: item} for item in found]
        made[key] = [file.build(kind, item, (*place, key, number)) for number, item in enumerate(items)]
    return file.build(model, made, place)


@cache
def _data_set(name: str) -> registry.Plugin:
    return registry.find("datasets", name)


def _check(part: TableLayout | FigureLayout, place: Place, file: TomlFile, numbers: str | None) -> None:
    """Every name means something. Raises InputError."""
    for number, column in enumerate(part.columns):
        dataset, _, splits = column.benchmark.rpartition("/")
        own = (*place, "columns", number, "benchmark")
        if not is_split(splits):
            expected = "expected DATASET/TASKS, such as glyphs/10"
            raise file.error(own, f"{column.benchmark!r} is not a benchmark; {expected}")
        with pointing_at(file.where(own)):
            _data_set(dataset.partition(":")[0])
    for number, row in enumerate(part.rows):
        _check_row(part, row, (*place, "rows", number), file, numbers)
    if not isinstance(part, TableLayout):
        if part.measure not in diagnosis.MEASURES:
            raise unknown("measure", part.measure, diagnosis.MEASURES, file.where((*place, "measure")))
        return
    if not part.metrics:
        raise file.error((*place, "metrics"), "expected at least one, such as accuracy")
    for metric in part.metrics:
        if metric not in METRICS:
            raise unknown("metric", metric, METRICS, file.where((*place, "metrics")))
    if not (part.method_column or part.labels):
        raise file.error((*place, "method_column"), "false leaves no name of a row; give labels")
    if part.published and not numbers:
        raise file.error((*place, "published"), "needs the file of published numbers at the top of this one")
    rows = without_groups(part).rows
    compared = [(part.baseline, "", ("baseline",))]
    compared += [(row.against, row.at, ("rows", n, "against")) for n, row in enumerate(part.rows)]
    for select, own, where in compared:
        if select is not None and standing(rows, select, own) is None:
            others = [row.select for row in rows if row.select and row.at != own]
            raise unknown(where[-1], select, others, file.where((*place, *where)))


def _check_row(
    part: TableLayout | FigureLayout, row: RowLayout, place: Place, file: TomlFile, numbers: str | None
) -> None:
    """A row says what it is, once, and has no more labels than its table has headings. Raises InputError."""
    if row.select is not None and row.imported is not None:
        raise file.error((*place, "imported"), "a row has either select or imported, not both")
    figure = isinstance(part, FigureLayout)
    if row.select is None and row.imported is None and (row.published is None or figure):
        raise file.error(place, "a row needs select, imported or (in a table) published")
    if row.select in groups():
        own_words = [label for label in row.labels if "{" not in label]
        own = {"title": row.title, "labels": own_words, "published": row.published, "against": row.against}
        for field, given in own.items():
            if given:
                several = f"the group {row.select!r} stands for several rows; leave {field} out"
                raise file.error((*place, field), several)
    elif row.by is not None:
        raise file.error((*place, "by"), f"{row.select!r} is one method; by puts those of a group in order")
    elif row.select is not None:
        with pointing_at(file.where((*place, "select"))):
            selector(row.select)
    if figure:
        return
    if len(row.labels) > len(part.labels):
        labels = f"{len(row.labels)} labels, but the table's labels give {len(part.labels)} columns a heading"
        raise file.error((*place, "labels"), labels)
    if row.published and not (part.published and numbers):
        needed = "needs the label of the paper's table (published) in its table, and the file at the top"
        raise file.error((*place, "published"), needed)
