"""What a run is (RunSpec), and what came out of it (RunRecord)."""

import hashlib
from pathlib import Path
from typing import Any, Literal

from cl_bench.config import BackboneSpec, Strict, Transform, canonical_json

Precision = Literal["fp32", "bf16"]
# by precision; raise it when a change outside a method's file changes results: stream, transforms, trainer,
# backbone, shared blocks
CORE_VERSIONS: dict[Precision, int] = {"fp32": 3, "bf16": 4}


# fields of a specification that are no identity
CARRIED = {
    "dataset_argument",
    "data",
    "label",
    "display",
    "smoke",
    "keeps",
    "as_published",
    "command",
    "losses",
}
VERSIONS = ("core_version", "method_version", "precision")  # of a run's identity: what it was computed by


class RunSpec(Strict):
    """Everything that decides a run's outcome, fully resolved. Paths, labels and names are carried but are not identity."""

    core_version: int
    method: str
    method_version: int
    options: dict[str, Any]
    dataset: str
    dataset_argument: str | None = None
    manifest_digest: str
    data: dict[str, Any] = {}  # the manifest, whose digest this is: of contents, and how images are decoded
    task_classes: tuple[tuple[int, ...], ...]  # class order, cut into tasks
    joint: bool = False  # all classes learned as one task, evaluated per task
    order: str = "nsp2"  # kind of class order, see `cl_bench.data.order`
    order_seed: int | None
    init_seed: int
    data_seed: int
    backbone: BackboneSpec
    weights_sha256: str
    plugins: dict[
        str, str
    ] = {}  # "methods" and "datasets" -> digest of the file that brought the method or data set, where it is the user's own
    text_sha256: str | None = None  # of class names and sentences, where the backbone reads text
    transform: Transform
    precision: Precision = "fp32"  # of the frozen network in training and evaluation
    limit: int | None = None  # at most this many training images in all: a trial
    validation: float | None = (
        None  # fraction of the training images held out and evaluated on instead of the test set
    )
    label: str  # the method with the options that differ from the benchmark's preset
    display: str  # the method's name in tables
    smoke: bool = False
    keeps: str = ""  # what the method keeps of old tasks' images, see `Method.keeps`
    as_published: tuple[str, ...] = ()  # what `as_published` set, such as "batchwise_eval=on"
    command: str = ""  # that makes this run alone; its settings above are exact, this is how to ask for them
    losses: bool = False  # whether the training losses of the first two tasks are measured after every task

    @property
    def num_tasks(self) -> int:
        """Number of tasks that are evaluated."""
        return len(self.task_classes)

    @property
    def num_learned(self) -> int:
        """Number of tasks that are learned: one where all classes are learned at once."""
        return 1 if self.joint else self.num_tasks

    def identity(self) -> dict:
        """The JSON values that are hashed: a change in any of them is another run."""
        values = self.model_dump(mode="json", exclude=CARRIED)
        values["backbone"].pop("weights")
        if not values["plugins"]:  # what the package brings has versions
            values.pop("plugins")
        if (
            values["transform"]["augmenter"] == "batched" or values["transform"]["augment"] == "none"
        ):  # older records, without it, keep their ids
            values["transform"].pop("augmenter")
        return values

    def order_name(self) -> str:
        """The class order's seed, or its kind where it has none."""
        return self.order if self.order_seed is None else str(self.order_seed)

    def seed_name(self) -> str:
        """The seed, or class order/init/data seeds where they differ."""
        seeds = (self.order_name(), str(self.init_seed), str(self.data_seed))
        return seeds[0] if len(set(seeds)) == 1 else "/".join(seeds)

    def run_id(self) -> str:
        """sha256 of the canonical JSON of the identity, first 16 hexadecimal digits."""
        return digest(self.identity())[:16]

    def family_id(self) -> str:
        """As run_id, but the same for all seeds and class orders: the runs whose mean a table prints."""
        seeded = {"order_seed", "init_seed", "data_seed", "task_classes"}
        values = {key: value for key, value in self.identity().items() if key not in seeded}
        return digest({**values, "task_sizes": [len(classes) for classes in self.task_classes]})[:16]

    def twin_id(self) -> str:
        """As run_id, but the same whatever the versions, the precision and the options."""
        return digest(
            {key: value for key, value in self.identity().items() if key not in ("options", *VERSIONS)}
        )[:16]

    def benchmark_id(self) -> str:
        """The same for all runs that may stand in one table: data, split sizes, backbone, trial limits."""
        return digest({
            "dataset": self.dataset, "manifest": self.manifest_digest, "task_sizes": [len(classes) for classes in self.task_classes],
            "weights": self.weights_sha256, "image_size": self.backbone.image_size, "limit": self.limit, "validation": self.validation,
        })[:16]  # fmt: skip

    def benchmark_argument(self, depth: int = 1) -> str:
        """The name of a folder of images after a colon, with so many parts of its path; "" for other data sets."""
        if not self.dataset_argument:
            return ""
        path, _, options = self.dataset_argument.partition("?")
        return (
            ":"
            + str(Path(*Path(path).parts[-depth:]))
            + ("?nested" if "nested" in options.split("&") else "")
        )

    def benchmark_key(self, depth: int = 1) -> str:
        """Data set and number of tasks, such as "glyphs/10"."""
        return f"{self.dataset}{self.benchmark_argument(depth)}/{self.num_tasks}"

    def is_called(self, benchmark: str) -> bool:
        """Whether a name is this benchmark's: a folder may be left out, or named by as much of its path as tells it apart."""
        parts = Path(self.dataset_argument or "").parts
        return benchmark == f"{self.dataset}/{self.num_tasks}" or benchmark in [
            self.benchmark_key(depth + 1) for depth in range(max(1, len(parts)))
        ]

    def benchmark_name(self, depth: int = 1) -> str:
        """Such as "glyphs/10", with every deviation from the full protocol spelled out."""
        marks = [f"trial: at most {self.limit} training images"] if self.limit else []
        marks += (
            [
                f"validation: {self.validation:.0%} of the training images held out and evaluated on, not the test set"
            ]
            if self.validation
            else []
        )
        marks += ["smoke benchmark"] if self.smoke else []
        return self.benchmark_key(depth) + (f" ({'; '.join(marks)})" if marks else "")


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
    micro_batch: int | None = (
        None  # images that went through the network at a time, where memory did not suffice for a batch
    )
    kept_losses: tuple[float, ...] | None = (
        None  # see `Method.mean_loss`: of tasks 1 and 2, as far as learned, where it was asked for
    )
    first_task_of: str | None = (
        None  # the run that trained this first task, where several share it; its seconds are counted here too
    )

    def outcome(self) -> dict:
        """The values that must be equal, bit for bit, whenever the run is repeated on the same machine."""
        return self.model_dump(
            mode="json", exclude={"learn_seconds", "evaluate_seconds", "peak_memory_bytes", "first_task_of"}
        )


