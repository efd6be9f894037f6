"""One run in a process of its own, which stops after its task when the orchestrator is gone."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cl_bench.devices import Place
from cl_bench.errors import InputError
from cl_bench.launch.monitor import Follower
from cl_bench.launch.warm_processes import Starter
from cl_bench.records.spec import RunSpec
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
    monitor: Follower,
    starter: Starter,
    more: bool,
) -> Ended:
    """Run `run-one` for the specification in a process of the starter's; the run's log has what it prints.

    `more` says whether more runs are to come. Raises InputError when the process cannot be started.
    """
    folder = store.folder(spec)
    log = folder / "log.txt"
    try:
        path = write_spec(spec, folder)
        (folder / "progress.json").unlink(missing_ok=True)
        where = ["--device", place.device, "--threads", str(place.threads)]
        arguments = [str(path.absolute()), *where, "--results", str(store.root.absolute())]
        log.touch()
        start = log.stat().st_size
        warm = starter.start(place.threads, more)
    except PermissionError as error:  # this run's folder alone: the results folder can be written
        unwritable = f"cannot write {error.filename or folder}: {error.strerror}"
        return Ended(FAILED, [f"{unwritable}; the folder of this run belongs to someone else"], log)
    except OSError as error:
        raise InputError(f"cannot start: {error}") from error
    if place.cores is not None and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # it has ended already, or the cores are no longer ours
            os.sched_setaffinity(warm.process.pid, place.cores)
    warm.assign([*arguments, "--parent", str(os.getpid()), "--no-wait", *options], log)
    code = monitor.follow(spec, folder / "progress.json", warm.process)
    said = warm.early() + log.read_bytes()[start:]
    return Ended(code, said.decode(errors="replace").strip().splitlines(), log)
