"""What a run is: its specification, and the names and identities made of it."""

import hashlib
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cl_bench import splits
from cl_bench.config import BackboneSpec, Strict, Transform, canonical_json

Precision = Literal["fp32", "bf16"]
# by precision; raise it when a change outside a method's file changes results: stream, transforms, trainer,
# backbone, shared blocks
CORE_VERSIONS: dict[Precision, int] = {"fp32": 3, "bf16": 4}
# fields of a specification that are no identity
CARRIED = {
    "dataset_argument", "data", "label", "display", "smoke", "keeps", "reconstruction", "as_published",
    "command", "losses", "diagnose",
}  # fmt: skip
VERSIONS = ("core_version", "method_version", "precision")  # of a run's identity: what it was computed by


class RunSpec(Strict):
    """Everything that decides a run's outcome, fully resolved.

    Paths, labels and names are carried but are not identity.
    """

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
    online: bool = False  # every training image is shown once
    order: str = "nsp2"  # kind of class order, see `cl_bench.data.order`
    order_seed: int | None
    init_seed: int
    data_seed: int
    backbone: BackboneSpec
    weights_sha256: str
    # "methods" and "datasets" -> digest of the file that brought the method or data set, where it is a user's
    # own
    plugins: dict[str, str] = {}
    text_sha256: str | None = None  # of class names and sentences, where the backbone reads text
    transform: Transform
    precision: Precision = "fp32"  # of the frozen network in training and evaluation
    limit: int | None = None  # at most this many training images in all: a trial
    # fraction of the training images that is held out and evaluated on instead of the test set
    validation: float | None = None
    label: str  # the method with the options that differ from the benchmark's preset
    display: str  # the method's name in tables
    smoke: bool = False
    keeps: str = ""  # what the method keeps of old tasks' images, see `Method.keeps`
    reconstruction: bool = False  # whether the method was made from a paper alone, for want of public code
    as_published: tuple[str, ...] = ()  # what `as_published` set, such as "batchwise_eval=on"
    command: str = ""  # that makes this run alone; its settings above are exact, this is how to ask for them
    losses: bool = False  # whether the training losses of the first two tasks are measured after every task
    diagnose: bool = False  # whether what every task does to old images is measured

    def __hash__(self) -> int:
        """Of what tells most runs apart: `options` is a dictionary, which has no hash."""
        return hash(
            (self.label, self.dataset, self.num_tasks, self.order_seed, self.init_seed, self.data_seed)
        )

    @property
    def num_tasks(self) -> int:
        """Number of tasks that are evaluated."""
        return len(self.task_classes)

    @property
    def split(self) -> str:
        """How its classes are cut into tasks and shown, such as "10", "B50-Inc10" or "10-online"."""
        cut = splits.name([len(classes) for classes in self.task_classes])
        return splits.online(cut) if self.online else cut

    @property
    def num_learned(self) -> int:
        """Number of tasks that are learned: one where all classes are learned at once."""
        return 1 if self.joint else self.num_tasks

    def identity(self) -> dict:
        """The JSON values that are hashed: a change in any of them is another run."""
        values = self.model_dump(mode="json", exclude=CARRIED)
        for file in ("weights", "text_weights"):
            values["backbone"].pop(file)
        if not values["plugins"]:  # what the package brings has versions
            values.pop("plugins")
        if not self.online:  # older records, without it, keep their ids
            values.pop("online")
        transform = values["transform"]
        if transform["augmenter"] == "batched" or transform["augment"] == "none":
            transform.pop("augmenter")  # older records, without it, keep their ids
        return values

    def order_name(self) -> str:
        """The class order's seed, with its kind where that is not the published code's, or the kind alone."""
        if self.order_seed is None:
            return self.order
        return str(self.order_seed) if self.order == "nsp2" else f"{self.order}:{self.order_seed}"

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
        found = self.identity().items()
        return digest({key: value for key, value in found if key not in ("options", *VERSIONS)})[:16]

    def benchmark_id(self) -> str:
        """The same for all runs that may stand in one table: data, split sizes, backbone, trial limits."""
        facts = {
            "dataset": self.dataset,
            "manifest": self.manifest_digest,
            "task_sizes": [len(classes) for classes in self.task_classes],
            "weights": self.weights_sha256,
            "image_size": self.backbone.image_size,
            "limit": self.limit,
            "validation": self.validation,
        }
        return digest({**facts, "online": True} if self.online else facts)[:16]

    def benchmark_argument(self, depth: int = 1) -> str:
        """A colon and the last parts of a folder's path, so many; "" for data sets that are no folder."""
        if not self.dataset_argument:
            return ""
        path, _, options = self.dataset_argument.partition("?")
        nested = "?nested" if "nested" in options.split("&") else ""
        return f":{Path(*Path(path).parts[-depth:])}{nested}"

    def benchmark_key(self, depth: int = 1) -> str:
        """Data set and split, such as "glyphs/10"."""
        return f"{self.dataset}{self.benchmark_argument(depth)}/{self.split}"

    def is_called(self, benchmark: str) -> bool:
        """Whether a name is this benchmark's: a folder may be left out, or named by any end of its path."""
        parts = Path(self.dataset_argument or "").parts
        keys = [self.benchmark_key(depth + 1) for depth in range(max(1, len(parts)))]
        return benchmark in (f"{self.dataset}/{self.split}", *keys)

    def benchmark_name(self, depth: int = 1) -> str:
        """Such as "glyphs/10", with every deviation from the full protocol spelled out."""
        marks = [f"trial: at most {self.limit} training images"] if self.limit else []
        if self.validation:
            held_out = f"{self.validation:.0%} of the training images held out and evaluated on"
            marks.append(f"validation: {held_out}, not the test set")
        marks += ["every training image is shown once"] if self.online else []
        marks += ["smoke benchmark"] if self.smoke else []
        return self.benchmark_key(depth) + (f" ({'; '.join(marks)})" if marks else "")


class Size(NamedTuple):
    """How much a run is to do: forward-equivalents in all, and images that pass while it learns."""

    forwards: int
    images: int


def digest(value) -> str:
    """sha256 of the value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def name(spec: RunSpec) -> str:
    """Such as "vpt-nsp2[eta=0.9] glyphs/10 seed 2024", with "trial" or "validation" where it is one."""
    marks = (" trial" if spec.limit else "") + (" validation" if spec.validation else "")
    return f"{spec.label} {spec.benchmark_key()}{marks} seed {spec.seed_name()}"
