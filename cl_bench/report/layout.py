"""A report's specification: a short TOML file that says which tables and figures to make from which runs."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cl_bench import registry
from cl_bench.config import Strict, build_config, unknown
from cl_bench.errors import InputError
from cl_bench.request import parse_methods, without_synonyms

Metric = Literal["accuracy", "forgetting", "incremental", "transfer"]


class ColumnLayout(Strict):
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


class RowLayout(Strict):
    """The runs of one method with one configuration, an imported matrix, or published numbers alone."""

    select: str | None = None  # a method with its options, as after `cl-bench run --methods`
    imported: str | None = None  # the name of an imported accuracy matrix
    published: str | None = None  # the row of the paper's table
    title: str | None = None
    labels: list[str] = []
    backbone: str | None = None  # where it is not that of the column's other rows
    where: dict[str, Any] = {}  # settings that tell configurations with equal options apart, such as precision
    rule: bool = False  # a line above it
    bound: bool = False  # an upper bound, never ranked


@cache
def selector(text: str) -> tuple[str, dict]:
    """(full method name, options) of a method as it is written after `--methods`. Raises InputError with the nearest name."""
    found = parse_methods(text)
    if len(found) != 1:
        raise InputError(f"{text!r} names {len(found)} configurations; a row is one")
    return _method(found[0][0]), without_synonyms(found[0][1])


@cache
def _method(name: str) -> str:
    return registry.find("methods", name).name


class TableLayout(Strict):
    """One table."""

    name: str = Field(pattern=r"^[\w.-]+$")
    title: str
    columns: list[ColumnLayout]
    rows: list[RowLayout]
    metrics: list[Metric] = ["accuracy", "forgetting"]
    published: str | None = None  # label of the paper's table
    labels: list[str] = []  # headings of extra columns before the numbers
    method_column: bool = True
    baseline: str | None = None  # select of the row that others are compared with
    rank: Literal["all", "groups"] = "all"  # best and second over the table, or between its lines


class FigureLayout(Strict):
    """One figure; what its kinds show is said in `cl_bench.report.figures`."""

    name: str = Field(pattern=r"^[\w.-]+$")
    kind: Literal["accuracy", "losses", "tradeoff", "pretraining", "matrix", "cost"]
    title: str = ""
    columns: list[ColumnLayout]
    rows: list[RowLayout]
    sweep: str = "eta"  # the option along the axis of a trade-off


class Layout(Strict):
    """A report."""

    title: str
    published: str | None = None  # file of published numbers, relative to this one
    accuracy: Literal["task_mean", "sample"] = "task_mean"
    forgetting: Literal["chaudhry", "max_including_last", "diagonal"] = "chaudhry"
    tables: list[TableLayout] = []
    figures: list[FigureLayout] = []


def read(path: Path) -> Layout:
    """The specification in a TOML file. Raises InputError naming the file, the part of it, and what is expected there."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the report specification {path}: {getattr(error, 'strerror', None) or error}") from error
    parts = {"tables": values.pop("table", []), "figures": values.pop("figure", [])}
    known = {*Layout.model_fields} - {"tables", "figures"} | {"table", "figure"}
    for key in values:
        if key not in known:
            raise unknown("key", key, sorted(known), str(path))
    made = {}
    for (kind, found), model in zip(parts.items(), (TableLayout, FigureLayout), strict=True):
        if not isinstance(found, list) or not all(isinstance(part, dict) for part in found):
            raise InputError(f"{path}: {kind} must be an array of tables, each under [[{kind[:-1]}]]")
        made[kind] = [_part(model, part, f"{path}, {kind[:-1]} {part.get('name', number)!r}") for number, part in enumerate(found, 1)]
    names = ["report", *(part.name for found in made.values() for part in found)]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: two parts are called {name!r}; each needs a name of its own (report is taken), it becomes a file")
    layout = build_config(Layout, [values, made], str(path))
    for part in (*layout.tables, *layout.figures):
        _check(part, f"{path}, {part.name!r}", layout.published)
    return layout


def _part(model: type[Strict], values: dict, where: str) -> Strict:
    """A table or figure; a column may be just its benchmark, a row just what it selects."""
    nested = {"columns": (ColumnLayout, "benchmark"), "rows": (RowLayout, "select")}
    made = dict(values)
    for key, (kind, short) in nested.items():
        found = values.get(key)
        if not isinstance(found, list) or not found:
            raise InputError(f"{where}: {key} must be a list with something in it")
        made[key] = [
            build_config(kind, [item if isinstance(item, dict) else {short: item}], f"{where}, {key[:-1]} {number}")
            for number, item in enumerate(found, 1)
        ]
    return build_config(model, [made], where)


@cache
def _data_set(name: str) -> registry.Plugin:
    return registry.find("datasets", name)


def _check(part: TableLayout | FigureLayout, where: str, published: str | None) -> None:
    """Every name means something. Raises InputError."""
    for column in part.columns:
        dataset, _, splits = column.benchmark.rpartition("/")
        if not splits.isdigit():
            raise InputError(f"{where}: {column.benchmark!r} is not a benchmark; expected DATASET/TASKS, such as glyphs/10")
        _data_set(dataset.partition(":")[0])
    for row in part.rows:
        if (row.select is None) + (row.imported is None) == 0:
            raise InputError(f"{where}: a row has either select or imported, not both")
        if row.select is None and row.imported is None and (row.published is None or isinstance(part, FigureLayout)):
            raise InputError(f"{where}: a row needs select, imported or (in a table) published")
        if row.select is not None:
            selector(row.select)
    if isinstance(part, TableLayout):
        if not part.metrics or any(len(row.labels) > len(part.labels) for row in part.rows):
            raise InputError(f"{where}: needs metrics, and in labels a heading for every label of a row")
        if not (part.method_column or part.labels):
            raise InputError(f"{where}: method_column = false leaves no name of a row; give labels")
        if (part.published or any(row.published for row in part.rows)) and not (part.published and published):
            raise InputError(f"{where}: published rows need the label of the paper's table here and the file of published numbers at the top")
        if part.baseline is not None and part.baseline not in [row.select for row in part.rows]:
            raise unknown("baseline", part.baseline, [row.select for row in part.rows if row.select], where)
