"""One run: a specification in, a record out, saved after every task and resumable there."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from safetensors.torch import save as save_tensors

from cl_bench import environment, seeds
from cl_bench.data.stream import EVALUATION_BATCH, Stream
from cl_bench.errors import CannotRead, CannotWrite, InputError, OutOfMemory, RunFailed, Stopped, TimeIsUp
from cl_bench.nn.precision import network_in
from cl_bench.records import endings, locks, run_files
from cl_bench.records.record import RunRecord, RunSpec, TaskRecord
from cl_bench.records.run_files import Say
from cl_bench.records.sealed import DamagedRecord
from cl_bench.records.store import Store
from cl_bench.run import checkpoints
from cl_bench.run.assemble import batch_sizes, build_method, build_stream, open_source, prepare_kernels
from cl_bench.run.certificate import certify
from cl_bench.run.duplicates import duplicates
from cl_bench.run.shared_first_task import StoredFirstTask
from cl_bench.training.distributed import ALONE, ProcessGroup, process_group
from cl_bench.training.method import Method
from cl_bench.training.trainer import FirstTask, Progress, Trainer

FOLLOWED_TASKS = 2  # whose losses are followed, as in the NSP2 paper's figure


@dataclass(frozen=True)
class Terms:
    """How a run is carried out; of all this only threads, helpers, compiled and micro_batch can change its result, and they only by rounding."""

    device: str = "cpu"
    helpers: tuple[str, ...] = ()  # more devices, which share every batch
    threads: int = 1
    compiled: bool | None = None  # torch.compile; None: on a GPU
    micro_batch: int | None = None  # images that go through the network at a time
    seconds: float | None = None  # time limit, looked at after every pass
    pause_after: float | None = None  # seconds after which to stop with the task in progress
    share_first_task: bool = False
    stop: Callable[[], bool] = lambda: False  # asked before every task
    wait: bool = True  # for another process that works on the same run

    @property
    def compiles(self) -> bool:
        """Whether the frozen blocks are compiled."""
        return environment.compiles(self.compiled, self.device)


def run(
    spec: RunSpec, store: Store, terms: Terms, say: Say, progress: Callable[[Progress], None]
) -> RunRecord:
    """Learn and evaluate every task not yet in the record; the record is saved after each.

    Raises InputError for input that cannot be used, RunFailed for a run that failed, Stopped for one that was asked to stop; in all cases what
    was finished is kept.
    """
    device = terms.device
    store.prepare()
    with locks.sole_owner(store, spec, say, terms.wait):
        record = run_files.existing(spec, store, say)
        if record and record.status == "done":
            say("already finished, nothing to train")
            return record
        threads = (
            record.threads if record else terms.threads
        )  # the same sums in the same order as before the interruption
        torch.set_num_threads(threads)
        marks = {"devices": 1 + len(terms.helpers)} if terms.helpers else {}
        here = environment.describe(device, threads, terms.compiles) | marks
        environments = (*(record.environments if record else ()), here)
        source = open_source(spec)
        stream = build_stream(spec, source, torch.device(device))
        if 0 in stream.test_sizes:
            raise InputError(
                f"task {stream.test_sizes.index(0) + 1} has no image to evaluate on; choose fewer splits or another class order"
            )
        record = RunRecord(
            spec=spec,
            status="running",
            test_sizes=stream.test_sizes,
            duplicates=duplicates(spec, source),
            tasks=record.tasks if record else (),
            threads=threads,
            environments=environments,
        )
        try:
            method = build_method(spec, source, torch.device(device), stream.num_tasks)
            prepare_kernels(
                terms.compiles, say, batch_sizes(method, 1 + len(terms.helpers), terms.micro_batch)
            )
            if terms.helpers and method.couples_batch:
                raise InputError(
                    f"{spec.label} looks at a whole batch at once, which several devices cannot share; leave out --gpus-per-run"
                )
            if terms.helpers and len(terms.helpers) >= spec.options.get("batch", 1 + len(terms.helpers)):
                shared = f"a batch of {spec.options['batch']} images cannot be shared by {1 + len(terms.helpers)} devices"
                raise InputError(f"{shared}; give a larger batch or fewer devices")
            if spec.precision == "bf16" and device == "cpu" and not environment.has_bf16():
                say(
                    "warning: this processor has no bf16 arithmetic, and emulates it; precision=fp32 would be faster"
                )
            with process_group((device, *terms.helpers), threads, follow, spec, terms.compiles) as group:
                return _learn_remaining(
                    record, store, method, stream, terms, say, _within(terms.seconds, progress), group
                )
        except Stopped:
            raise
        except (
            Exception
        ) as error:  # the only catch-all: whatever a plugin raises, the finished tasks stay usable
            failure = " ".join(
                (
                    f"{error}"
                    if isinstance(error, InputError | RunFailed)
                    else f"{type(error).__name__}: {error}"
                ).split()
            )
            failure += endings.note(failure, error, record, store)
            if isinstance(error, InputError):
                raise
            if isinstance(error, CannotRead):
                raise
            if isinstance(error, CannotWrite):
                raise CannotWrite(failure) from error
            if isinstance(error, MemoryError | torch.OutOfMemoryError):
                raise OutOfMemory(failure) from error
            raise RunFailed(failure) from error


def _within(seconds: float | None, progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """The progress report, which ends the run at its time limit."""
    start = time.monotonic()

    def report(now: Progress) -> None:
        progress(now)
        if seconds is not None and time.monotonic() - start > seconds:
            raise TimeIsUp(
                f"the time limit of {seconds:g} s was reached in task {now.task + 1}; the same command goes on with that task"
            )

    return report


def follow(group: ProcessGroup, device: str, spec: RunSpec, compiled: bool) -> None:
    """Learn with the first process of a group whatever it learns; it alone evaluates and saves."""
    source = open_source(spec)
    stream = build_stream(spec, source, torch.device(device))
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
        method.learn(
            stream.task(index),
            Trainer(
                spec.data_seed, torch.device(device), spec.precision, micro_batch=micro_batch, group=group
            ),
        )


def _learn_remaining(
    record: RunRecord,
    store: Store,
    method: Method,
    stream: Stream,
    terms: Terms,
    say: Say,
    progress,
    group: ProcessGroup = ALONE,
) -> RunRecord:
    spec, folder, device = record.spec, store.folder(record.spec), torch.device(terms.device)
    if terms.micro_batch and method.couples_batch:
        raise RunFailed(
            f"out of memory, and {spec.label} looks at a whole batch at once, which cannot be cut; give a smaller batch"
        )
    predictions = checkpoints.restore(record, folder, method, stream, say)
    try:
        store.save(record)
    except OSError as error:
        raise run_files.cannot_write(folder, error) from error
    shares = (
        terms.share_first_task and terms.micro_batch is None and group.size == 1
    )  # parts of a batch add up to other last bits
    followed = (
        [stream.task(index) for index in range(min(FOLLOWED_TASKS, stream.num_tasks))] if spec.losses else []
    )
    first, accuracy, began = len(record.tasks), None, time.monotonic()
    if group.size > 1:
        group.broadcast(
            ({name: value.cpu() for name, value in method.state().items()}, first, terms.micro_batch)
        )
    for index in range(first, stream.num_tasks):
        paused = (
            terms.pause_after is not None and index > first and time.monotonic() - began >= terms.pause_after
        )
        task = stream.task(index)
        if len(task) < group.size:
            raise InputError(
                f"task {index + 1} has {len(task)} images, which {group.size} devices cannot share; give fewer --gpus-per-run"
            )
        if not group.broadcast(not (terms.stop() or paused)):
            raise Stopped(f"stopped after task {index} of {stream.num_tasks}")
        torch.manual_seed(seeds.derived_seed(spec.init_seed, "task", index))
        shared = FirstTask()
        if shares and index == 0:
            shared = StoredFirstTask.of(
                spec, store, environment.machine(terms.device, record.threads, terms.compiles)
            )
        trainer = Trainer(
            spec.data_seed, device, spec.precision, progress, terms.micro_batch, accuracy, shared, group
        )
        start = time.perf_counter()
        method.learn(task, trainer)
        learned = time.perf_counter()
        with network_in(spec.precision):
            evaluation = stream.evaluate(
                method.predict, index + 1, terms.micro_batch or EVALUATION_BATCH, method.predicts_together
            )
        evaluated = time.perf_counter()
        losses = (
            tuple(method.mean_loss(task, spec.precision) for task in followed[: index + 1])
            if followed
            else None
        )
        predictions[f"task_{index + 1:03d}"] = evaluation.predictions
        tensors = save_tensors(
            {name: value.detach().cpu().contiguous() for name, value in method.state().items()}
        )
        done = TaskRecord(
            classes=task.classes,
            correct=tuple(evaluation.correct),
            correct_within_task=tuple(evaluation.correct_within_task),
            training_images=len(task),
            images_seen=trainer.images_seen,
            pass_losses=tuple(trainer.pass_losses),
            trainable_parameters=sum(p.numel() for p in method.parameters() if p.requires_grad),
            stored_values=sum(value.numel() for value in method.state().values()),
            diagnostics=method.diagnostics(),
            checkpoint_sha256=hashlib.sha256(tensors).hexdigest(),
            predictions_sha256=hashlib.sha256(evaluation.predictions.tobytes()).hexdigest(),
            learn_seconds=learned - start + shared.borrowed_seconds,
            evaluate_seconds=evaluated - learned,
            peak_memory_bytes=environment.peak_memory_bytes(terms.device),
            micro_batch=terms.micro_batch,
            kept_losses=losses,
            first_task_of=shared.trained_by,
        )
        record = record.model_copy(update={"tasks": (*record.tasks, done)})
        run_files.save(record, store, tensors, predictions, stream.truth)
        seen, right = sum(stream.test_sizes[: len(done.correct)]), sum(done.correct)
        accuracy = right / seen
        cost = f"{time.perf_counter() - start:.1f} s, {len(tensors) / 1e6:.1f} MB kept"
        say(
            f"task {index + 1}/{stream.num_tasks}: {right} of {seen} test images right ({accuracy:.1%}), {cost}"
        )
    return _finish(record, store, method, stream, say)


def _finish(record: RunRecord, store: Store, method: Method, stream: Stream, say: Say) -> RunRecord:
    """Make the inductive certificate of a method that has learned every task; the record is done with it."""
    certificate = certify(method.predict, stream, stream.num_tasks)
    record = record.model_copy(update={"status": "done", "certificate": certificate})
    try:
        store.save(record)
    except OSError as error:
        raise run_files.cannot_write(store.folder(record.spec), error) from error
    say(certificate.sentence())
    return record


def recertify(spec: RunSpec, store: Store, device: str, threads: int, say: Say) -> RunRecord:
    """Make the certificate of a finished run anew, from its checkpoint, which stays where it is, whatever is wrong with it.

    Raises InputError when the run is not finished, RunFailed with the name of each damaged file when the checkpoint is one of them.
    """
    with locks.sole_owner(store, spec, say):
        record, folder = _finished(spec, store), store.folder(spec)
        if run_files.is_compact(record, folder):
            raise InputError(
                f"the run {spec.run_id()} was kept without its checkpoint, which a certificate needs; run it again in another folder"
            )
        wrong = run_files.damage(record, folder)
        if any("checkpoint-" in line for line in wrong):
            raise RunFailed(
                f"{'; '.join(wrong)}; nothing was moved, the record keeps the certificate that it has"
            )
        for line in wrong:
            say(f"warning: {line}; the certificate needs the checkpoint alone")
        torch.set_num_threads(threads)
        prepare_kernels(False, say)
        source = open_source(spec)
        stream = build_stream(spec, source, torch.device(device))
        method = build_method(spec, source, torch.device(device), stream.num_tasks)
        checkpoints.load_checkpoint(record, folder, method, stream)
        return _finish(record, store, method, stream, say)


def _finished(spec: RunSpec, store: Store) -> RunRecord:
    """The record of a finished run. Raises InputError where there is none, RunFailed where it is damaged."""
    try:
        record = store.load(spec)
    except DamagedRecord as error:
        raise RunFailed(f"{error}; nothing was moved") from error
    if record is None or record.status != "done":
        raise InputError(
            f"the run {spec.run_id()} is not finished; `cl-bench run` with its options continues it"
        )
    return record
