"""Runs on the workers of a Dask cluster: a worker carries out some tasks of a run at a time.

Nothing is shared but the scheduler's address: specification, record, checkpoint and log go to the worker with
the call and come back as its result. A worker that is lost loses the tasks of that call only; Dask makes the
call again elsewhere, with what it was given.
"""

import json
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cl_bench import environment
from cl_bench.devices import Place
from cl_bench.errors import Busy, InputError, RunFailed
from cl_bench.files import write_atomically
from cl_bench.launch import processes
from cl_bench.launch.monitor import Line, Monitor
from cl_bench.launch.processes import Ended
from cl_bench.launch.warm_processes import Starter
from cl_bench.records import first_task_files, locks, run_files
from cl_bench.records.sealed import content_of, entries
from cl_bench.records.spec import RunSpec, name
from cl_bench.records.store import Store, write_spec

CALL_SECONDS = 20.0  # a call ends with the first task that is finished after so long
ANSWER_SECONDS = 10  # how long to wait for a scheduler
LOST = 3  # calls of one run that may be lost with their workers before the run has failed
TOPIC = "cl-bench progress"
SAVED = ("record.json", "predictions.npz", "checkpoint-*.safetensors", run_files.TRACKED)


class Cluster:
    """The workers of a scheduler.

    Raises InputError when Dask is not installed or the scheduler does not answer.
    """

    CALLS_AT_A_TIME = 500

    def __init__(self, address: str, threads: int | None, monitor: Monitor, compiled: bool | None = None):
        try:
            from distributed import Client
        except ImportError:
            raise InputError("--scheduler needs Dask: pip install 'cl-bench[dask]'") from None
        try:
            _require_address(address)
            self._client = Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            silent = f"the scheduler {address} does not answer ({why})"
            raise InputError(f"{silent}; start one with `dask scheduler` and give its address") from None
        self._address, self._monitor = address, monitor
        self._lines: dict[str, Line] = {}
        self._client.subscribe_topic(TOPIC, self._progress)
        self.threads, self._compiled = threads, compiled

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *exception) -> None:
        self._client.close(timeout=2)

    def place(self) -> Place:
        """What every run gets: one thread unless more were asked for, on whatever device its worker has."""
        return Place("auto", self.threads or 1)

    def machine(self) -> dict | None:
        """What the last bits of sums depend on, where all workers agree on it.

        Raises InputError when they cannot import this package.
        """
        try:
            by_worker = self._client.run(environment.machine_of_worker, self.place().threads, self._compiled)
        except ImportError as error:
            lacking = f"the workers of {self._address} cannot import cl_bench ({error})"
            raise InputError(f"{lacking}; install the same version there") from error
        found = list(by_worker.values())
        if not found:
            self._monitor.say(f"no workers at {self._address} yet; runs start when some join")
        return found[0] if found and all(facts == found[0] for facts in found) else None

    def carry_out(self, spec: RunSpec, store: Store, options: list[str], key: str | None) -> Ended:
        """As `processes.carry_out`, call after call, each from where the one before ended.

        `key` is that of a shared first task.
        """
        folder = store.folder(spec)
        write_spec(spec, folder)
        line = self._lines[spec.run_id()] = Line(self._monitor, spec)
        try:
            with locks.sole_owner(store, spec, self._monitor.say, wait=False):
                # what is damaged is set aside here, not on a worker whose copy of it is lost
                run_files.existing(spec, store, lambda line: self._monitor.say(f"{name(spec)}: {line}"))
                return self._call_by_call(spec, store, options, key)
        except Busy:
            return Ended(processes.BUSY, [], folder / "log.txt")
        finally:
            line.close()
            del self._lines[spec.run_id()]

    def _call_by_call(self, spec: RunSpec, store: Store, options: list[str], key: str | None) -> Ended:
        from distributed import KilledWorker

        log, lost = store.folder(spec) / "log.txt", 0
        while True:
            given = (
                spec.model_dump_json(),
                _packed(store, spec, key),
                key,
                self.place(),
                options,
                CALL_SECONDS,
            )
            call = f"{spec.method}-{spec.run_id()}-{time.time_ns()}"
            try:
                code, lines, files = self._result(
                    self._client.submit(carry_out_some, *given, pure=False, key=call)
                )
            except KilledWorker:
                lost += 1
                if lost == LOST:
                    return Ended(
                        processes.FAILED, [f"{lost} workers were lost while they carried it out"], log
                    )
                continue
            if code is None:
                return Ended(processes.STOPPED, [], log)
            _unpack(files, store)
            with open(log, "a", encoding="utf-8") as written:
                written.writelines(f"{text}\n" for text in lines)
            if code != processes.STOPPED or self._monitor.interrupts:
                return Ended(code, lines, log)

    def _result(self, future) -> tuple[int | None, list[str], dict[str, bytes]]:
        """What the call returned; a code of None when the user interrupted twice.

        Raises RunFailed when the scheduler is gone.
        """
        from concurrent.futures import CancelledError

        from distributed.comm import CommClosedError

        while True:
            try:
                return future.result(timeout=1)
            except TimeoutError:
                if self._monitor.interrupts > 1:
                    future.cancel()
                    return None, [], {}
                if self._client.status not in ("running", "connecting"):
                    raise self._gone() from None
            except (CancelledError, CommClosedError, OSError) as error:
                raise self._gone() from error

    def _gone(self) -> RunFailed:
        lost = f"the scheduler {self._address} was lost; what had come back is kept"
        return RunFailed(f"{lost}, start it again and repeat the command")

    def _progress(self, event) -> None:
        facts = dict(event[1])
        line = self._lines.get(facts.pop("run"))
        if line is not None:
            line.show(facts)


