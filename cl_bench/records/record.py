"""What came out of a run: its record, with that of every task."""

from typing import Any, Literal

from cl_bench.config import Strict
from cl_bench.records.diagnosis import Diagnosis
from cl_bench.records.spec import RunSpec


class TaskRecord(Strict):
    """What happened when one task was learned and all tasks seen were evaluated."""

    classes: tuple[int, ...]
    correct: tuple[int, ...]  # right answers per evaluated task, among all classes seen
    correct_within_task: tuple[int, ...]  # the same, among the classes of the image's own task
    training_images: int
    images_seen: int  # image passes through the network while learning
    pass_losses: tuple[float, ...]  # mean training loss of each pass
    trainable_parameters: int
    stored_values: int  # numbers kept besides the backbone
    diagnostics: dict[str, Any]
    checkpoint_sha256: str
    predictions_sha256: str
    learn_seconds: float
    evaluate_seconds: float
    peak_memory_bytes: int
    # images that went through the network at a time, where memory did not suffice for a batch
    micro_batch: int | None = None
    # see `Method.mean_loss`: of tasks 1 and 2, as far as learned, where it was asked for
    kept_losses: tuple[float, ...] | None = None
    # the run that trained this first task, where several share it; its seconds are counted here too
    first_task_of: str | None = None
    # forward passes of one image at prediction, see `Method.prediction_passes`; None in older records
    prediction_passes: int | None = None
    # of `learn_seconds` those of training, the rest is of statistics; None in older records
    training_seconds: float | None = None
    # of all threads of the run's process while it learned and evaluated the task; None in older records
    processor_seconds: float | None = None
    # what learning it did to old tasks' images, where it was asked for, and what measuring that took
    diagnosis: Diagnosis | None = None
    diagnose_seconds: float | None = None

    def outcome(self) -> dict:
        """The values that must be equal, bit for bit, whenever the run is repeated on the same machine."""
        left_out = {
            "learn_seconds", "evaluate_seconds", "training_seconds", "processor_seconds", "peak_memory_bytes",
            "first_task_of", "diagnose_seconds",
        }  # fmt: skip
        return self.model_dump(mode="json", exclude=left_out)


class Certificate(Strict):
    """Predictions of the finished method for test images alone, in batches in stream order, and shuffled."""

    images: int
    batch: int
    changed_in_batches: int  # predictions that differ from those for the image alone
    changed_when_shuffled: int
    right_alone: int
    right_in_batches: int
    right_when_shuffled: int

    @property
    def inductive(self) -> bool:
        """Whether no prediction depends on the batch."""
        return self.changed_in_batches == self.changed_when_shuffled == 0

    def sentence(self) -> str:
        """The finding as one line."""
        of, batches = f"of {self.images} test images", f"in batches of {self.batch}"
        if self.inductive:
            return f"inductive: {of} none is predicted otherwise alone, {batches} or shuffled"
        changed = f"{self.changed_in_batches} are predicted otherwise {batches} in stream order than alone"
        right = f"right alone {self.right_alone}, in batches {self.right_in_batches}"
        return (
            f"NOT inductive: {of} {changed}, {self.changed_when_shuffled} when shuffled; "
            f"{right}, shuffled {self.right_when_shuffled}"
        )


class RunRecord(Strict):
    """A run's specification and its tasks so far; written after every task."""

    spec: RunSpec
    # running: begun and not finished, also where it was stopped; see `cl_bench.records.states`
    status: Literal["running", "done", "failed"]
    failure: str | None = None  # why it failed or, as far as known, stopped
    test_sizes: tuple[int, ...]
    # evaluation images that are pixel for pixel among those learned; None: nobody has counted
    duplicates: int | None = None
    tasks: tuple[TaskRecord, ...] = ()
    threads: int
    environments: tuple[dict[str, Any], ...]  # one per start of the run
    certificate: Certificate | None = None  # made when the last task is learned
    certificate_seconds: float | None = None  # None in older records

    @property
    def correct(self) -> list[list[int]]:
        """The accuracy matrix as counts, one row per task learned."""
        return [list(task.correct) for task in self.tasks]

    def measured(self, name: str) -> list[float] | None:
        """A value of the diagnosis of each task after the first; None where not every one has it."""
        values = [task.diagnosis.mean(name) if task.diagnosis else None for task in self.tasks[1:]]
        known = [value for value in values if value is not None]
        return known if known and len(known) == len(values) else None

    def outcome(self) -> dict:
        """What an interrupted and an uninterrupted run must agree on."""
        return {
            "spec": self.spec.identity(),
            "test_sizes": list(self.test_sizes),
            "tasks": [task.outcome() for task in self.tasks],
        }
