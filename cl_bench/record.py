"""What a run is (RunSpec), what came out of it (RunRecord), and the folder that keeps both (Store)."""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from cl_bench.config import BackboneSpec, Strict, Transform, canonical_json
from cl_bench.errors import InputError

CORE_VERSION = 2  # raise it when a change outside a method's file changes results: stream, transforms, trainer, backbone, shared blocks


class RunSpec(Strict):
    """Everything that decides a run's outcome, fully resolved. Paths, labels and names are carried but are not identity."""

    core_version: int = CORE_VERSION
    method: str
    method_version: int
    options: dict[str, Any]
    dataset: str
    dataset_argument: str | None = None
    manifest_digest: str
    task_classes: tuple[tuple[int, ...], ...]  # class order, cut into tasks
    joint: bool = False  # all classes learned as one task, evaluated per task
    order: str = "nsp2"  # kind of class order, see `cl_bench.order`
    order_seed: int | None
    init_seed: int
    data_seed: int
    backbone: BackboneSpec
    weights_sha256: str
    text_sha256: str | None = None  # of class names and sentences, where the backbone reads text
    transform: Transform
    precision: Literal["fp32", "bf16"] = "fp32"
    limit: int | None = None  # at most this many training images in all: a trial
    validation: float | None = None  # fraction of the training images held out and evaluated on instead of the test set
    label: str  # the method with the options that differ from the benchmark's preset
    display: str  # the method's name in tables
    smoke: bool = False
    as_published: tuple[str, ...] = ()  # what `as_published` set, such as "batchwise_eval=on"

    @property
    def num_tasks(self) -> int:
        """Number of tasks that are evaluated."""
        return len(self.task_classes)

    def identity(self) -> dict:
        """The JSON values that are hashed: a change in any of them is another run."""
        values = self.model_dump(mode="json", exclude={"dataset_argument", "label", "display", "smoke", "as_published"})
        values["backbone"].pop("weights")
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
        return _digest(self.identity())[:16]

    def family_id(self) -> str:
        """As run_id, but the same for all seeds and class orders: the runs whose mean a table prints."""
        seeded = {"order_seed", "init_seed", "data_seed", "task_classes"}
        values = {key: value for key, value in self.identity().items() if key not in seeded}
        return _digest({**values, "task_sizes": [len(classes) for classes in self.task_classes]})[:16]

    def benchmark_id(self) -> str:
        """The same for all runs that may stand in one table: data, split sizes, backbone, trial limits."""
        return _digest({
            "dataset": self.dataset, "manifest": self.manifest_digest, "task_sizes": [len(classes) for classes in self.task_classes],
            "weights": self.weights_sha256, "image_size": self.backbone.image_size, "limit": self.limit, "validation": self.validation,
        })[:16]  # fmt: skip

    def benchmark_name(self) -> str:
        """Such as "glyphs/10", with every deviation from the full protocol spelled out."""
        argument = f":{Path(self.dataset_argument).name}" if self.dataset_argument else ""
        marks = [f"trial: at most {self.limit} training images"] if self.limit else []
        marks += [f"validation: {self.validation:.0%} of the training images held out and evaluated on, not the test set"] if self.validation else []
        marks += ["smoke benchmark"] if self.smoke else []
        return f"{self.dataset}{argument}/{self.num_tasks}" + (f" ({'; '.join(marks)})" if marks else "")


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

    def outcome(self) -> dict:
        """The values that must be equal, bit for bit, whenever the run is repeated on the same machine."""
        return self.model_dump(mode="json", exclude={"learn_seconds", "evaluate_seconds", "peak_memory_bytes"})


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
    status: Literal["running", "done", "failed"]
    failure: str | None = None
    test_sizes: tuple[int, ...]
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
        return {"spec": self.spec.identity(), "test_sizes": list(self.test_sizes), "tasks": [task.outcome() for task in self.tasks]}


class DamagedRecord(Exception):
    """A record that is truncated, was edited by hand, or does not belong to its folder."""


