"""What a run sends to its trackers, and that none of them can fail it."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path

from cl_bench.errors import Stopped, TimeIsUp
from cl_bench.records.metrics import accuracy_curve, accuracy_matrix
from cl_bench.records.record import RunRecord
from cl_bench.records.run_files import TRACKED, TRACKERS, Say
from cl_bench.records.store import Store
from cl_bench.text.escape import one_line
from cl_bench.trackers import named
from cl_bench.trackers.configuration import tracked
from cl_bench.trackers.contract import At, Status, Tracker


class Tracking:
    """The trackers of a run.

    Steps count passes and evaluated tasks from the run's beginning. Each is sent once to each tracker, also
    where a task is learned again after an interruption; what was learned while nobody was sent it (a first
    task that another run trained, tasks before the tracker was asked for) is sent from the record.
    """

    def __init__(
        self, names: Sequence[str], record: RunRecord, store: Store, say: Say, moved: bool = False
    ) -> None:
        self._say, self._state = say, store.folder(record.spec) / TRACKED
        self._record, self._passed = record, 0
        self._sent = _sent(self._state) if names else {}
        self._live: dict[str, Tracker] = {}
        self.seconds = 0.0  # that trackers took: no part of what learning took
        for name in names:
            self._begin(name, store.root / TRACKERS, moved)
        for count in range(len(record.tasks) if self._live else 0):
            self.learned(record.model_copy(update={"tasks": record.tasks[: count + 1]}))

    def passed(self, done: int, values: Mapping[str, float]) -> None:
        """`done` passes of the task in progress are over; the last ones had these values."""
        for count in range(self._passed + 1, done + 1):
            self._log(values, self._pass(self._record, count))
        self._passed = max(self._passed, done)

    def learned(self, record: RunRecord) -> None:
        """The last task of the record is learned and evaluated."""
        if not self._live:
            return
        task = record.tasks[-1]
        before = record.model_copy(update={"tasks": record.tasks[:-1]})
        for count, loss in enumerate(task.pass_losses, 1):
            self._log({"loss": loss}, self._pass(before, count))
        rates = accuracy_matrix(record.correct, record.test_sizes)[-1]
        mean = accuracy_curve(record.correct, record.test_sizes)[-1]
        each = {f"accuracy/task_{j:02d}": rate for j, rate in enumerate(rates, 1)}
        step = self._pass(before, len(task.pass_losses)).step + 1
        self._log({"accuracy/mean": mean, **each}, At("task", len(rates), step))
        self._record, self._passed = record, 0
        if len(record.tasks) == record.spec.num_learned:
            self._picture(record, At("task", len(rates), step + 1))

    def end(self, status: Status) -> None:
        """Nothing more comes."""
        for name, tracker in list(self._live.items()):
            self._guarded(name, partial(tracker.end, status))
        self._live.clear()

    def _begin(self, name: str, folder: Path, moved: bool) -> None:
        def begin() -> None:
            self._live[name] = tracker = named.find(name)()
            tracker.begin(tracked(self._record, folder, name not in self._sent, moved))

        self._guarded(name, begin)

    @staticmethod
    def _pass(before: RunRecord, count: int) -> At:
        """Where pass `count` of the task behind these belongs."""
        passes = sum(len(task.pass_losses) for task in before.tasks) + count
        return At("pass", passes, passes + len(before.tasks))

    def _log(self, values: Mapping[str, float], at: At) -> None:
        self._send(at, lambda tracker: tracker.log(values, at))

    def _picture(self, record: RunRecord, at: At) -> None:
        from cl_bench.trackers import picture

        drawn = cache(lambda: picture.matrix(record))
        self._send(at, lambda tracker: tracker.image("accuracy_matrix", drawn(), at))

    def _send(self, at: At, send: Callable[[Tracker], None]) -> None:
        """Send what belongs there to those who do not have it yet."""
        for name, tracker in list(self._live.items()):
            if at.step > self._sent.get(name, 0):
                self._guarded(name, partial(send, tracker))
                if name in self._live:
                    self._sent[name] = at.step
                    self._keep()

    def _guarded(self, name: str, act: Callable[[], None]) -> None:
        """Let a tracker act; one that fails is not asked again."""
        start = time.perf_counter()
        try:
            act()
        except (Exception, SystemExit) as error:  # another package, and often a network, behind it
            tracker = self._live.pop(name, None)
            why = one_line(f"{type(error).__name__}: {error}")[:300]
            self._say(f"warning: the tracker {name} failed, nothing more of this run is sent to it: {why}")
            if tracker is not None:
                with suppress(Exception, SystemExit):
                    tracker.end("failed")
        finally:
            self.seconds += time.perf_counter() - start

    def _keep(self) -> None:
        """Remember what was sent; losing it sends the same again."""
        beside = self._state.with_suffix(".partial")
        with suppress(OSError):
            beside.write_text(json.dumps(self._sent), encoding="utf-8")
            os.replace(beside, self._state)


def pass_values(loss: float, images_per_second: float, rates: Sequence[float]) -> dict[str, float]:
    """What is sent of a pass; of groups of parameters that learn alike, one rate."""
    each = rates[:1] if len(set(rates)) == 1 else rates
    named_rates = {f"learning_rate_{k}" if k > 1 else "learning_rate": rate for k, rate in enumerate(each, 1)}
    return {"loss": loss, "images_per_second": images_per_second, **named_rates}


def _sent(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    steps = found.items() if isinstance(found, dict) else ()
    return {name: step for name, step in steps if isinstance(step, int)}


@contextmanager
def following(
    names: Sequence[str], record: RunRecord, store: Store, say: Say, moved: bool = False
) -> Iterator[Tracking]:
    """The trackers of a run while the body carries it out, told how that ended."""
    tracking = Tracking(names, record, store, say, moved)
    status: Status = "failed"
    try:
        yield tracking
        status = "finished"
    except (Stopped, TimeIsUp, KeyboardInterrupt):
        status = "stopped"
        raise
    finally:
        tracking.end(status)
