"""Two results folders, or two methods of one, against each other: paired differences, and whether any is a regression."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cl_bench.config import whole_number
from cl_bench.errors import InputError
from cl_bench.records.metrics import Conventions
from cl_bench.records.record import RunRecord
from cl_bench.records.store import LeftOut, Store
from cl_bench.report import significance
from cl_bench.report.nearest import selectors, sentence
from cl_bench.report.rows import Row, group
from cl_bench.report.settings import configured
from cl_bench.report.significance import Answers, Comparison
from cl_bench.report.spec import selector
from cl_bench.report.table import Difference
from cl_bench.report.write import read_records, require_none
from cl_bench.text.escape import markdown


@dataclass(frozen=True)
class Versus:
    """What B is better or worse by than A: the lines of a table, and names of rows that are significantly worse."""

    differences: list[Difference]
    worse: list[str]
    warnings: list[str]
    level: float  # of the intervals, all rows together at 95 %
    left_out: list[LeftOut] = field(
        default_factory=list
    )  # what the rows lack, or may lack, since it could not be read or believed

    def markdown(self) -> str:
        """The table of differences, B - A."""
        head = (
            "Row",
            "Benchmark",
            "Metric",
            "Difference",
            f"{100 * (1 - self.level):.4g} % interval",
            "p (Holm)",
        )
        lines = ["| " + " | ".join(head) + " |", "|:--|:--|:--|--:|--:|--:|"]
        for found in self.differences:
            words = [
                markdown(found.row),
                markdown(found.column),
                found.metric,
                f"{found.mean:+.2f} (n = {found.pairs})",
                found.span,
                found.verdict,
            ]
            lines.append("| " + " | ".join(words) + " |")
        return "\n".join(lines)


def versus(a: str, b: str, results: Path, conventions: Conventions) -> Versus:
    """B - A. Both are results folders, whose rows of one label are paired, or both are methods, such as nsp2@1 and nsp2@2, in one folder.

    Worse is a row whose accuracy is lower by a Holm-adjusted p below 0.05, or by an interval over test images, at 95 % for all rows together, that
    lies below zero. Raises InputError when nothing can be paired.
    """
    folders = [Path(name) for name in (a, b)]
    if all(os.path.isdir(folder) for folder in folders):
        stores = [Store(folder) for folder in folders]
        sides = [_rows(store) for store in stores]
        pairs = [(name, sides[0][0][name], row) for name, row in sides[1][0].items() if name in sides[0][0]]
        warnings, left_out = [], [*sides[0][1], *sides[1][1]]
        for folder, own, other in ((a, *sides), (b, *sides[::-1])):
            warnings += [
                f"only in {folder}: {label} on {benchmark}"
                for label, benchmark in own[0]
                if (label, benchmark) not in other[0]
            ]
    else:
        store = Store(results)
        stores = [store, store]
        records, left_out = read_records(store)
        left_out, warnings = _of_methods((a, b), left_out), []
        chosen = [_of_method(name, records, left_out) for name in (a, b)]
        pairs = [
            ((f"{b} - {a}", column), chosen[0][column], row)
            for column, row in chosen[1].items()
            if column in chosen[0]
        ]
    warnings += [
        f"{' on '.join(name)}: other images, weights or limits on the two sides, not compared"
        for name, old, new in pairs
        if _differ(old, new)
    ]
    pairs = [(name, old, new) for name, old, new in pairs if not _differ(old, new)]
    warnings += [
        f"{' on '.join(name)}: {old.spec.precision} against {new.spec.precision}"
        for name, old, new in pairs
        if old.ran and new.ran and old.spec.precision != new.spec.precision
    ]
    answers, level = (Answers(stores[1]), Answers(stores[0])), significance.LEVEL / max(1, len(pairs))
    compared = [
        (name, significance.compare(new, old, "accuracy", conventions, answers, level))
        for name, old, new in pairs
    ]
    for (name, found), (_, old, new) in zip(compared, pairs, strict=True):
        count = 0 if found is None else len(found.differences)
        if count < max(len(old.finished), len(new.finished)):
            warnings.append(
                f"{' on '.join(name)}: {count} pairs of {len(old.finished)} and {len(new.finished)} finished runs; the others have no partner"
            )
    compared = [(name, found) for name, found in compared if found]
    if not compared:
        require_none(left_out)
        raise InputError(
            f"no run of {a} and {b} has the same benchmark, class order and seeds; nothing can be compared"
        )
    return _judge(compared, warnings, level, [*left_out, *_unread(answers)])


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
        if found.mean < 0 and (
            (made.p is not None and made.p < significance.LEVEL)
            or (made.interval is not None and made.interval[1] < 0)
        ):
            worse.append(f"{row} on {column}")
    return Versus(differences, worse, warnings, level, left_out)


def _rows(store: Store) -> tuple[dict[tuple[str, str], Row], list[LeftOut]]:
    """(label, benchmark) -> row. Raises InputError where one label has several configurations, which could be paired wrongly."""
    records, left_out = read_records(store)
    found: dict[tuple[str, str], Row] = {}
    for benchmark in group(records):
        for row in benchmark.rows:
            key = (row.spec.label, benchmark.name)
            if key in found:
                raise InputError(
                    f"{store.root}: {key[0]} has several configurations on {key[1]}; compare folders that hold one of each"
                )
            found[key] = row
    return found, left_out


def _named(text: str) -> tuple[str, dict, dict[str, int]]:
    """ "nsp2[eta=1]@2" -> method, options and {"method_version": 2}; "@core2", or both with a comma, names a core version. Raises InputError."""
    name, at, named = text.partition("@")
    versions = {}
    for part in named.split(",") if at else ():
        key, digits = ("core_version", part[4:]) if part.startswith("core") else ("method_version", part)
        if (number := whole_number(digits)) is None:
            raise InputError(
                f"{text!r}: expected a version number after @, such as nsp2@2, or that of the core, nsp2@core2"
            )
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
    fitting = [
        record
        for record in of_method
        if all(getattr(record.spec, key) == value for key, value in versions.items())
    ]
    if not fitting:
        require_none(left_out)
        if of_method and "core_version" in versions:
            instead = sentence(
                sorted(
                    {
                        f"{method}@{record.spec.method_version},core{record.spec.core_version}"
                        for record in of_method
                    }
                )
            )
        else:
            name, version = text.partition("@")[0], str(versions.get("method_version", ""))
            instead = sentence(selectors(name, [record.spec for record in records], version=version))
        raise InputError(
            f"there is no run of {text} here, nor is it a folder{'; ' * bool(instead)}{instead} (`cl-bench ls runs` lists all)"
        )
    rows: dict[str, Row] = {}
    for benchmark in group(fitting):
        if len(benchmark.rows) > 1 or benchmark.name in rows:
            cores = sorted({row.spec.core_version for row in benchmark.rows})
            core = f", its core version, such as {method}@core{cores[0]}" if len(cores) > 1 else ""
            raise InputError(
                f"{text} has several configurations on {benchmark.name}; name its version, such as {method}@1{core}, or its options"
            )
        rows[benchmark.name] = benchmark.rows[0]
    return rows
