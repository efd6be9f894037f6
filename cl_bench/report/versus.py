"""Two results folders, or two methods of one, against each other: paired differences, and regressions."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cl_bench.config import whole_number
from cl_bench.errors import InputError
from cl_bench.records.metrics import Conventions
from cl_bench.records.record import RunRecord
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import LeftOut, Store
from cl_bench.report import significance
from cl_bench.report.answers import Answers
from cl_bench.report.grouping import group
from cl_bench.report.nearest import selectors, sentence
from cl_bench.report.rows import Row
from cl_bench.report.settings import configured
from cl_bench.report.significance import Comparison
from cl_bench.report.spec import selector
from cl_bench.report.table import DIFFERENCE_HEADS, DIFFERENCE_WORDS, Difference
from cl_bench.report.write import read_records, require_none
from cl_bench.text import escape, markdown


@dataclass(frozen=True)
class Versus:
    """What B is better or worse by than A: lines of a table, and names of significantly worse rows."""

    differences: list[Difference]
    worse: list[str]
    warnings: list[str]
    level: float  # of the intervals, all rows together at 95 %
    # what the rows lack, or may lack, since it could not be read or believed
    left_out: list[LeftOut] = field(default_factory=list)

    def markdown(self) -> str:
        """The table of differences, B - A."""
        *others, _, p = DIFFERENCE_HEADS
        heads = [*others, f"{100 * (1 - self.level):.4g} % interval", p]
        rows = [[*map(escape.markdown, found.words[:2]), *found.words[2:]] for found in self.differences]
        return "\n".join(markdown.table(heads, rows, DIFFERENCE_WORDS))

    def values(self) -> dict:
        """The same as JSON values, in percentage points."""
        return {
            "differences": [asdict(found) for found in self.differences],
            "worse": self.worse,
            "interval_level": 1 - self.level,
        }


Named = tuple[tuple[str, str], Row, Row]
"""(label, benchmark), and the rows of A and B."""


def versus(a: str, b: str, results: Path, conventions: Conventions) -> Versus:
    """B - A. Both are results folders, whose rows of one label are paired, or both are methods in one folder.

    Methods are such as nsp2@1 and nsp2@2. Worse is a row whose accuracy is lower by a Holm-adjusted p below
    0.05, or by an interval over test images, at 95 % for all rows together, that lies below zero. Raises
    InputError when nothing can be paired.
    """
    stores = [Store(Path(name)) for name in (a, b)]
    if all(os.path.isdir(store.root) for store in stores):
        found, warnings, left_out = _of_folders((a, b), stores)
    else:
        stores = [Store(results)] * 2
        found, warnings, left_out = _of_one_folder((a, b), stores[0])
    pairs, told = _comparable(found)
    answers, level = (Answers(stores[1]), Answers(stores[0])), significance.LEVEL / max(1, len(pairs))
    compared = []
    for name, old, new in pairs:
        result = significance.compare(new, old, "accuracy", conventions, answers, level)
        count = 0 if result is None else len(result.differences)
        if count < max(len(old.finished), len(new.finished)):
            finished = f"{len(old.finished)} and {len(new.finished)} finished runs"
            told.append(f"{' on '.join(name)}: {count} pairs of {finished}; the others have no partner")
        if result:
            compared.append((name, result))
    if not compared:
        require_none(left_out)
        same = "the same benchmark, class order and seeds"
        raise InputError(f"no run of {a} and {b} has {same}; nothing can be compared")
    return _judge(compared, warnings + told, level, [*left_out, *_unread(answers)])


def _of_folders(
    names: Sequence[str], stores: Sequence[Store]
) -> tuple[list[Named], list[str], list[LeftOut]]:
    """The rows that two folders share, warnings of the others, and what could not be read."""
    (old, lost), (new, also_lost) = (_rows(store) for store in stores)
    warnings = []
    for folder, own, other in ((names[0], old, new), (names[1], new, old)):
        absent = [" on ".join(key) for key in own if key not in other]
        warnings += [f"only in {folder}: {name}" for name in absent]
    return [(key, old[key], row) for key, row in new.items() if key in old], warnings, [*lost, *also_lost]


def _of_one_folder(names: Sequence[str], store: Store) -> tuple[list[Named], list[str], list[LeftOut]]:
    """The same of two methods, on the benchmarks that both were run on."""
    records, left_out = read_records(store)
    left_out = _of_methods(names, left_out)
    old, new = (_of_method(name, records, left_out) for name in names)
    label = f"{names[1]} - {names[0]}"
    return [((label, column), old[column], row) for column, row in new.items() if column in old], [], left_out


def _comparable(found: Sequence[Named]) -> tuple[list[Named], list[str]]:
    """Those on the same images, and warnings of the others and of unlike precisions."""
    others = "other images, weights or limits on the two sides, not compared"
    pairs = [(name, old, new) for name, old, new in found if not _differ(old, new)]
    warnings = [f"{' on '.join(name)}: {others}" for name, old, new in found if _differ(old, new)]
    for name, old, new in pairs:
        if old.ran and new.ran and old.spec.precision != new.spec.precision:
            warnings.append(f"{' on '.join(name)}: {old.spec.precision} against {new.spec.precision}")
    return pairs, warnings


def _unread(answers: Sequence[Answers]) -> list[LeftOut]:
    """Predictions that could not be read or believed, each once."""
    return list({found.path: found for each in answers for found in each.left_out}.values())


def _differ(old: Row, new: Row) -> bool:
    return old.spec.benchmark_id() != new.spec.benchmark_id()


def _judge(
    compared: Sequence[tuple[tuple, Comparison]], warnings: list[str], level: float, left_out: list[LeftOut]
) -> Versus:
    tested = [found.p for _, found in compared if found.p is not None]
    adjusted = iter(significance.holm(tested))
    differences, worse = [], []
    for (row, column), found in compared:
        made = Difference.of(row, column, "Acc. ↑", found)
        made.p = None if found.p is None else next(adjusted)
        differences.append(made)
        significant = made.p is not None and made.p < significance.LEVEL
        below_zero = made.interval is not None and made.interval[1] < 0
        if found.mean < 0 and (significant or below_zero):
            worse.append(f"{row} on {column}")
    return Versus(differences, worse, warnings, level, left_out)


def _rows(store: Store) -> tuple[dict[tuple[str, str], Row], list[LeftOut]]:
    """(label, benchmark) -> row.

    Raises InputError where one label has several configurations, which could be paired wrongly.
    """
    records, left_out = read_records(store)
    found: dict[tuple[str, str], Row] = {}
    for benchmark in group(records):
        for row in benchmark.rows:
            key = (row.spec.label, benchmark.name)
            if key in found:
                configurations = f"{key[0]} has several configurations on {key[1]}"
                raise InputError(f"{store.root}: {configurations}; compare folders that hold one of each")
            found[key] = row
    return found, left_out


def _named(text: str) -> tuple[str, dict, dict[str, int]]:
    """ "nsp2[eta=1]@2" -> method, options and {"method_version": 2}.

    "@core2", or both with a comma, names a core version. Raises InputError.
    """
    name, at, named = text.partition("@")
    versions = {}
    for part in named.split(",") if at else ():
        key, digits = ("core_version", part[4:]) if part.startswith("core") else ("method_version", part)
        if (number := whole_number(digits)) is None:
            expected = "expected a version number after @, such as nsp2@2, or that of the core, nsp2@core2"
            raise InputError(f"{text!r}: {expected}")
        versions[key] = number
    return *selector(name), versions


def _of_methods(names: Sequence[str], left_out: Sequence[LeftOut]) -> list[LeftOut]:
    """Those that runs of these methods may be, as far as anything is known of them."""
    wanted = [_named(name) for name in names]
    found = []
    for each in left_out:
        method = each.folder.rpartition("-")[0]
        if each.lacking and any(
            configured(each.spec, *rest[:2]) if each.spec else rest[0] == method for rest in wanted
        ):
            found.append(each)
    return found


def _of_method(text: str, records: Sequence[RunRecord], left_out: Sequence[LeftOut]) -> dict[str, Row]:
    """Benchmark -> row of a method such as "nsp2[eta=1]@2", where @2 is its version."""
    method, options, versions = _named(text)
    of_method = [record for record in records if configured(record.spec, method, options)]
    fitting = [record for record in of_method if _is_version(record.spec, versions)]
    if not fitting:
        require_none(left_out)
        if of_method and "core_version" in versions:
            specs = [record.spec for record in of_method]
            instead = sorted({f"{method}@{spec.method_version},core{spec.core_version}" for spec in specs})
        else:
            name, version = text.partition("@")[0], str(versions.get("method_version", ""))
            instead = selectors(name, [record.spec for record in records], version=version)
        told = f"; {sentence(instead)}" if instead else ""
        listing = "`cl-bench ls runs` lists all"
        raise InputError(f"there is no run of {text} here, nor is it a folder{told} ({listing})")
    rows: dict[str, Row] = {}
    for benchmark in group(fitting):
        if len(benchmark.rows) > 1 or benchmark.name in rows:
            cores = sorted({row.spec.core_version for row in benchmark.rows})
            core = f", its core version, such as {method}@core{cores[0]}" if len(cores) > 1 else ""
            advice = f"name its version, such as {method}@1{core}, or its options"
            raise InputError(f"{text} has several configurations on {benchmark.name}; {advice}")
        rows[benchmark.name] = benchmark.rows[0]
    return rows


def _is_version(spec: RunSpec, versions: dict[str, int]) -> bool:
    return all(getattr(spec, key) == version for key, version in versions.items())
