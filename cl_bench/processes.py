"""One run in a process of its own, which outlives no orchestrator: it stops after its task when that is gone."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import cl_bench
from cl_bench.errors import InputError
from cl_bench.places import Place
from cl_bench.record import RunSpec
from cl_bench.store import Store, write_spec
from cl_bench.watch import Watch

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
        last = self.said[-1].removeprefix("error: ") if self.said else f"the process ended with code {self.code}"
        return f"{last} (log: {self.log})"


def carry_out(spec: RunSpec, store: Store, place: Place, options: Sequence[str], watch: Watch) -> Ended:
    """Run `run-one` for the specification; everything it prints goes to the run's log. Raises InputError when it cannot be started."""
    folder = store.folder(spec)
    log = folder / "log.txt"
    command = [sys.executable, "-m", "cl_bench", "run-one"]
    threads = str(place.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1", **_same_code()}
    try:
        path = write_spec(spec, folder)
        (folder / "progress.json").unlink(missing_ok=True)
        arguments = [str(path), "--device", place.device, "--threads", threads, "--results", str(store.root), "--parent", str(os.getpid())]
        with open(log, "ab") as output:
            start = output.seek(0, os.SEEK_END)
            process = subprocess.Popen(
                [*command, *arguments, "--no-wait", *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the orchestrator alone
            )
    except OSError as error:
        raise InputError(f"cannot start: {error}") from error
    if place.cores is not None and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # it has ended already, or the cores are no longer ours
            os.sched_setaffinity(process.pid, place.cores)
    code = watch.follow(spec, folder / "progress.json", process)
    return Ended(code, log.read_bytes()[start:].decode(errors="replace").strip().splitlines(), log)


def _same_code() -> dict[str, str]:
    """Environment that makes a child import the package this process runs, whatever lies in the current folder."""
    folders = [str(Path(cl_bench.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH")]
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, folders))}