def _digest(value) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside `path`, fsync, rename: a reader sees the old content or the new, never a part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read_spec(path: Path) -> RunSpec:
    """A specification from its JSON file. Raises InputError."""
    try:
        return RunSpec.model_validate_json(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a run specification: {str(error).splitlines()[0]}") from error


def write_spec(spec: RunSpec, folder: Path) -> Path:
    """Write spec.json into the run's folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "spec.json"
    write_atomically(path, json.dumps(spec.model_dump(mode="json"), indent=1).encode())
    return path


class Store:
    """A results folder: `runs/<method>-<run id>/` holds record.json, the newest checkpoint, predictions.npz, log.txt."""

    def __init__(self, root: Path):
        self.root = Path(root)

    def prepare(self) -> None:
        """Create the folder; raises InputError when it cannot be written."""
        try:
            (self.root / "runs").mkdir(parents=True, exist_ok=True)
            probe = self.root / "runs" / f".writable.{os.getpid()}"
            write_atomically(probe, b"")
            probe.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot write the results folder {self.root}: {error.strerror or error}; free space or choose another with --results"
            ) from error

    def folder(self, spec: RunSpec) -> Path:
        """The run's own folder (it may not exist yet)."""
        return self.root / "runs" / f"{spec.method}-{spec.run_id()}"

    def load(self, spec: RunSpec) -> RunRecord | None:
        """The run's record, None if there is none. Raises DamagedRecord."""
        path = self.folder(spec) / "record.json"
        return read_record(path) if path.exists() else None

    def save(self, record: RunRecord) -> None:
        """Write the record atomically, sealed with the digest of its content."""
        content = record.model_dump(mode="json")
        text = json.dumps({"digest": _digest(content), "run_id": record.spec.run_id(), "record": content}, indent=1)
        write_atomically(self.folder(record.spec) / "record.json", text.encode())

    def find(self, run: str) -> RunSpec:
        """The specification of the recorded run with this id, unique beginning of an id, or folder. Raises InputError."""
        name, ids = Path(run).name, {path.parent: path.parent.name.rpartition("-")[2] for path in sorted((self.root / "runs").glob("*/record.json"))}
        found = [folder for folder, run_id in ids.items() if name in (folder.name, run_id)]
        found = found or [folder for folder, run_id in ids.items() if name and run_id.startswith(name)]
        if len(found) != 1:
            what = f"{len(found)} runs begin with" if found else "no run is called"
            raise InputError(f"{what} {run!r} in {self.root}; `cl-bench ls runs` lists their ids")
        try:
            return read_record(found[0] / "record.json").spec
        except DamagedRecord as error:
            raise InputError(f"{error}; `cl-bench run` with its options starts it again") from error

    def set_aside(self, spec: RunSpec) -> Path:
        """Move record, checkpoints and predictions out of the run's folder into a new one beside it; returns that."""
        folder = self.folder(spec)
        aside = folder.with_name(f"{folder.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        aside.mkdir()
        for path in folder.iterdir():
            if path.name in ("record.json", "predictions.npz") or path.name.startswith("checkpoint-"):
                path.rename(aside / path.name)
        return aside

    def records(self) -> Iterator[RunRecord | tuple[Path, str]]:
        """Every record in the folder; for a damaged one its path and the reason."""
        for path in sorted((self.root / "runs").glob("*/record.json")):
            if ".damaged-" in path.parent.name:
                continue
            try:
                yield read_record(path)
            except DamagedRecord as error:
                yield path, str(error)


def read_record(path: Path) -> RunRecord:
    """The record in a file. Raises DamagedRecord when it is not exactly what `Store.save` wrote."""
    try:
        sealed = json.loads(path.read_text())
        record = RunRecord.model_validate_json(json.dumps(sealed["record"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{error.error_count()} bad values" if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"
        raise DamagedRecord(f"{path} is truncated or not a record ({reason})") from error
    if sealed.get("digest") != _digest(sealed["record"]):
        raise DamagedRecord(f"{path} was changed after it was written (its content does not match its digest)")
    if sealed.get("run_id") != record.spec.run_id():
        raise DamagedRecord(f"{path} does not belong to its run id")
    return record
