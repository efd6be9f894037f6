"""Numbers that papers print, from `results/published/*.toml`, and whether one of ours may be compared with one of them."""

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from cl_bench.config import Strict, build_config, unknown
from cl_bench.errors import InputError
from cl_bench.metrics import ACCURACY_CONVENTIONS, FORGETTING_CONVENTIONS
from cl_bench.record import RunSpec
from cl_bench.report.select import Conventions

METRICS = ("accuracy", "forgetting")


class Facts(Strict):
    """What is known about how some rows were made; None where nobody states it."""

    rows: list[str]
    tables: list[str] = ["*"]
    backbone: str | None = None
    order: str | None = None  # kind of class order, see `cl_bench.order`
    split: str | None = None  # "nsp2": the lists of images that the NSP2 code and this benchmark use
    passes: int | None = None
    source: str


class Header(Strict):
    """The paper and its conventions."""

    title: str
    venue: str
    url: str
    accuracy: str
    forgetting: str
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
    facts: tuple[Facts, ...]

    def known(self, name: str) -> Any:
        """The last fact of this name, None where nobody states it."""
        return next((getattr(fact, name) for fact in reversed(self.facts) if getattr(fact, name) is not None), None)


@dataclass(frozen=True)
class Registry:
    """The tables of one paper."""

    path: Path
    header: Header
    titles: dict[str, str]  # of tables by label
    rows: dict[tuple[str, str], dict]  # (table, row) -> benchmark -> numbers
    facts: tuple[Facts, ...]

    def number(self, table: str, row: str, benchmark: str, metric: str) -> Published | None:
        """The number, None where the paper has none. Raises InputError for a table or row that it does not have."""
        if table not in self.titles:
            raise unknown(f"table of {self.path.name}", table, list(self.titles))
        if (table, row) not in self.rows:
            raise unknown(f"row of {table} in {self.path.name}", row, [name for label, name in self.rows if label == table])
        found = self.rows[table, row].get(benchmark, {})
        if found.get(metric) is None:
            return None
        mean, spread = found[metric] if isinstance(found[metric], list) else (found[metric], None)
        facts = [f for f in self.facts if any(fnmatchcase(row, p) for p in f.rows) and any(fnmatchcase(table, p) for p in f.tables)]
        return Published(table, row, benchmark, metric, float(mean), spread, found.get("by"), tuple(facts))

    def venue(self, table: str, row: str) -> str:
        """Where the row's method was published, "" where the table does not say."""
        return self.rows.get((table, row), {}).get("venue", "")

    def why_not(self, number: Published, spec: RunSpec, conventions: Conventions) -> list[str]:
        """The reasons why a run's number may not be compared with this one; none where it may."""
        own = f"{spec.dataset}/{spec.num_tasks}"
        reasons = ["smoke benchmark"] if spec.smoke else []
        if own != number.benchmark:
            reasons.append(f"published for {number.benchmark}")
        if spec.limit:
            reasons.append(f"a trial with at most {spec.limit} training images")
        if spec.validation:
            reasons.append("evaluated on held-out training images")
        if spec.smoke or own != number.benchmark:
            return reasons
        backbone, passes, own_passes = number.known("backbone"), number.known("passes"), spec.options.get("passes")
        if backbone is None:
            reasons.append("the published checkpoint is not known")
        elif backbone != spec.backbone.name:
            reasons.append(f"other checkpoint (published: {backbone})")
        if passes and own_passes and passes != own_passes:
            reasons.append(f"{own_passes} passes (published: {passes})")
        if number.known("split") is None:
            reasons.append("the published split list is not known")
        elif number.known("split") != "nsp2":
            reasons.append(f"other split list (published: {number.known('split')})")
        if number.known("order") not in (None, spec.order):
            reasons.append(f"class order {spec.order} (published: {number.known('order')})")
        used, theirs = getattr(conventions, number.metric), getattr(self.header, number.metric)
        if used != theirs:
            reasons.append(f"{number.metric} as {used} (published: {theirs})")
        return reasons


@cache
def load(path: Path) -> Registry:
    """The registry in a file. Raises InputError naming what cannot be used."""
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the published numbers {path}: {getattr(error, 'strerror', None) or error}") from error
    tables, facts = values.pop("table", []), values.pop("facts", [])
    header = build_config(Header, [values], str(path))
    if header.accuracy not in ACCURACY_CONVENTIONS or header.forgetting not in FORGETTING_CONVENTIONS:
        raise InputError(f"{path}: accuracy and forgetting must be conventions, such as task_mean and chaudhry")
    rows = {}
    for table in tables:
        for row in table.get("row", []):
            key = (table["label"], row["name"])
            if key in rows:
                raise InputError(f"{path}: row {key[1]!r} stands twice in {key[0]}")
            rows[key] = row
    titles = {table["label"]: table.get("title", table["label"]) for table in tables}
    return Registry(path, header, titles, rows, tuple(build_config(Facts, [fact], f"{path}, facts") for fact in facts))
