"""Runs a plan: one process per run, each in its own place, with progress and time left."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from queue import Queue
from typing import TYPE_CHECKING

from joblib import Parallel, delayed
from rich.console import Console

from cl_bench import environment
from cl_bench.devices import Place, places
from cl_bench.errors import CannotRead, InputError, RunFailed
from cl_bench.launch import processes
from cl_bench.launch.monitor import QUIET, USUAL, Monitor
from cl_bench.launch.overall import NO_SIZES, Sizes
from cl_bench.launch.processes import Ended, carry_out
from cl_bench.launch.queue import RunQueue
from cl_bench.launch.warm_processes import Starter
from cl_bench.records.record import RunRecord
from cl_bench.records.sealed import DamagedRecord
from cl_bench.records.spec import RunSpec, name
from cl_bench.records.states import state_of
from cl_bench.records.store import Store

if TYPE_CHECKING:
    from cl_bench.launch.cluster import Cluster

SMALLER = 4  # a batch that did not fit is learned in so many parts


@dataclass(frozen=True)
class LaunchOptions:
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
    track: tuple[str, ...] = ()  # trackers that are told of each run
    level: int = USUAL  # how much is said, see `cl_bench.launch.monitor`


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
    specs: Sequence[RunSpec],
    store: Store,
    launch: LaunchOptions,
    console: Console,
    starter: Starter | None = None,
    sizes: Sizes = NO_SIZES,
) -> list[Outcome]:
    """Run what is not finished yet and return every spec's outcome, in order; a failed run stops no other.

    `starter` may have a process ready, `sizes` tell the time left. Raises KeyboardInterrupt after Ctrl-C,
    when what was running has been saved; InputError when results cannot be written.
    """
    if launch.scheduler and launch.gpus_per_run > 1:
        shares = "--gpus-per-run shares the GPUs of this machine"
        raise InputError(f"{shares}; leave it out with --scheduler, whose workers have one each")
    store.prepare()
    outcomes = {spec.run_id(): found for spec in specs if (found := _before(store, spec))}
    pending = [spec for spec in specs if spec.run_id() not in outcomes]
    finished = sum(found.record is not None for found in outcomes.values())
    if finished and launch.level > QUIET:
        said = f"{finished} of {len(specs)} runs are finished already and are not trained again"
        console.print(said, highlight=False)
    if not pending:
        return [outcomes[spec.run_id()] for spec in specs]
    with Monitor(console, pending, sizes, launch.level) as monitor, ExitStack() as stack:
        starter = starter or stack.enter_context(Starter())
        cluster = None
        if launch.scheduler is not None:
            from cl_bench.launch.cluster import Cluster  # it imports torch

            cluster = Cluster(launch.scheduler, launch.threads, monitor, launch.compiled)
            stack.enter_context(cluster)
        workers = _Workers(pending, store, launch, monitor, cluster, starter)
        with monitor.handling_interrupts(workers.queue.stop):
            for outcome in workers.outcomes():
                outcomes[outcome.spec.run_id()] = outcome
                ended = f"{outcome.state}: {name(outcome.spec)} ({len(outcomes)} of {len(specs)})"
                monitor.ended(outcome.spec.run_id(), ended, failed=outcome.failure is not None)
    if monitor.interrupts:
        raise KeyboardInterrupt
    if workers.broken:
        raise workers.broken
    return [outcomes[spec.run_id()] for spec in specs]


class _Workers:
    """The places, and what is done in each with the next run from the queue."""

    def __init__(
        self, pending: Sequence[RunSpec], store: Store, launch: LaunchOptions, monitor: Monitor,
        cluster: "Cluster | None", starter: Starter,
    ):  # fmt: skip
        self._store, self._launch, self._monitor = store, launch, monitor
        self._cluster, self._starter, self._count = cluster, starter, len(pending)
        self._places, machine = self._on_cluster(cluster) if cluster else self._on_this_machine(pending)
        self._keys = {}
        if launch.share and machine:
            self._keys = starter.call("cl_bench.run.shared_first_task:first_tasks", pending, store, machine)
        self.queue = RunQueue(pending, store, self._keys)
        self._free: Queue[Place] = Queue()
        for place in self._places:
            self._free.put(place)
        self.broken: InputError | RunFailed | None = None  # why nothing more can be carried out

    def _on_this_machine(self, pending: Sequence[RunSpec]) -> tuple[list[Place], dict | None]:
        """The places of this machine, and what the last bits of sums depend on in all of them."""
        launch, call = self._launch, self._starter.call
        found = places(
            call("cl_bench.devices:devices", launch.device),
            self._count,
            launch.jobs,
            launch.per_gpu,
            launch.threads,
            launch.gpus_per_run,
        )
        call("cl_bench.run.assemble:decode", pending)
        if launch.gpus_per_run > 1:  # several devices share no first tasks: their sums are others
            return found, None
        device, threads = found[0].device, found[0].threads
        compiled = environment.compiles(launch.compiled, device)
        return found, call("cl_bench.environment:machine", device, threads, compiled)

    def _on_cluster(self, cluster: "Cluster") -> tuple[list[Place], dict | None]:
        """As `_on_this_machine`, of the workers of a cluster."""
        calls = min(self._count, self._launch.jobs or cluster.CALLS_AT_A_TIME)
        return [cluster.place()] * calls, cluster.machine()

    def outcomes(self) -> Iterator[Outcome]:
        """The outcomes of the runs as they end."""
        parallel = Parallel(
            n_jobs=len(self._places), backend="threading", return_as="generator_unordered", pre_dispatch="all"
        )
        yield from filter(None, parallel(delayed(self.step)() for _ in range(self._count)))

    def step(self) -> Outcome | None:
        """Carry out one run; None where nothing is left to do."""
        place = self._free.get()
        try:
            while taken := self.queue.take():
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
            self.queue.finished(spec)
            return outcome
        try:
            self._store.prepare()
            ended = self._with_retry(spec, shares, place)
        except CannotRead as error:
            self.queue.finished(spec)
            return Outcome(spec, None, str(error), False)
        except (InputError, RunFailed, OSError) as error:
            # nothing can be written, or the cluster is gone: more runs would lose what they learn
            if isinstance(error, OSError):
                error = InputError(f"cannot write {self._store.folder(spec)}: {error}")
            self.broken = self.broken or error
            self.queue.stop()
            self.queue.finished(spec)
            return None
        if ended.code == processes.BUSY:
            self.queue.give_back(spec)
            return None
        self.queue.finished(spec)
        return self._outcome(spec, ended)

    def _with_retry(self, spec: RunSpec, shares: bool, place: Place) -> Ended:
        """How the run ended, at the second try where memory did not suffice at the first."""
        launch = self._launch
        options = [] if launch.time_limit is None else ["--time-limit", str(launch.time_limit)]
        options += {None: [], True: ["--compile"], False: ["--no-compile"]}[launch.compiled]
        options += ["--track", ",".join(launch.track)] if launch.track else []
        options += ["--share-first-task"] if shares else []
        ended = self._in_place(spec, place, options)
        if ended.code == processes.CANNOT_WRITE:
            raise RunFailed(ended.reason)
        if ended.code == processes.OUT_OF_MEMORY and launch.retry:
            size = max(1, spec.options["batch"] // launch.gpus_per_run // SMALLER)
            self._monitor.say(f"{name(spec)}: out of memory, tried again with {size} images at a time")
            ended = self._in_place(spec, place, [*options, "--micro-batch", str(size)])
        return ended

    def _outcome(self, spec: RunSpec, ended: Ended) -> Outcome | None:
        """What a process that ended has made of its run; None where the user stopped it."""
        for line in ended.said:
            if line.startswith("warning: "):
                self._monitor.say(f"{name(spec)}: {line}")
        if self._monitor.interrupts and (ended.code == processes.STOPPED or ended.code < 0):
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
        return carry_out(spec, self._store, place, options, self._monitor, self._starter, self.queue.waits)


def _before(store: Store, spec: RunSpec) -> Outcome | None:
    """The outcome of a run that is not to be started: one that cannot be read, or is done.

    The latter has the labels and paths that are asked for now.
    """
    state = state_of(store, spec)
    if state.name == "unreadable":
        return Outcome(spec, None, state.reason, False)
    if state.name == "finished" and state.record is not None:
        return Outcome(spec, state.record.model_copy(update={"spec": spec}), None, False)
    return None  # what is damaged, the run itself sets aside and says so
