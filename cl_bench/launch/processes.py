"""One run in a process of its own, which outlives no orchestrator: it stops after its task when that is gone."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cl_bench.devices import Place
from cl_bench.errors import InputError
from cl_bench.launch.monitor import Watch
from cl_bench.launch.warm_processes import Starter
from cl_bench.records.record import RunSpec
from cl_bench.records.store import Store, write_spec

DONE, FAILED, UNUSABLE, OUT_OF_MEMORY, CANNOT_WRITE, BUSY, STOPPED = 0, 1, 2, 3, 4, 75, 130
"""Exit codes of `run-one`."""


@dataclass(frozen=True)
class Ended:
    """How the process ended and what it printed."""

    code: int
    said: list[str]
    log: Path

    @property
    def reason(self) -> str:
        """Why it failed, as its last line says."""
        last = (
            self.said[-1].removeprefix("error: ") if self.said else f"the process ended with code {self.code}"
        )
        return f"{last} (log: {self.log})"


def carry_out(
    spec: RunSpec,
    store: Store,
    place: Place,
    options: Sequence[str],
    watch: Watch,
    starter: Starter,
    more: bool,
) -> Ended:
    """Run `run-one` for the specification in a process of the starter's, which is told whether more runs are to come; everything it prints goes
    to the run's log. Raises InputError when it cannot be started."""
    folder = store.folder(spec)
    log = folder / "log.txt"
    try:
        path = write_spec(spec, folder)
        (folder / "progress.json").unlink(missing_ok=True)
        arguments = [
            str(path.absolute()),
            "--device",
            place.device,
            "--threads",
            str(place.threads),
            "--results",
            str(store.root.absolute()),
        ]
        log.touch()
        start = log.stat().st_size
        waiting = starter.start(place.threads, more)
    except PermissionError as error:  # this run's folder alone: the results folder can be written
        return Ended(
            FAILED,
            [
                f"cannot write {error.filename or folder}: {error.strerror}; the folder of this run belongs to someone else"
            ],
            log,
        )
    except OSError as error:
        raise InputError(f"cannot start: {error}") from error
    if place.cores is not None and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # it has ended already, or the cores are no longer ours
            os.sched_setaffinity(waiting.process.pid, place.cores)
    waiting.tell([*arguments, "--parent", str(os.getpid()), "--no-wait", *options], log)
    code = watch.follow(spec, folder / "progress.json", waiting.process)
    said = waiting.early() + log.read_bytes()[start:]
    return Ended(code, said.decode(errors="replace").strip().splitlines(), log)
