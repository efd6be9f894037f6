"""The runs of a plan that are still to be started, handed out one at a time to whoever has a free place."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cl_bench.records import file_lock, first_task_files, locks
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import Store

LOOK_AGAIN_SECONDS = 0.5


@dataclass(frozen=True)
class Taken:
    """A run to carry out, and whether it shares its first task."""

    spec: RunSpec
    shares_first_task: bool


class RunQueue:
    """Keeps back runs that other processes work on, and those whose first task another run trains now."""

    def __init__(self, specs: Sequence[RunSpec], store: Store, first_tasks: Mapping[str, str | None]):
        """`first_tasks`: keys of `run.shared_first_task` by run id, None for a run that trains alone."""
        self._waiting, self._store, self._keys = list(specs), store, first_tasks
        common = Counter(key for spec in specs if (key := first_tasks.get(spec.run_id())))
        self._shared = {
            key for key, count in common.items() if count > 1 or first_task_files.is_stored(store, key)
        }
        self._training: dict[str, str] = {}  # key -> run id
        self._changed, self._stopped = threading.Condition(), False

    def take(self) -> Taken | None:
        """The next run, waiting for one if need be; None when all are taken or the queue was stopped."""
        with self._changed:
            while self._waiting and not self._stopped:
                for spec in self._waiting:
                    key = self._keys.get(spec.run_id())
                    key = key if key in self._shared else None
                    if key in self._training and not first_task_files.is_stored(self._store, key):
                        continue
                    if self._held(spec):
                        continue
                    self._waiting.remove(spec)
                    if key:
                        self._training.setdefault(key, spec.run_id())
                    return Taken(spec, key is not None)
                self._changed.wait(LOOK_AGAIN_SECONDS)
        return None

    def _held(self, spec: RunSpec) -> bool:
        """Whether another process works on the run; where nobody can know, the run finds out and says so."""
        try:
            return locks.is_held(self._store, spec)
        except file_lock.CannotLock:
            return False

    @property
    def waits(self) -> bool:
        """Whether there is a run to hand out, now or later."""
        return bool(self._waiting) and not self._stopped

    def give_back(self, spec: RunSpec) -> None:
        """Hand a run out again later."""
        self.finished(spec)
        with self._changed:
            self._waiting.append(spec)

    def finished(self, spec: RunSpec) -> None:
        """The run ended, well or not: whoever waited for its first task may train it now."""
        with self._changed:
            self._training = {
                key: run_id for key, run_id in self._training.items() if run_id != spec.run_id()
            }
            self._changed.notify_all()

    def stop(self) -> None:
        """Hand out nothing more."""
        self._stopped = True  # without the lock: a signal handler may call this
