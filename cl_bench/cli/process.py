"""The commands that carry out one run in a process of its own; `run` starts such processes."""

import os
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from cl_bench.cli import options as opt
from cl_bench.cli.app import app, exit_with
from cl_bench.errors import Busy, CannotWrite, OutOfMemory, Stopped
from cl_bench.text import output

Optional = typer.Option


@app.command("run-one")
def run_one(
    spec: Annotated[Path, typer.Argument(help="spec.json of a run, as `cl-bench run` writes it")],
    device: opt.Device = "cpu",
    threads: Annotated[int, Optional(min=1, help="processor threads")] = 1,
    results: opt.Results = Path("results"),
    compiled: opt.Compile = None,
    micro_batch: Annotated[
        int | None, Optional(min=1, help="images at a time; a batch's gradients are summed")
    ] = None,
    time_limit: Annotated[float | None, Optional(min=0, help="seconds")] = None,
    pause_after: Annotated[float | None, Optional(min=0, help="seconds, then stop after a task")] = None,
    share_first_task: Annotated[
        bool, Optional("--share-first-task", help="take the first task from, or leave it to, other runs")
    ] = False,
    wait: Annotated[bool, Optional(help="for another process that works on the run")] = True,
    track: opt.Track = None,
    parent: Annotated[int | None, Optional(help="process without which to stop after a task")] = None,
) -> None:
    """Run one specification in this process; `run` starts one of these per run.

    Stops after the task in progress at the first signal.
    """
    from cl_bench import devices
    from cl_bench.launch import processes
    from cl_bench.records.store import Store, read_spec
    from cl_bench.run import runner
    from cl_bench.run.learning import Conditions
    from cl_bench.run.progress import ProgressFile
    from cl_bench.trackers.named import chosen

    stopping = _first_signal()
    resolved = read_spec(spec)
    store = Store(results)
    first, *helpers = devices.devices(device) if "," in device else devices.devices(device)[:1]
    conditions = Conditions(
        device=first,
        helpers=tuple(helpers),
        threads=threads,
        compiled=compiled,
        micro_batch=micro_batch,
        seconds=time_limit,
        pause_after=pause_after,
        share_first_task=share_first_task,
        stop=lambda: stopping.is_set() or (parent is not None and os.getppid() != parent),
        wait=wait,
        track=chosen(track),
        moved=pause_after is not None,  # a part of a run, for a cluster
    )
    progress = ProgressFile(store.folder(resolved) / "progress.json", resolved)
    try:
        runner.run(resolved, store, conditions, output.say, progress)
    except OutOfMemory as error:
        exit_with(str(error), processes.OUT_OF_MEMORY)
    except CannotWrite as error:
        exit_with(str(error), processes.CANNOT_WRITE)
    except Busy as error:
        exit_with(str(error), processes.BUSY)
    except Stopped as error:
        exit_with(str(error), processes.STOPPED)


@app.command("warm-run", hidden=True)
def warm_run(channel: int, terminal: int) -> None:
    """Import what a run needs, answer what another process asks through the channel, then do its run.

    Its arguments are those of a command; what the command prints goes to the log that comes with them.
    """
    import gc
    from multiprocessing.connection import Connection

    from cl_bench.launch import calls

    with calls.quick_imports():
        from cl_bench.run import runner  # noqa: F401 - takes seconds
    gc.freeze()  # what was imported stays: later searches for garbage leave it out

    assigned = calls.serve(Connection(channel), terminal)
    os.close(terminal)
    if assigned is None:
        return
    arguments, path = assigned
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    from cl_bench.cli.app import start

    start(arguments)


def _first_signal() -> threading.Event:
    """Set by the first SIGINT or SIGTERM; later ones interrupt as usual."""
    came = threading.Event()

    def handle(number, frame) -> None:
        if came.is_set():
            raise KeyboardInterrupt
        came.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return came
