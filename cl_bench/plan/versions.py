"""Runs that are not there as they are asked for, but equal ones that another version or precision computed."""

from collections import Counter
from collections.abc import Sequence

from cl_bench.records.index import Summary, summaries
from cl_bench.records.record import CORE_VERSIONS, VERSIONS, RunRecord, RunSpec
from cl_bench.records.store import Store
from cl_bench.registry import method_class


def hints(specs: Sequence[RunSpec], store: Store, any_precision: bool) -> list[str]:
    """A line for each version under which equal runs of those that are missing are there, with how to report them; `any_precision` says whether
    runs in another precision than theirs count as equal. Raises as `summaries`."""
    there = summaries(store)
    known, by_twin = {summary.folder for summary in there}, {}
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
        if (
            isinstance(record, RunRecord)
            and _same_options(spec, record.spec)
            and (any_precision or record.spec.precision == spec.precision)
        ):
            fitting.append(record.spec)
    return max(
        fitting,
        key=lambda found: (found.precision == spec.precision, found.core_version, found.method_version),
        default=None,
    )


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
KEYS = {
    "core_version": "core_version",
    "method_version": "version",
    "precision": "precision",
}  # as `where` in a report calls them


def _line(count: int, differing: tuple) -> str:
    of_these = f"{count} of these runs {'is' if count == 1 else 'are'} there"
    if len(differing) == 1 and differing[0][0] == "precision":
        _, there, asked = differing[0]
        return f"{of_these} in {there}, which is another run than in {asked}; --set precision={there} goes on with them"
    told = [
        f"in {there}" if name == "precision" else f"under {WORDS[name]} {there} (now {asked})"
        for name, there, asked in differing
    ]
    where = ", ".join(
        f'{KEYS[name]} = "{there}"' if name == "precision" else f"{KEYS[name]} = {there}"
        for name, there, _ in differing
    )
    return f"{of_these} {' and '.join(told)}, finished or begun; `cl-bench report` shows them, a row of a report file takes where = {{ {where} }}"
