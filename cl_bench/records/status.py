"""Which runs are finished, running, stopped, failed or missing, as lines of text."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cl_bench.records.index import Summary, summaries
from cl_bench.records.spec import RunSpec
from cl_bench.records.states import STATES, state_of, state_of_summary
from cl_bench.records.store import Store


@dataclass(frozen=True)
class Listing:
    """A line for every run and the totals, and how many could not be read."""

    lines: list[str]
    unreadable: int
    runs: list[dict]  # the same as JSON values


def of_folder(store: Store) -> Listing:
    """Every run in the results folder."""
    found = [(*state_of_summary(store, summary), summary) for summary in summaries(store)]
    return _listing(store, found)


def of_plan(specs: Sequence[RunSpec], store: Store) -> Listing:
    """Every run of a plan, those that have never been started too."""
    known, found = {summary.folder: summary for summary in summaries(store)}, []
    for spec in specs:
        summary = known.get(store.folder(spec).name)
        if summary is None:
            state = state_of(store, spec)
            named = (spec.label, spec.benchmark_name(), spec.seed_name())
            summary = Summary("", spec.run_id(), "", 0, spec.num_learned, None, *named, None)
            found.append((state.name, state.reason, summary))
        else:
            found.append((*state_of_summary(store, summary), summary))
    return _listing(store, found)


def _listing(store: Store, found: Sequence[tuple[str, str | None, Summary]]) -> Listing:
    counts = Counter(state for state, _, _ in found)
    counted = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    total = f"{len(found)} runs: {counted}" if found else f"no runs in {store.root}"
    lines = [*(_line(*each) for each in found), total]
    return Listing(lines, counts["unreadable"], [_values(*each) for each in found])


def _values(state: str, reason: str | None, summary: Summary) -> dict:
    names = ("run_id", "label", "benchmark", "seed", "tasks", "of", "accuracy")
    return {"state": state, "reason": reason, **{name: getattr(summary, name) for name in names}}


def _line(state: str, reason: str | None, summary: Summary) -> str:
    accuracy = "–" if summary.accuracy is None else f"{summary.accuracy:.2%}"
    line = f"{state:<10} {summary.run_id}  {summary.tasks:>3}/{summary.of or '?'} tasks  {accuracy:>7}"
    line += f"  {summary.label}  {summary.benchmark}  seed {summary.seed}"
    return f"{line}: {reason}" if reason and state not in ("finished", "running") else line
