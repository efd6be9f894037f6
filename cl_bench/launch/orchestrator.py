"""Runs a plan: one process per run, each in its own place, with progress and time left."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from queue import Queue

from joblib import Parallel, delayed
from rich.console import Console

from cl_bench import environment
from cl_bench.devices import Place, devices, places
from cl_bench.errors import CannotRead, InputError, RunFailed
from cl_bench.launch import processes
from cl_bench.launch.cluster import CALLS_AT_A_TIME, Cluster
from cl_bench.launch.monitor import Watch
from cl_bench.launch.processes import Ended, carry_out
from cl_bench.launch.queue import Board
from cl_bench.launch.warm_processes import Starter
from cl_bench.records.record import RunRecord, RunSpec, name
from cl_bench.records.sealed import DamagedRecord
from cl_bench.records.states import state_of
from cl_bench.records.store import Store
from cl_bench.run.assemble import decode
from cl_bench.run.shared_first_task import first_tasks

SMALLER = 4  # a batch that did not fit is learned in so many parts


@dataclass(frozen=True)
class Manner:
    """How a plan is carried out."""

    device: str = "auto"
    jobs: int | None = None
    per_gpu: int = 1
    gpus_per_run: int = 1
    threads: int | None = None  # of each run; None: its share of the cores
    time_limit: float | None = None  # seconds of one run
    compiled: bool | None = None  # torch.compile; None: on GPUs
    retry: bool = True  # once, with smaller steps, when memory does not suffice
    share: bool = True  # first tasks
    scheduler: str | None = None  # of a Dask cluster, instead of this machine


@dataclass(frozen=True)
class Outcome:
    """How one run ended: its record, or why there is none."""

    spec: RunSpec
    record: RunRecord | None
    failure: str | None
    trained: bool

    @property
    def state(self) -> str:
        """In the words of `cl_bench.records.states`."""
        if self.failure is None:
            return "finished"
        if self.record is None:
            return "failed" if self.trained else "unreadable"
        return "stopped" if self.record.status == "running" else "failed"


def execute(
    specs: Sequence[RunSpec], store: Store, manner: Manner, console: Console, starter: Starter | None = None
) -> list[Outcome]:
    """Run what is not finished yet and return every spec's outcome, in order. A failed run does not stop the others. `starter` may have a process
    ready.

    Raises KeyboardInterrupt after Ctrl-C, when what was running has been saved; InputError when results cannot be written.
    """
    if manner.scheduler and manner.gpus_per_run > 1:
        raise InputError(
            "--gpus-per-run shares the GPUs of this machine; leave it out with --scheduler, whose workers have one each"
        )
    store.prepare()
    outcomes = {spec.run_id(): found for spec in specs if (found := _before(store, spec))}
    pending = [spec for spec in specs if spec.run_id() not in outcomes]
    if finished := sum(found.record is not None for found in outcomes.values()):
        console.print(
            f"{finished} of {len(specs)} runs are finished already and are not trained again", highlight=False
        )
    if not pending:
        return [outcomes[spec.run_id()] for spec in specs]
    with Watch(console) as watch, ExitStack() as stack:
        starter = starter or stack.enter_context(Starter())
        if manner.scheduler is None:
            where = places(
                devices(manner.device),
                len(pending),
                manner.jobs,
                manner.per_gpu,
                manner.threads,
                manner.gpus_per_run,
            )
            decode(pending)
            device, one = (
                where[0].device,
                manner.gpus_per_run == 1,
            )  # several share no first tasks: their sums are others
            compiled = environment.compiles(manner.compiled, device)
            cluster, machine = None, environment.machine(device, where[0].threads, compiled) if one else None
        else:
            cluster = stack.enter_context(Cluster(manner.scheduler, manner.threads, watch, manner.compiled))
            where, machine = (
                [cluster.place()] * min(len(pending), manner.jobs or CALLS_AT_A_TIME),
                cluster.machine(),
            )
        keys = first_tasks(pending, store, machine) if manner.share and machine else {}
        crew = _Crew(Board(pending, store, keys), store, manner, where, watch, cluster, keys, starter)
        with watch.handling_interrupts(crew.board.stop):
            steps = (delayed(crew.step)() for _ in pending)
            for outcome in Parallel(
                n_jobs=len(where), backend="threading", return_as="generator_unordered", pre_dispatch="all"
            )(steps):
                if outcome is None:
                    continue
                outcomes[outcome.spec.run_id()] = outcome
                watch.say(f"{outcome.state}: {name(outcome.spec)} ({len(outcomes)} of {len(specs)})")
    if watch.interrupts:
        raise KeyboardInterrupt
    if crew.broken:
        raise crew.broken
    return [outcomes[spec.run_id()] for spec in specs]


class _Crew:
    """The places, and what is done in each with the next run from the board."""

    def __init__(
        self,
        board: Board,
        store: Store,
        manner: Manner,
        where: Sequence[Place],
        watch: Watch,
        cluster: Cluster | None,
        keys: dict[str, str],
        starter: Starter,
    ):
        self.board, self._store, self._manner, self._watch, self._cluster, self._keys = (
            board,
            store,
            manner,
            watch,
            cluster,
            keys,
        )
        self._starter = starter
        self._free: Queue[Place] = Queue()
        for place in where:
            self._free.put(place)
        self.broken: InputError | RunFailed | None = None  # why nothing more can be carried out

    def step(self) -> Outcome | None:
        """Carry out one run; None where nothing is left to do."""
        place = self._free.get()
        try:
            while taken := self.board.take():
                outcome = self._carry_out(taken.spec, taken.shares_first_task, place)
                if outcome is not None:
                    return outcome
            return None
        finally:
            self._free.put(place)

    def _carry_out(self, spec: RunSpec, shares: bool, place: Place) -> Outcome | None:
        """The run's outcome; None when another process took it first, or it was stopped."""
        outcome = _before(self._store, spec)
        if outcome is not None:
            self.board.finished(spec)
            return outcome
        try:
            self._store.prepare()
            limit = [] if self._manner.time_limit is None else ["--time-limit", str(self._manner.time_limit)]
            compiled = (
                []
                if self._manner.compiled is None
                else ["--compile" if self._manner.compiled else "--no-compile"]
            )
            options = [*limit, *compiled, *(["--share-first-task"] if shares else [])]
            ended = self._in_place(spec, place, options)
            if ended.code == processes.CANNOT_WRITE:
                raise RunFailed(ended.reason)
            if ended.code == processes.OUT_OF_MEMORY and self._manner.retry:
                size = max(1, spec.options["batch"] // self._manner.gpus_per_run // SMALLER)
                self._watch.say(f"{name(spec)}: out of memory, tried again with {size} images at a time")
                ended = self._in_place(spec, place, [*options, "--micro-batch", str(size)])
        except CannotRead as error:
            self.board.finished(spec)
            return Outcome(spec, None, str(error), False)
        except (
            InputError,
            RunFailed,
            OSError,
        ) as error:  # nothing can be written, or the cluster is gone: more runs would lose what they learn
            unwritable = isinstance(error, OSError)
            self.broken = self.broken or (
                InputError(f"cannot write {self._store.folder(spec)}: {error}") if unwritable else error
            )
            self.board.stop()
            self.board.finished(spec)
            return None
        if ended.code == processes.BUSY:
            self.board.give_back(spec)
            return None
        self.board.finished(spec)
        for line in ended.said:
            if line.startswith("warning: "):
                self._watch.say(f"{name(spec)}: {line}")
        if self._watch.interrupts and (ended.code == processes.STOPPED or ended.code < 0):
            return None
        try:
            record = self._store.load(spec)
        except (DamagedRecord, CannotRead) as error:
            return Outcome(spec, None, str(error), True)
        if ended.code == processes.DONE and record and record.status == "done":
            return Outcome(spec, record, None, True)
        return Outcome(spec, record, ended.reason, True)

    def _in_place(self, spec: RunSpec, place: Place, options: list[str]) -> Ended:
        if self._cluster is not None:
            return self._cluster.carry_out(spec, self._store, options, self._keys.get(spec.run_id()))
        return carry_out(spec, self._store, place, options, self._watch, self._starter, self.board.waits)


def _before(store: Store, spec: RunSpec) -> Outcome | None:
    """The outcome of a run that is not to be started: one that is done, with labels and paths as they are asked for now, or cannot be read."""
    state = state_of(store, spec)
    if state.name == "unreadable":
        return Outcome(spec, None, state.reason, False)
    if state.name == "finished":
        return Outcome(spec, state.record.model_copy(update={"spec": spec}), None, False)
    return None  # what is damaged, the run itself sets aside and says so
