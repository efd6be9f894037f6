"""Runs a plan: one process per run, each on its device and its share of cores, with progress and time left."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import cl_bench
from cl_bench.decode import cores
from cl_bench.errors import InputError
from cl_bench.record import RunRecord, RunSpec
from cl_bench.runner import decode
from cl_bench.store import DamagedRecord, Store, write_spec

POLL_SECONDS = 0.3


@dataclass(frozen=True)
class Outcome:
    """How one run ended: its record, or why there is none."""

    spec: RunSpec
    record: RunRecord | None
    failure: str | None
    trained: bool


def devices(requested: str) -> list[str]:
    """["cpu"], or the CUDA devices meant by "auto", "cuda" or "cuda:1". Raises InputError for what the machine does not have."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    everything = [f"cuda:{i}" for i in range(count)]
    if requested == "cpu":
        return ["cpu"]
    if requested == "auto":
        return everything or ["cpu"]
    if requested == "cuda" and everything:
        return everything
    if requested in everything:
        return [requested]
    if requested.startswith("cuda"):
        has = f"devices {', '.join(everything)}" if everything else "no usable CUDA GPU"
        raise InputError(f"--device {requested}: this machine has {has}; use --device cpu or auto")
    raise InputError(f"--device {requested!r} is not a device; expected auto, cpu, cuda or cuda:N")


def execute(specs: list[RunSpec], store: Store, device: str, jobs: int | None, console: Console) -> list[Outcome]:
    """Run what is not finished yet and return every spec's outcome, in order. A failed run does not stop the others."""
    store.prepare()
    places = devices(device)
    slots = jobs or min(len(specs), cores() if places == ["cpu"] else len(places))
    threads = max(1, cores() // slots)
    finished = {spec.run_id(): record for spec in specs if (record := _finished(store, spec))}
    pending = [spec for spec in specs if spec.run_id() not in finished]
    if finished:
        console.print(f"{len(finished)} of {len(specs)} runs are finished already and are not trained again", highlight=False)
    decode(pending)
    free: Queue[str] = Queue()
    for slot in range(slots):
        free.put(places[slot % len(places)])
    outcomes = {run_id: Outcome(record.spec, record, None, False) for run_id, record in finished.items()}
    view = _bars(console) if console.is_terminal else nullcontext()
    with view as bars:
        watch = _Watch(console, bars)
        try:
            for outcome in Parallel(n_jobs=slots, backend="threading", return_as="generator_unordered")(
                delayed(_run_process)(spec, store, free, threads, watch) for spec in pending
            ):
                outcomes[outcome.spec.run_id()] = outcome
                watch.say(f"{'failed' if outcome.failure else 'finished'}: {name(outcome.spec)} ({len(outcomes)} of {len(specs)})")
        except KeyboardInterrupt:
            watch.stop()
            raise
    return [outcomes[spec.run_id()] for spec in specs]


def _finished(store: Store, spec: RunSpec) -> RunRecord | None:
    """The record if the run is done; labels and paths are taken from what is asked for now."""
    try:
        record = store.load(spec)
    except DamagedRecord:
        return None  # the run itself sets it aside and says so
    return record.model_copy(update={"spec": spec}) if record and record.status == "done" else None


def _run_process(spec: RunSpec, store: Store, free: "Queue[str]", threads: int, watch: "_Watch") -> Outcome:
    folder, place = store.folder(spec), free.get()
    try:
        log = folder / "log.txt"
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1", **_same_code()}
        try:
            path = write_spec(spec, folder)
            command = [
                sys.executable,
                "-m",
                "cl_bench",
                "run-one",
                str(path),
                "--device",
                place,
                "--threads",
                str(threads),
                "--results",
                str(store.root),
            ]
            with open(log, "ab") as output:
                start = output.seek(0, os.SEEK_END)
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment)
        except OSError as error:
            return Outcome(spec, None, f"cannot start: {error}", False)
        code = watch.follow(spec, folder / "progress.json", process)
        said = log.read_bytes()[start:].decode(errors="replace").strip().splitlines()
        for line in said:
            if line.startswith("warning: "):
                watch.say(f"{name(spec)}: {line}")
        try:
            record = store.load(spec)
        except DamagedRecord as error:
            return Outcome(spec, None, str(error), True)
        if code == 0 and record and record.status == "done":
            return Outcome(spec, record, None, True)
        reason = said[-1].removeprefix("error: ") if said else f"the process ended with code {code}"
        return Outcome(spec, record, f"{reason} (log: {log})", True)
    finally:
        free.put(place)


def _same_code() -> dict[str, str]:
    """Environment that makes a child import the package this process runs, whatever lies in the current folder."""
    folders = [str(Path(cl_bench.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH")]
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, folders))}


def name(spec: RunSpec) -> str:
    """Such as "vpt-nsp2[eta=0.9] glyphs/10 seed 2024", with "trial" or "validation" where it is one."""
    marks = (" trial" if spec.limit else "") + (" validation" if spec.validation else "")
    return f"{spec.label} {spec.dataset}/{spec.num_tasks}{marks} seed {spec.seed_name()}"


def _bars(console: Console) -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True)


class _Watch:
    """Shows what running processes report: a bar each on a terminal, else a line per finished task."""

    def __init__(self, console: Console, bars: Progress | None):
        self._console, self._bars, self._stopped = console, bars, threading.Event()

    def say(self, line: str) -> None:
        """One line above the bars."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def stop(self) -> None:
        """Make `follow` return, after its process was interrupted too."""
        self._stopped.set()

    def follow(self, spec: RunSpec, path: Path, process: subprocess.Popen) -> int:
        """Wait for the process, showing its progress; returns its exit code."""
        path.unlink(missing_ok=True)
        bar = self._bars.add_task(name(spec), total=1.0, note="starting") if self._bars else None
        show: Callable[[dict, str], None] = (
            self._plain(spec) if bar is None else lambda facts, note: self._bars.update(bar, completed=facts["done"], note=note)
        )
        start, first, last = time.monotonic(), None, None
        while process.poll() is None and not self._stopped.is_set():
            time.sleep(POLL_SECONDS)
            try:
                facts = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            if facts == last:
                continue
            if first is None:
                first, start = facts["done"], time.monotonic()
            last = facts
            left = (time.monotonic() - start) / (facts["done"] - first) * (1 - facts["done"]) if facts["done"] > first else None
            note = f"task {facts['task']}/{facts['tasks']}, loss {facts['loss']:.3f}, {facts['images_per_second']:.0f} images/s"
            show(facts, note + (f", {_duration(left)} left" if left is not None else ""))
        if bar is not None:
            self._bars.remove_task(bar)
        if self._stopped.is_set():
            process.terminate()
        return process.wait()

    def _plain(self, spec: RunSpec) -> Callable[[dict, str], None]:
        shown = {"task": 0}

        def show(facts: dict, note: str) -> None:
            if facts["task"] > shown["task"]:
                shown["task"] = facts["task"]
                self.say(f"{name(spec)}: {note}")

        return show


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