def _require_address(address: str) -> None:
    """Raise ValueError for what is no address of a scheduler: a client of one does not go away quietly."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend

    scheme, place = parse_address(address)
    get_backend(scheme)
    parse_host_port(place)


def carry_out_some(
    spec_json: str, files: dict[str, bytes], key: str | None, place: Place, options: list[str], seconds: float
) -> tuple[int, list[str], dict[str, bytes]]:
    """On a worker: go on with a run in a folder of its own for about so many seconds.

    Returns its exit code, the lines that it printed, and its files.
    """
    from distributed import get_worker

    spec, worker = RunSpec.model_validate_json(spec_json), get_worker()
    with tempfile.TemporaryDirectory(prefix="cl-bench-") as folder:
        store = Store(Path(folder))
        store.prepare()
        _unpack(files, store)

        def report(facts: dict) -> None:
            worker.log_event(TOPIC, {"run": spec.run_id(), **facts})

        arguments = [*options, "--pause-after", str(seconds)]
        with Starter() as starter:
            ended = processes.carry_out(spec, store, place, arguments, _Relay(report), starter, more=False)
        tracked = {
            str(path.relative_to(store.root)): path.read_bytes()
            for path in (store.root / run_files.TRACKERS).rglob("*")
            if path.is_file() and not path.is_symlink()
        }
        return ended.code, ended.said, {**tracked, **_packed(store, spec, key)}


class _Relay:
    """In place of a `Monitor`, on a worker: hands on what the process reports."""

    def __init__(self, report: Callable[[dict], None]):
        self._report = report

    def follow(self, spec: RunSpec, path: Path, process) -> int:
        """Wait for the process; returns its exit code."""
        last = None
        while process.poll() is None:
            time.sleep(0.2)
            try:
                text = path.read_text(encoding="utf-8")
                if text != last:
                    last = text
                    self._report(json.loads(text))
            except (OSError, ValueError):
                continue
        return process.wait()


def _packed(store: Store, spec: RunSpec, key: str | None) -> dict[str, bytes]:
    """A run's own files and shared first task, by path below the results folder."""
    found = entries(store.folder(spec), *SAVED)
    if key is not None:
        found += entries(first_task_files.folder(store, key), "[!.]*.*")
    packed = {str(path.relative_to(store.root)): content_of(path) for path in found}
    return {below: content for below, content in packed.items() if content is not None}


def _unpack(files: dict[str, bytes], store: Store) -> None:
    """Write what was packed, what vouches for other files last, and remove older checkpoints."""
    for below in sorted(files, key=lambda path: path.endswith(".json")):
        path = store.root / below
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, files[below])
        if path.name == "record.json":
            for old in path.parent.glob("checkpoint-*.safetensors"):
                if str(old.relative_to(store.root)) not in files:
                    with suppress(OSError):  # one that stays takes space, no more
                        old.unlink()
