"""Which runs are done, running, failed or missing."""

from collections import Counter
from collections.abc import Sequence

from cl_bench import locks
from cl_bench.index import Summary, summaries
from cl_bench.record import RunSpec
from cl_bench.store import Store

STATES = ("running", "done", "stopped", "failed", "damaged", "missing")


def run_lines(store: Store) -> list[str]:
    """Every run in the results folder."""
    found = [(state_of(store, summary), summary) for summary in summaries(store)]
    return [*(_line(state, summary) for state, summary in found), *_totals(store, [state for state, _ in found])]


def plan_status_lines(specs: Sequence[RunSpec], store: Store) -> list[str]:
    """Every run of a plan, those that have never been started too."""
    known = {summary.run_id: summary for summary in summaries(store)}
    lines, states = [], []
    for spec in specs:
        summary = known.get(spec.run_id())
        if summary is None:
            held = locks.is_held(store, spec)
            summary = Summary("", spec.run_id(), "", 0, spec.num_learned, None, spec.label, spec.benchmark_name(), spec.seed_name(), None)
            state = "running" if held else "missing"
        else:
            state = state_of(store, summary)
        states.append(state)
        lines.append(_line(state, summary))
    return [*lines, *_totals(store, states)]


def state_of(store: Store, summary: Summary) -> str:
    """As its record says, but a run that nobody works on is not running."""
    if summary.status in ("done", "damaged"):
        return summary.status
    if locks.is_held_by_name(store, summary.folder):
        return "running"
    return "failed" if summary.status == "failed" else "stopped"


def _line(state: str, summary: Summary) -> str:
    accuracy = "–" if summary.accuracy is None else f"{summary.accuracy:.2%}"
    line = f"{state:<8} {summary.run_id}  {summary.tasks:>3}/{summary.of} tasks  {accuracy:>7}  {summary.label}  {summary.benchmark}"
    line += f"  seed {summary.seed}"
    return f"{line}: {summary.failure}" if state in ("failed", "damaged") and summary.failure else line


def _totals(store: Store, states: Sequence[str]) -> list[str]:
    counts = Counter(states)
    counted = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    return [f"{len(states)} runs: {counted}"] if states else [f"no runs in {store.root}"]
