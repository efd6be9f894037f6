"""Finds runs that are there in another version or precision than they are asked for."""

from collections import Counter
from collections.abc import Sequence

from cl_bench.plugins.registry import method_class
from cl_bench.records.index import Summary, summaries
from cl_bench.records.record import RunRecord
from cl_bench.records.spec import CORE_VERSIONS, VERSIONS, RunSpec
from cl_bench.records.store import Store


def hints(specs: Sequence[RunSpec], store: Store, any_precision: bool) -> list[str]:
    """A line for each version under which equal runs of those that are missing are there: how to report them.

    `any_precision` says whether runs in another precision than theirs count as equal. Raises as `summaries`.
    """
    there = summaries(store)
    known = {summary.folder for summary in there}
    by_twin: dict[str, list[Summary]] = {}
    for summary in there:
        if summary.twin:
            by_twin.setdefault(summary.twin, []).append(summary)
    found: Counter[tuple] = Counter()
    for spec in specs:
        if store.folder(spec).name not in known:
            equal = _equal(spec, by_twin.get(spec.twin_id(), ()), store, any_precision)
            found.update([_differing(spec, equal)] if equal else ())
    return [_line(count, differing) for differing, count in found.items()]


def _equal(spec: RunSpec, twins: Sequence[Summary], store: Store, any_precision: bool) -> RunSpec | None:
    """The newest of the runs that differ from one in versions alone, of its own precision if there is one."""
    fitting = []
    for twin in twins:
        record = store.in_folder(store.root / "runs" / twin.folder)
        if not isinstance(record, RunRecord) or not _same_options(spec, record.spec):
            continue
        if any_precision or record.spec.precision == spec.precision:
            fitting.append(record.spec)

    def newer(found: RunSpec) -> tuple:
        return found.precision == spec.precision, found.core_version, found.method_version

    return max(fitting, key=newer, default=None)


def _same_options(one: RunSpec, other: RunSpec) -> bool:
    """Whether all options agree; one that only the newer of two versions has counts with its default."""
    defaults = method_class(one.method).Config.model_construct().model_dump(mode="json")
    return {**defaults, **one.options} == {**defaults, **other.options}


def _differing(spec: RunSpec, equal: RunSpec) -> tuple:
    """What tells two runs apart: (name, value that is there, value asked for) each."""
    differing = [(name, getattr(equal, name), getattr(spec, name)) for name in VERSIONS]
    found = [each for each in differing if each[1] != each[2]]
    other_precision = found[-1][0] == "precision" and equal.core_version == CORE_VERSIONS[equal.precision]
    return tuple(each for each in found if not (other_precision and each[0] == "core_version"))


WORDS = {"core_version": "core version", "method_version": "method version"}
# as `where` in a report calls them
KEYS = {"core_version": "core_version", "method_version": "version", "precision": "precision"}


def _line(count: int, differing: tuple) -> str:
    of_these = f"{count} of these runs {'is' if count == 1 else 'are'} there"
    if len(differing) == 1 and differing[0][0] == "precision":
        _, there, asked = differing[0]
        other = f"{of_these} in {there}, which is another run than in {asked}"
        return f"{other}; --set precision={there} goes on with them"
    told, where = [], []
    for name, there, asked in differing:
        if name == "precision":
            told.append(f"in {there}")
            where.append(f'{KEYS[name]} = "{there}"')
        else:
            told.append(f"under {WORDS[name]} {there} (now {asked})")
            where.append(f"{KEYS[name]} = {there}")
    row = f"a row of a report file takes where = {{ {', '.join(where)} }}"
    return f"{of_these} {' and '.join(told)}, finished or begun; `cl-bench report` shows them, {row}"
