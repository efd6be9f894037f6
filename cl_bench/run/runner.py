"""One run: a specification in, a record out, saved after every task and resumable there."""

from collections.abc import Callable

import torch

from cl_bench import environment, seeds
from cl_bench.errors import CannotRead, CannotWrite, InputError, OutOfMemory, RunFailed, Stopped
from cl_bench.records import endings, locks, run_files
from cl_bench.records.record import RunRecord
from cl_bench.records.run_files import Say
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import Store
from cl_bench.run.assemble import (
    batch_sizes,
    build_method,
    build_stream,
    feature_stores,
    open_source,
    prepare_kernels,
)
from cl_bench.run.duplicates import duplicates
from cl_bench.run.learning import Conditions, Learning
from cl_bench.trackers.tracking import following
from cl_bench.training.distributed import ProcessGroup, process_group
from cl_bench.training.method import Method
from cl_bench.training.trainer import Progress, Trainer


def run(
    spec: RunSpec, store: Store, conditions: Conditions, say: Say, progress: Callable[[Progress], None]
) -> RunRecord:
    """Learn and evaluate every task not yet in the record; the record is saved after each.

    Raises InputError for input that cannot be used, RunFailed for a run that failed, Stopped for one that was
    asked to stop; in all cases what was finished is kept.
    """
    store.prepare()
    with locks.sole_owner(store, spec, say, conditions.wait):
        record = run_files.existing(spec, store, say)
        if record and record.status == "done":
            say("already finished, nothing to train")
            return record
        source, device = open_source(spec), torch.device(conditions.device)
        record = _begun(spec, record, conditions)
        stores = feature_stores(spec, device, conditions.compiles)
        stream = build_stream(spec, source, device, stores)
        if 0 in stream.test_sizes:
            empty = f"task {stream.test_sizes.index(0) + 1} has no image to evaluate on"
            raise InputError(f"{empty}; choose fewer splits or another class order")
        found = {"test_sizes": stream.test_sizes, "duplicates": duplicates(spec, source)}
        record = record.model_copy(update=found)
        try:
            method = build_method(spec, source, device, stream.num_tasks)
            sizes = batch_sizes(method, conditions.processes, conditions.micro_batch)
            prepare_kernels(conditions.compiles, say, sizes)
            _require_shareable(spec, method, conditions.helpers)
            if spec.precision == "bf16" and conditions.device == "cpu" and not environment.has_bf16():
                emulated = "this processor has no bf16 arithmetic, and emulates it"
                say(f"warning: {emulated}; precision=fp32 would be faster")
            devices = (conditions.device, *conditions.helpers)
            with (
                process_group(devices, record.threads, follow, spec, conditions.compiles) as group,
                following(conditions.track, record, store, say, conditions.moved) as tracking,
            ):
                told = (conditions, say, progress, tracking, group)
                return Learning(record, store, method, stream, *told).finish()
        except Stopped:
            raise
        except (
            Exception
        ) as error:  # the only catch-all: whatever a plugin raises, the finished tasks stay usable
            failure = _failure(error, record, store)
            if failure is error:
                raise
            raise failure from error


def _begun(spec: RunSpec, record: RunRecord | None, conditions: Conditions) -> RunRecord:
    """The record as this start of the run finds it, with the machine it goes on on."""
    # the same sums in the same order as before an interruption
    threads = record.threads if record else conditions.threads
    torch.set_num_threads(threads)
    marks = {"devices": conditions.processes} if conditions.helpers else {}
    here = environment.describe(conditions.device, threads, conditions.compiles) | marks
    return RunRecord(
        spec=spec,
        status="running",
        test_sizes=(),
        tasks=record.tasks if record else (),
        threads=threads,
        environments=(*(record.environments if record else ()), here),
    )


def _require_shareable(spec: RunSpec, method: Method, helpers: tuple[str, ...]) -> None:
    """Raise InputError where several devices cannot share the run's batches."""
    devices = 1 + len(helpers)
    if helpers and method.couples_batch:
        shared = f"{spec.label} looks at a whole batch at once, which several devices cannot share"
        raise InputError(f"{shared}; leave out --gpus-per-run")
    if helpers and spec.options.get("batch", devices) < devices:
        shared = f"a batch of {spec.options['batch']} images cannot be shared by {devices} devices"
        raise InputError(f"{shared}; give a larger batch or fewer devices")


def _failure(error: Exception, record: RunRecord, store: Store) -> Exception:
    """What to raise for an error in a run: the error itself, or one that says more."""
    told = isinstance(error, InputError | RunFailed)
    failure = " ".join((f"{error}" if told else f"{type(error).__name__}: {error}").split())
    failure += endings.note(failure, error, record, store)
    if isinstance(error, InputError | CannotRead):
        return error
    if isinstance(error, CannotWrite):
        return CannotWrite(failure)
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return OutOfMemory(failure)
    return RunFailed(failure)


def follow(group: ProcessGroup, device: str, spec: RunSpec, compiled: bool) -> None:
    """Learn with the first process of a group whatever it learns; it alone evaluates and saves."""
    source = open_source(spec)
    stores = feature_stores(spec, torch.device(device), compiled)
    stream = build_stream(spec, source, torch.device(device), stores)
    method = build_method(spec, source, torch.device(device), stream.num_tasks)
    state, first, micro_batch = group.broadcast()
    prepare_kernels(compiled, lambda line: None, batch_sizes(method, group.size, micro_batch))
    for index in range(first):
        method.grow(stream.info(index))
    if first:
        method.load_state({name: value.to(device) for name, value in state.items()})
    for index in range(first, stream.num_tasks):
        if not group.broadcast():
            return
        torch.manual_seed(seeds.derived_seed(spec.init_seed, "task", index))
        trainer = Trainer(
            spec.data_seed, torch.device(device), spec.precision, micro_batch=micro_batch, group=group
        )
        method.learn(stream.task(index), trainer)
