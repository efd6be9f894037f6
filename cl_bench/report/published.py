"""Numbers that papers print, from `results/published/*.toml`, and whether one of ours may be compared with one of them."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cl_bench import plugin_folders, presets
from cl_bench.config import Strict, unknown
from cl_bench.errors import InputError
from cl_bench.notation import format_option
from cl_bench.records.metrics import ACCURACY_CONVENTIONS, FORGETTING_CONVENTIONS, Conventions
from cl_bench.records.record import RunSpec
from cl_bench.report import toml_file
from cl_bench.report.settings import options_in, settings_of
from cl_bench.report.toml_file import Place, TomlFile

METRICS = ("accuracy", "forgetting")


class Facts(Strict):
    """What is known about how some numbers were made; None where nobody states it. Facts about other people's runs name them with `by`."""

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
        """The number, None where the paper has none. Raises InputError for a table, row or (where somebody `named` it as the paper's) benchmark that
        it does not have."""
        if table not in self.titles:
            raise unknown(f"table of {self.path.name}", table, list(self.titles))
        if (table, row) not in self.rows:
            raise unknown(
                f"row of {table} in {self.path.name}",
                row,
                [name for label, name in self.rows if label == table],
            )
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
        found = [
            fact.doubt[number.metric]
            for fact in self.facts
            if fact.about(number) and number.metric in fact.doubt
        ]
        if spec is not None and spec.backbone.weights:
            found.append(
                f"weights read from a file, which nobody compared with those called {spec.backbone.name}"
            )
        return found

    def _settings(self, number: Published, spec: RunSpec) -> dict[str, Any]:
        """The options and transform of the published runs, as far as they are known."""
        found: dict[str, Any] = {}
        if preset := self.known(number, "preset"):
            found |= {
                key: setting.value
                for key, setting in presets.load(preset).settings(spec.method, number.benchmark).items()
            }
        for fact in self.facts:
            if fact.about(number):
                found |= fact.options | fact.transform
        return {
            key: value for key, value in found.items() if key not in ("backbone", "passes", "augment")
        }  # facts of their own

    def why_not(self, number: Published, spec: RunSpec, conventions: Conventions) -> list[str]:
        """The reasons why a run's number may not be compared with this one; none where it may."""
        reasons = ["smoke benchmark"] if spec.smoke else []
        benchmark = f"{spec.dataset}/{spec.num_tasks}"  # wherever its files lie
        if benchmark != number.benchmark:
            reasons.append(f"published for {number.benchmark}")
        if spec.limit:
            reasons.append(f"a trial with at most {spec.limit} training images")
        if spec.validation:
            reasons.append("evaluated on held-out training images")
        if spec.smoke or benchmark != number.benchmark:
            return reasons
        ours = {
            "checkpoint": ("backbone", spec.backbone.name), "image size": ("image_size", spec.backbone.image_size),
            "augmentation": ("augment", spec.transform.augment), "class order": ("order", spec.order), "split list": ("split", "nsp2"),
            "number of passes": ("passes", spec.options.get("passes")),
        }  # fmt: skip
        for name, (fact, own) in ours.items():
            theirs = self.known(number, fact)
            if theirs is None and fact not in ("image_size", "augment"):
                reasons.append(f"the published {name} is not known")
            elif theirs is not None and own is not None and theirs != own:
                reasons.append(f"other {name} ({own}, published: {theirs})")
        settings, named = settings_of(spec), options_in(spec.label)
        theirs = self._settings(number, spec)
        for key, value in theirs.items():
            if settings.get(key, value) != value:
                reasons.append(
                    f"other {key} ({format_option(settings[key])}, published: {format_option(value)})"
                )
        stated = {*theirs, *spec.transform.model_dump(), "passes", "as_published"}
        reasons += [
            f"{key} = {value}, where the published row says nothing"
            for key, value in named.items()
            if key not in stated
        ]
        if spec.transform.normalisation != "checkpoint":
            reasons.append(f"inputs normalised as {spec.transform.normalisation}")
        used, theirs = (
            getattr(conventions, number.metric),
            self.known(number, number.metric) or getattr(self.header, number.metric),
        )
        if used != theirs:
            reasons.append(f"{number.metric} as {used} (published: {theirs})")
        return reasons


def names() -> dict[str, Path]:
    """The files that come with the program, by name."""
    return {
        path.stem: path
        for folder in plugin_folders.own()
        for path in sorted((folder / "results" / "published").glob("*.toml"))
    }


def locate(named: str, specification: Path) -> Path:
    """The file that a report's specification names: relative to it, or one that comes with the program. Raises InputError with the nearest name."""
    if not named.endswith(".toml") and "/" not in named:
        if named not in names():
            raise unknown("published numbers", named, names())
        return names()[named]
    path = (specification.parent / named).resolve()
    if not path.exists() and path.stem in names():
        raise InputError(
            f"there is no file {path}; those that come with the program are named by published = {path.stem!r}"
        )
    return path


@cache
def load(path: Path) -> Registry:
    """The registry in a file. Raises InputError naming the line that cannot be used."""
    file = toml_file.read(path, "published numbers")
    header = file.build(
        Header, {key: value for key, value in file.values.items() if key not in ("table", "facts")}, ()
    )
    titles, rows = {}, {}
    for place, table in file.tables(file.values, "table"):
        label = table.get("label")
        if not isinstance(label, str) or label in titles:
            raise file.error((*place, "label"), "every table needs a label of its own")
        titles[label] = str(table.get("title", label))
        for own, row in file.tables(table, "row", place):
            key = (label, row.get("name"))
            if not isinstance(key[1], str) or key in rows:
                reason = (
                    f"row {key[1]!r} stands twice in {label}"
                    if key in rows
                    else f"every row of {label} needs a name"
                )
                raise file.error((*own, "name"), reason)
            rows[key] = {
                name: _numbers(file, cell, (*own, name))
                for name, cell in row.items()
                if name not in ("name", "venue")
            }
    return Registry(
        path,
        header,
        titles,
        rows,
        tuple(file.build(Facts, fact, place) for place, fact in file.tables(file.values, "facts")),
    )


def _numbers(file: TomlFile, cell: Any, place: Place) -> Numbers:
    if not isinstance(cell, dict):
        raise file.error(place, "expected such as { accuracy = 91.74, forgetting = [3.28, 0.45] }")
    found = file.build(Numbers, cell, place)
    for name in METRICS:
        value = getattr(found, name)
        if isinstance(value, list) and len(value) != 2:
            raise file.error((*place, name), "a list is [mean, standard deviation]")
    return found
