"""What has become of a run, in one word that means the same wherever it is said."""

from collections.abc import Sequence
from dataclasses import dataclass

from cl_bench.errors import CannotRead
from cl_bench.records import file_lock, locks
from cl_bench.records.index import Summary
from cl_bench.records.record import RunRecord
from cl_bench.records.sealed import DamagedRecord
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import Store

STATES = {
    "finished": "every task is learned and evaluated, and the certificate made",
    "running": "a process is working on it",
    "stopped": "begun, and nobody is working on it: the same command goes on after the last finished task",
    "failed": "it ended with an error of its own, which its record names; "
    "the same command tries again after the last finished task",
    "damaged": "its record was read in full and is not what was written: "
    "the same command sets it aside and begins again",
    "unreadable": "its record is there and cannot be read, so that nothing is known of it: "
    "it is left as it is",
    "misplaced": "a whole record in a folder that has not its name: a copy, or one that was renamed",
    "missing": "never begun",
}


@dataclass(frozen=True)
class State:
    """One of `STATES`, the record where it can be believed, and why where the word alone does not say."""

    name: str
    record: RunRecord | None = None
    reason: str | None = None

    @property
    def tasks(self) -> int:
        """How many tasks are finished, as far as known."""
        return len(self.record.tasks) if self.record else 0

    @property
    def words(self) -> str:
        """Such as "stopped after 2", a number of tasks."""
        return f"{self.name} after {self.tasks}" if self.tasks and self.name != "finished" else self.name


def state_of(store: Store, spec: RunSpec) -> State:
    """The state of a run that is asked for."""
    try:
        record = store.load(spec)
    except DamagedRecord as error:
        return State("damaged", reason=str(error))
    except CannotRead as error:
        return State("unreadable", reason=str(error))
    if record and record.status == "done":
        return State("finished", record)
    held, doubt = _held(store, store.folder(spec).name)
    name = "running" if held else "missing" if record is None else _unfinished(record.status)
    return State(name, record, doubt or (record.failure if record and name != "running" else None))


def of_plan(specs: Sequence[RunSpec], store: Store) -> dict[str, State]:
    """The states of a plan's runs, by run id."""
    return {spec.run_id(): state_of(store, spec) for spec in specs}


def state_of_summary(store: Store, summary: Summary) -> tuple[str, str | None]:
    """The state of a run in a listing, and why where the word alone does not say."""
    if summary.status not in ("running", "failed"):
        return ("finished" if summary.status == "done" else summary.status), summary.failure
    held, doubt = _held(store, summary.folder)
    return ("running", None) if held else (_unfinished(summary.status), doubt or summary.failure)


def running(store: Store, records: Sequence[RunRecord]) -> set[str]:
    """The ids of those of the runs that a process works on; none where that cannot be known."""
    unfinished = [record.spec for record in records if record.status != "done"]
    return {spec.run_id() for spec in unfinished if _held(store, store.folder(spec).name)[0]}


def _unfinished(status: str) -> str:
    return "failed" if status == "failed" else "stopped"


def _held(store: Store, folder: str) -> tuple[bool, str | None]:
    """Whether a process works on the run, or why that cannot be known."""
    try:
        return locks.is_held_by_name(store, folder), None
    except file_lock.CannotLock as error:
        return False, f"whether a process works on it is not known ({error})"
