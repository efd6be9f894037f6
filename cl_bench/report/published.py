"""Numbers that papers print, and what is known about how they were made, from `results/published/*.toml`."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cl_bench.config import Strict, unknown
from cl_bench.errors import InputError
from cl_bench.plugins import search_path
from cl_bench.records.metrics import ACCURACY_CONVENTIONS, FORGETTING_CONVENTIONS
from cl_bench.records.spec import RunSpec
from cl_bench.report import toml_file
from cl_bench.report.toml_file import Place, TomlFile

METRICS = ("accuracy", "forgetting")


class Facts(Strict):
    """What is known about how some numbers were made; None where nobody states it.

    Facts about other people's runs name them with `by`.
    """

    rows: list[str]
    tables: list[str] = ["*"]
    benchmarks: list[str] = ["*"]
    by: str | None = None
    backbone: str | None = None
    image_size: int | None = None
    augment: str | None = None
    order: str | None = None  # kind of class order, see `cl_bench.data.order`
    split: str | None = None  # "nsp2": the lists of images that the NSP2 code and this benchmark use
    passes: int | None = None
    preset: str | None = None  # of `methods/presets`, where the paper's own runs follow it
    options: dict[str, Any] = {}  # what the row's name says about a method's options
    transform: dict[str, Any] = {}  # values of `Transform`
    accuracy: str | None = None  # convention, where it is not the paper's
    forgetting: str | None = None
    doubt: dict[str, str] = {}  # metric -> what its sources leave open about it
    source: str

    def about(self, number: "Published") -> bool:
        """Whether they hold for a number."""
        places = ((number.table, self.tables), (number.row, self.rows), (number.benchmark, self.benchmarks))
        return self.by == number.by and all(
            any(fnmatchcase(name, pattern) for pattern in patterns) for name, patterns in places
        )


class Numbers(Strict):
    """What a row of a table says about one benchmark: percent, or [percent, standard deviation]."""

    accuracy: float | list[float] | None = None
    forgetting: float | list[float] | None = None
    by: str | None = None


class Header(Strict):
    """The paper and its conventions."""

    title: str
    venue: str
    url: str
    accuracy: Literal[tuple(ACCURACY_CONVENTIONS)]
    forgetting: Literal[tuple(FORGETTING_CONVENTIONS)]
    runs: int


@dataclass(frozen=True)
class Published:
    """One published number in percent."""

    table: str
    row: str
    benchmark: str
    metric: str
    mean: float
    spread: float | None
    by: str | None  # who made the runs, where it was not the row's own paper


@dataclass(frozen=True)
class Registry:
    """The tables of one paper."""

    path: Path
    header: Header
    titles: dict[str, str]  # of tables by label
    rows: dict[tuple[str, str], dict[str, Numbers]]  # (table, row) -> benchmark -> numbers
    facts: tuple[Facts, ...]

    def number(
        self, table: str, row: str, benchmark: str, metric: str, named: bool = True
    ) -> Published | None:
        """The number, None where the paper has none.

        Raises InputError for a table, a row, or (where somebody `named` it as the paper's) a benchmark that
        the paper does not have.
        """
        if table not in self.titles:
            raise unknown(f"table of {self.path.name}", table, list(self.titles))
        if (table, row) not in self.rows:
            rows = [name for label, name in self.rows if label == table]
            raise unknown(f"row of {table} in {self.path.name}", row, rows)
        known = {name for (label, _), found in self.rows.items() if label == table for name in found}
        if named and benchmark not in known:
            raise unknown(f"benchmark of {table} in {self.path.name}", benchmark, sorted(known))
        found = self.rows[table, row].get(benchmark, Numbers())
        value = getattr(found, metric, None)
        if value is None:
            return None
        mean, spread = value if isinstance(value, list) else (value, None)
        return Published(table, row, benchmark, metric, float(mean), spread, found.by)

    def known(self, number: Published, name: str) -> Any:
        """The last fact of this name about a number, None where nobody states it."""
        stated = [getattr(fact, name) for fact in self.facts if fact.about(number)]
        return next((value for value in reversed(stated) if value is not None), None)

    def doubts(self, number: Published, spec: RunSpec | None = None) -> list[str]:
        """What the sources of a number leave open about it, and a run about its own checkpoint."""
        facts = [fact for fact in self.facts if fact.about(number)]
        found = [fact.doubt[number.metric] for fact in facts if number.metric in fact.doubt]
        if spec is not None and spec.backbone.weights:
            name = spec.backbone.name
            found.append(f"weights read from a file, which nobody compared with those called {name}")
        return found


def names() -> dict[str, Path]:
    """The files that come with the program, by name."""
    return {
        path.stem: path
        for folder in search_path.own()
        for path in sorted((folder / "results" / "published").glob("*.toml"))
    }


def locate(named: str, specification: Path) -> Path:
    """The file that a report's specification names: relative to it, or one that comes with the program.

    Raises InputError with the nearest name.
    """
    if not named.endswith(".toml") and "/" not in named:
        if named not in names():
            raise unknown("published numbers", named, names())
        return names()[named]
    path = (specification.parent / named).resolve()
    if not path.exists() and path.stem in names():
        raise InputError(
            f"there is no file {path}; "
            f"those that come with the program are named by published = {path.stem!r}"
        )
    return path


@cache
def load(path: Path) -> Registry:
    """The registry in a file. Raises InputError naming the line that cannot be used."""
    file = toml_file.read(path, "published numbers")
    head = {key: value for key, value in file.values.items() if key not in ("table", "facts")}
    header = file.build(Header, head, ())
    titles, rows = {}, {}
    for place, table in file.tables(file.values, "table"):
        label = table.get("label")
        if not isinstance(label, str) or label in titles:
            raise file.error((*place, "label"), "every table needs a label of its own")
        titles[label] = str(table.get("title", label))
        for own, row in file.tables(table, "row", place):
            key = (label, row.get("name"))
            if not isinstance(key[1], str):
                raise file.error((*own, "name"), f"every row of {label} needs a name")
            if key in rows:
                raise file.error((*own, "name"), f"row {key[1]!r} stands twice in {label}")
            cells = {name: cell for name, cell in row.items() if name not in ("name", "venue")}
            rows[key] = {name: _numbers(file, cell, (*own, name)) for name, cell in cells.items()}
    facts = tuple(file.build(Facts, fact, place) for place, fact in file.tables(file.values, "facts"))
    return Registry(path, header, titles, rows, facts)


def _numbers(file: TomlFile, cell: Any, place: Place) -> Numbers:
    if not isinstance(cell, dict):
        raise file.error(place, "expected such as { accuracy = 91.74, forgetting = [3.28, 0.45] }")
    found = file.build(Numbers, cell, place)
    for name in METRICS:
        value = getattr(found, name)
        if isinstance(value, list) and len(value) != 2:
            raise file.error((*place, name), "a list is [mean, standard deviation]")
    return found