class Certificate(Strict):
    """Predictions of the finished method for test images one at a time, in batches in stream order, and in shuffled batches."""

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
        if self.inductive:
            return f"inductive: of {self.images} test images none is predicted otherwise alone, in batches of {self.batch} or shuffled"
        return (
            f"NOT inductive: of {self.images} test images {self.changed_in_batches} are predicted otherwise in batches of {self.batch} in stream "
            f"order than alone, {self.changed_when_shuffled} when shuffled; right alone {self.right_alone}, in batches {self.right_in_batches}, "
            f"shuffled {self.right_when_shuffled}"
        )


class RunRecord(Strict):
    """A run's specification and its tasks so far; written after every task."""

    spec: RunSpec
    status: Literal[
        "running", "done", "failed"
    ]  # running: begun and not finished, also where it was stopped; see `cl_bench.records.states`
    failure: str | None = None  # why it failed or, as far as known, stopped
    test_sizes: tuple[int, ...]
    duplicates: int | None = (
        None  # evaluation images that are pixel for pixel among those learned; None: nobody has counted
    )
    tasks: tuple[TaskRecord, ...] = ()
    threads: int
    environments: tuple[dict[str, Any], ...]  # one per start of the run
    certificate: Certificate | None = None  # made when the last task is learned

    @property
    def correct(self) -> list[list[int]]:
        """The accuracy matrix as counts, one row per task learned."""
        return [list(task.correct) for task in self.tasks]

    def outcome(self) -> dict:
        """What an interrupted and an uninterrupted run must agree on."""
        return {
            "spec": self.spec.identity(),
            "test_sizes": list(self.test_sizes),
            "tasks": [task.outcome() for task in self.tasks],
        }


def digest(value) -> str:
    """sha256 of the value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def name(spec: RunSpec) -> str:
    """Such as "vpt-nsp2[eta=0.9] glyphs/10 seed 2024", with "trial" or "validation" where it is one."""
    marks = (" trial" if spec.limit else "") + (" validation" if spec.validation else "")
    return f"{spec.label} {spec.dataset}/{spec.num_tasks}{marks} seed {spec.seed_name()}"
