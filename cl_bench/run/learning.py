"""The tasks of a run that are not learned yet: each is learned, evaluated, and saved before the next."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from safetensors.torch import save as save_tensors

from cl_bench import environment, seeds
from cl_bench.data.stream import EVALUATION_BATCH, Evaluation, Stream, Task
from cl_bench.diagnosis.measure import Measuring
from cl_bench.errors import InputError, RunFailed, Stopped, TimeIsUp
from cl_bench.nn.precision import network_in
from cl_bench.records import run_files
from cl_bench.records.record import RunRecord, TaskRecord
from cl_bench.records.run_files import Say
from cl_bench.records.store import Store
from cl_bench.run import checkpoints
from cl_bench.run.certificate import certify
from cl_bench.run.progress import Work
from cl_bench.run.shared_first_task import StoredFirstTask
from cl_bench.trackers.tracking import Tracking, pass_values
from cl_bench.training.distributed import ALONE, ProcessGroup
from cl_bench.training.method import Method
from cl_bench.training.trainer import FirstTask, Progress, Trainer

FOLLOWED_TASKS = 2  # whose losses are followed, as in the NSP2 paper's figure


@dataclass(frozen=True)
class Conditions:
    """How a run is carried out.

    Threads, helpers, compiled and micro_batch alone can change its result, and only by rounding.
    """

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
    track: tuple[str, ...] = ()  # trackers, which are told of the run
    moved: bool = False  # whether files are brought to another machine when this process ends

    @property
    def compiles(self) -> bool:
        """Whether the frozen blocks are compiled."""
        return environment.compiles(self.compiled, self.device)

    @property
    def processes(self) -> int:
        """How many processes share every batch."""
        return 1 + len(self.helpers)


class Learning:
    """A run from the first task that its record lacks to its certificate."""

    def __init__(
        self, record: RunRecord, store: Store, method: Method, stream: Stream, conditions: Conditions,
        say: Say, progress: Callable[[Progress], None], tracking: Tracking, group: ProcessGroup = ALONE,
    ):  # fmt: skip
        self.record, self.store, self.method, self.stream = record, store, method, stream
        self.conditions, self.say, self.group = conditions, say, group
        self.spec, self.folder = record.spec, store.folder(record.spec)
        self._tell, self._tracking = progress, tracking
        self._latest: Progress | None = None
        self.progress = _within(conditions.seconds, self._report)
        self.accuracy: float | None = None  # after the task before
        self.predictions: dict[str, np.ndarray] = {}
        followed = range(min(FOLLOWED_TASKS, stream.num_tasks)) if self.spec.losses else ()
        self.followed = [stream.measured(index) for index in followed]
        self._measuring = Measuring(method, stream) if self.spec.diagnose else None

    def finish(self) -> RunRecord:
        """Learn what is left and make the certificate.

        Raises Stopped where it is asked to stop before a task.
        """
        if self.conditions.micro_batch and self.method.couples_batch:
            cut = f"{self.spec.label} looks at a whole batch at once, which cannot be cut"
            raise RunFailed(f"out of memory, and {cut}; give a smaller batch")
        self.predictions = checkpoints.restore(self.record, self.folder, self.method, self.stream, self.say)
        _save(self.store, self.record)
        first, began = len(self.record.tasks), time.monotonic()
        if self.group.size > 1:
            state = {name: value.cpu() for name, value in self.method.state().items()}
            self.group.broadcast((state, first, self.conditions.micro_batch))
        for index in range(first, self.stream.num_tasks):
            limit = self.conditions.pause_after
            paused = limit is not None and index > first and time.monotonic() - began >= limit
            self._task(index, self.conditions.stop() or paused)
        return certified(self.record, self.store, self.method, self.stream, self.say)

    def _task(self, index: int, stop: bool) -> None:
        task = self.stream.task(index)
        if len(task) < self.group.size:
            shared = f"task {index + 1} has {len(task)} images, which {self.group.size} devices cannot share"
            raise InputError(f"{shared}; give fewer --gpus-per-run")
        if not self.group.broadcast(not stop):
            raise Stopped(f"stopped after task {index} of {self.stream.num_tasks}")
        if self._measuring:
            self._measuring.begin(index)
        torch.manual_seed(seeds.derived_seed(self.spec.init_seed, "task", index))
        trainer, borrowed = self._trainer(index), self.stream.borrowed_seconds
        self._latest, self._per_class = None, len(task) / len(task.classes)
        tracked = self._tracking.seconds
        start, processor = time.perf_counter(), time.process_time()
        self.method.learn(task, trainer)
        learned = time.perf_counter()
        with network_in(self.spec.precision):
            batch = self.conditions.micro_batch or EVALUATION_BATCH
            evaluation = self.stream.evaluate(
                self.method.predict, index + 1, batch, self.method.predicts_together
            )
        evaluated = time.perf_counter()
        # features that were found on disk count as if they had been computed
        more = [now - before for now, before in zip(self.stream.borrowed_seconds, borrowed, strict=True)]
        tracked = self._tracking.seconds - tracked
        processor = time.process_time() - processor
        seconds = (learned - start - tracked + more[0], evaluated - learned + more[1], processor)
        self.predictions[f"task_{index + 1:03d}"] = evaluation.predictions
        state = {name: value.detach().cpu().contiguous() for name, value in self.method.state().items()}
        tensors = save_tensors(state)
        done = self._described(task, trainer, evaluation, tensors, *seconds)
        self.record = self.record.model_copy(update={"tasks": (*self.record.tasks, done)})
        run_files.save(self.record, self.store, tensors, self.predictions, self.stream.truth)
        seen, right = sum(self.stream.test_sizes[: len(done.correct)]), sum(done.correct)
        self.accuracy = right / seen
        cost = f"{time.perf_counter() - start:.1f} s, {len(tensors) / 1e6:.1f} MB kept"
        counted = f"{right} of {seen} test images right ({self.accuracy:.1%})"
        self.say(f"task {index + 1}/{self.stream.num_tasks}: {counted}, {cost}")
        if self._latest:
            done = self._work(self._latest.passes).done(index + 1)
            self._tell(replace(self._latest, learned=index + 1, accuracy=self.accuracy, done=done))
        self._tracking.learned(self.record)

    def _report(self, now: Progress) -> None:
        """Tell how far the task in progress is."""
        done = self._work(now.passes).done(now.task, now.done_passes / now.passes)
        self._latest = replace(now, learned=now.task, done=done)
        self._tell(self._latest)
        self._tracking.passed(now.done_passes, pass_values(now.loss, now.images_per_second, now.rates))

    def _work(self, passes: int) -> Work:
        """What the whole run does if all its tasks are like the one in progress."""
        classes = [len(self.stream.info(index).classes) for index in range(self.stream.num_tasks)]
        sizes, method = self.stream.test_sizes, self.method
        tests = [sum(sizes)] if self.spec.joint else sizes
        predicting = max(1, method.prediction_passes - method.settled_passes)
        return Work(classes, tests, self._per_class, passes, predicting)

    def _trainer(self, index: int) -> Trainer:
        conditions, first_task = self.conditions, FirstTask()
        # parts of a batch, and shares of one, add up to other last bits
        alone = conditions.micro_batch is None and self.group.size == 1
        if conditions.share_first_task and alone and index == 0:
            machine = environment.machine(conditions.device, self.record.threads, conditions.compiles)
            first_task = StoredFirstTask.of(self.spec, self.store, machine)
        return Trainer(
            self.spec.data_seed, torch.device(conditions.device), self.spec.precision, self.progress,
            conditions.micro_batch, self.accuracy, first_task, self.group,
        )  # fmt: skip

    def _described(
        self,
        task: Task,
        trainer: Trainer,
        evaluation: Evaluation,
        tensors: bytes,
        learning: float,
        evaluating: float,
        processor: float,
    ) -> TaskRecord:
        """What is recorded of a task that took so many seconds to learn, to evaluate, and of processors."""
        method, losses, measuring = self.method, None, self._measuring
        if self.followed:
            losses = tuple(
                method.mean_loss(kept, self.spec.precision) for kept in self.followed[: task.index + 1]
            )
        return TaskRecord(
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
            learn_seconds=learning + trainer.first_task.borrowed_seconds,
            evaluate_seconds=evaluating,
            peak_memory_bytes=environment.peak_memory_bytes(self.conditions.device),
            micro_batch=self.conditions.micro_batch,
            kept_losses=losses,
            first_task_of=trainer.first_task.trained_by,
            prediction_passes=method.prediction_passes,
            training_seconds=trainer.training_seconds,
            processor_seconds=processor,
            diagnosis=measuring.end() if measuring else None,
            diagnose_seconds=measuring.seconds if measuring else None,
        )


def certified(record: RunRecord, store: Store, method: Method, stream: Stream, say: Say) -> RunRecord:
    """The record of a method that has learned every task, done and saved with its inductive certificate."""
    start = time.perf_counter()
    certificate = certify(method.predict, stream, stream.num_tasks)
    seconds = time.perf_counter() - start
    made = {"status": "done", "certificate": certificate, "certificate_seconds": seconds}
    record = record.model_copy(update=made)
    _save(store, record)
    say(certificate.sentence())
    return record


def _save(store: Store, record: RunRecord) -> None:
    try:
        store.save(record)
    except OSError as error:
        raise run_files.cannot_write(store.folder(record.spec), error) from error


def _within(seconds: float | None, progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """The progress report, which ends the run at its time limit."""
    start = time.monotonic()

    def report(now: Progress) -> None:
        progress(now)
        if seconds is not None and time.monotonic() - start > seconds:
            reached = f"the time limit of {seconds:g} s was reached in task {now.task + 1}"
            raise TimeIsUp(f"{reached}; the same command goes on with that task")

    return report
