"""Two results folders, or two methods of one, against each other: paired differences, and whether any is a regression."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cl_bench.config import whole_number
from cl_bench.errors import InputError
from cl_bench.escape import markdown
from cl_bench.record import RunRecord
from cl_bench.report import significance
from cl_bench.report.layout import selector
from cl_bench.report.nearest import selectors, sentence
from cl_bench.report.select import Conventions, Row, configured, group
from cl_bench.report.significance import Answers, Comparison
from cl_bench.report.table import Difference
from cl_bench.report.write import read_records
from cl_bench.store import Store


@dataclass(frozen=True)
class Versus:
    """What B is better or worse by than A: the lines of a table, and names of rows that are significantly worse."""

    differences: list[Difference]
    worse: list[str]
    warnings: list[str]
    level: float  # of the intervals, all rows together at 95 %

    def markdown(self) -> str:
        """The table of differences, B - A."""
        head = ("Row", "Benchmark", "Metric", "Difference", f"{100 * (1 - self.level):.4g} % interval", "p (Holm)")
        lines = ["| " + " | ".join(head) + " |", "|:--|:--|:--|--:|--:|--:|"]
        for found in self.differences:
            words = [markdown(found.row), markdown(found.column), found.metric, f"{found.mean:+.2f} (n = {found.pairs})", found.span, found.verdict]
            lines.append("| " + " | ".join(words) + " |")
        return "\n".join(lines)


def versus(a: str, b: str, results: Path, conventions: Conventions) -> Versus:
    """B - A. Both are results folders, whose rows of one label are paired, or both are methods, such as nsp2@1 and nsp2@2, in one folder.

    Worse is a row whose accuracy is lower by a Holm-adjusted p below 0.05, or by an interval over test images, at 95 % for all rows together, that
    lies below zero. Raises InputError when nothing can be paired.
    """
    folders = [Path(name) for name in (a, b)]
    if all(folder.is_dir() for folder in folders):
        stores = [Store(folder) for folder in folders]
        sides = [_rows(store) for store in stores]
        pairs = [(name, sides[0][0][name], row) for name, row in sides[1][0].items() if name in sides[0][0]]
        warnings = [*sides[0][1], *sides[1][1]]
        for folder, own, other in ((a, *sides), (b, *sides[::-1])):
            warnings += [f"only in {folder}: {label} on {benchmark}" for label, benchmark in own[0] if (label, benchmark) not in other[0]]
    else:
        store = Store(results)
        stores = [store, store]
        records, warnings = read_records(store)
        chosen = [_of_method(name, records, conventions) for name in (a, b)]
        pairs = [((f"{b} - {a}", column), chosen[0][column], row) for column, row in chosen[1].items() if column in chosen[0]]
    warnings += [
        f"{' on '.join(name)}: other images, weights or limits on the two sides, not compared" for name, old, new in pairs if _differ(old, new)
    ]
    pairs = [(name, old, new) for name, old, new in pairs if not _differ(old, new)]
    warnings += [
        f"{' on '.join(name)}: {old.spec.precision} against {new.spec.precision}"
        for name, old, new in pairs
        if old.ran and new.ran and old.spec.precision != new.spec.precision
    ]
    answers, level = (Answers(stores[1]), Answers(stores[0])), significance.LEVEL / max(1, len(pairs))
    compared = [(name, significance.compare(new, old, "accuracy", conventions, answers, level)) for name, old, new in pairs]
    for (name, found), (_, old, new) in zip(compared, pairs, strict=True):
        count = 0 if found is None else len(found.differences)
        if count < max(len(old.finished), len(new.finished)):
            warnings.append(
                f"{' on '.join(name)}: {count} pairs of {len(old.finished)} and {len(new.finished)} finished runs; the others have no partner"
            )
    compared = [(name, found) for name, found in compared if found]
    if not compared:
        raise InputError(f"no run of {a} and {b} has the same benchmark, class order and seeds; nothing can be compared")
    return _judge(compared, warnings, level)


def _differ(old: Row, new: Row) -> bool:
    return old.spec.benchmark_id() != new.spec.benchmark_id()


def _judge(compared: Sequence[tuple[tuple, Comparison]], warnings: list[str], level: float) -> Versus:
    tested = [found.p for _, found in compared if found.p is not None]
    adjusted = iter(significance.holm(tested))
    differences, worse = [], []
    for (row, column), found in compared:
        made = Difference.of(row, column, "Acc. ↑", found)
        made.p = None if found.p is None else next(adjusted)
        differences.append(made)
        if found.mean < 0 and ((made.p is not None and made.p < significance.LEVEL) or (made.interval is not None and made.interval[1] < 0)):
            worse.append(f"{row} on {column}")
    return Versus(differences, worse, warnings, level)


def _rows(store: Store) -> tuple[dict[tuple[str, str], Row], list[str]]:
    """(label, benchmark) -> row. Raises InputError where one label has several configurations, which could be paired wrongly."""
    records, warnings = read_records(store)
    found: dict[tuple[str, str], Row] = {}
    for benchmark in group(records):
        for row in benchmark.rows:
            key = (row.spec.label, benchmark.name)
            if key in found:
                raise InputError(f"{store.root}: {key[0]} has several configurations on {key[1]}; compare folders that hold one of each")
            found[key] = row
    return found, warnings


def _of_method(text: str, records: Sequence[RunRecord], conventions: Conventions) -> dict[str, Row]:
    """Benchmark -> row of a method such as "nsp2[eta=1]@2", where @2 is its version."""
    name, _, version = text.partition("@")
    if version and whole_number(version) is None:
        raise InputError(f"{text!r}: expected a version number after @, such as nsp2@2")
    method, options = selector(name)
    fitting = [
        record for record in records
        if configured(record.spec, method, options) and version in ("", str(record.spec.method_version))
    ]  # fmt: skip
    if not fitting:
        instead = sentence(selectors(name, [record.spec for record in records], version=version))
        raise InputError(f"there is no run of {text} here, nor is it a folder{'; ' * bool(instead)}{instead} (`cl-bench ls runs` lists all)")
    rows: dict[str, Row] = {}
    for benchmark in group(fitting):
        if len(benchmark.rows) > 1 or benchmark.name in rows:
            raise InputError(f"{text} has several configurations on {benchmark.name}; name its version, such as {method}@1, or its options")
        rows[benchmark.name] = benchmark.rows[0]
    return rows
