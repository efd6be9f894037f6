"""What a specification stands for: its data set, its stream and its method, ready to be learned."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import torch

from cl_bench import environment
from cl_bench.config import canonical_json
from cl_bench.data.feature_store import FeatureStore
from cl_bench.data.images import ImageSet, resident
from cl_bench.data.preprocess import Preprocess
from cl_bench.data.source import Source
from cl_bench.data.stream import EVALUATION_BATCH, NO_STORES, Sides, Stream, StreamInfo
from cl_bench.data.subset import held_out, limited
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.nn.kernel import compile_all, plain_all
from cl_bench.nn.weights import file_digest
from cl_bench.plugins import registry
from cl_bench.records.run_files import Say
from cl_bench.records.spec import CORE_VERSIONS, RunSpec
from cl_bench.training.method import Method


def open_source(spec: RunSpec) -> Source:
    """The data set of a specification.

    Raises InputError when it is not the one the specification was made for.
    """
    source = (
        registry.find_for("datasets", spec.dataset, spec.plugins.get("datasets"))
        .load()
        .SOURCE(spec.dataset_argument)
    )
    if source.manifest_digest() != spec.manifest_digest:
        changed = f"data set {spec.dataset!r} has changed since this run was planned"
        raise InputError(f"{changed}; plan it again with `cl-bench run`")
    if spec.text_sha256 not in (None, source.text_digest()):
        changed = f"the class names or sentences of {spec.dataset!r} have changed since this run was planned"
        raise InputError(f"{changed}; plan it again with `cl-bench run`")
    return source


def decode(specs: list[RunSpec]) -> None:
    """Build every image cache that the runs will map, once and with progress, before they start."""
    needed = {
        canonical_json([s.dataset, s.dataset_argument, s.transform.model_dump(), s.backbone.image_size]): s
        for s in specs
    }
    for spec in needed.values():
        split_images(open_source(spec), spec)


def build_stream(
    spec: RunSpec, source: Source, device: torch.device, stores: Mapping[str, FeatureStore] = NO_STORES
) -> Stream:
    """The stream of a specification; images that fit lie in a GPU's memory, unless Pillow augments them."""
    preprocess, sides = (
        Preprocess(spec.backbone, spec.transform, spec.data_seed, device),
        split_images(source, spec),
    )
    names = ("train", "test", "train_evaluated")[preprocess.uses_pillow :]
    moved = resident([getattr(sides, name) for name in names], device)
    return Stream(
        replace(sides, **dict(zip(names, moved, strict=True))),
        spec.task_classes,
        preprocess,
        spec.joint,
        source.text_names(),
        stores,
        spec.online,
    )


def feature_stores(spec: RunSpec, device: torch.device, compiled: bool) -> dict[str, FeatureStore]:
    """Where a stream keeps features of the run's images in frozen networks, which are compiled or not."""
    enters = spec.transform.model_dump(include={"resize", "interpolation", "normalisation"})
    backbone = spec.backbone
    shared = {
        "images": spec.manifest_digest,
        "input": {**enters, "size": backbone.image_size, "mean": backbone.mean, "std": backbone.std},
        "machine": environment.machine(str(device), torch.get_num_threads(), compiled),
    }
    chosen = {"validation": spec.validation, "limit": spec.limit}
    chosen |= {"data_seed": spec.data_seed} if spec.validation else {}
    return {side: FeatureStore({**shared, "side": side, **chosen}) for side in ("train", "test")}


def split_images(source: Source, spec: RunSpec) -> Sides:
    """The images a run learns and is evaluated on; with `validation` all come from the training side.

    `limit` then thins what is learned.
    """

    def evaluated(side: str) -> ImageSet:
        return source.evaluated(side, spec.transform, spec.backbone.image_size)

    plain = evaluated("train")
    rows, held = training_rows(spec, plain.labels)
    test = evaluated("test") if held is None else plain.select(held)
    learned = plain.select(rows)
    same = spec.transform.augment == "none" or not plain.ready
    return Sides(learned if same else source.images("train").select(rows), learned, test)


def training_rows(spec: RunSpec, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Which rows of the training side, by its labels, a run learns, and which it is evaluated on.

    None for the latter: it is evaluated on the test side.
    """
    rows, held = np.arange(len(labels)), None
    if spec.validation:
        rows, held = held_out(labels, spec.validation, spec.data_seed)
    if spec.limit:
        rows = rows[limited(labels[rows], spec.limit)]
    return rows, held


def build_method(spec: RunSpec, source: Source, device: torch.device, num_tasks: int) -> Method:
    """The method on its frozen backbone.

    Raises InputError when the weights are not those the specification was made for.
    """
    kind = registry.find_for("methods", spec.method, spec.plugins.get("methods")).load().METHOD
    current = CORE_VERSIONS[spec.precision]
    if spec.core_version != current:
        planned = f"the run was planned for core version {spec.core_version}, this is {current}"
        raise InputError(f"{planned}; plan it again with `cl-bench run`")
    if kind.version != spec.method_version:
        planned = f"the run was planned for version {spec.method_version}"
        raise InputError(f"{spec.method} is now version {kind.version}, {planned}; plan it again")
    backbone = load.load(spec.backbone)
    if backbone.weights_sha256 != spec.weights_sha256:
        by_file = spec.backbone.weights and file_digest(spec.backbone.weights) == spec.weights_sha256
        changed = (
            "were named by their file when this run was planned, and now are by their tensors"
            if by_file
            else "have changed since this run was planned"
        )
        raise InputError(
            f"the weights of {spec.backbone.name!r} {changed}; plan it again with `cl-bench run`"
        )
    info = StreamInfo(
        spec.init_seed, num_tasks, source.TEMPLATES, tuple(len(classes) for classes in spec.task_classes)
    )
    return kind(kind.Config.model_validate(spec.options), backbone.to(device), info)


def batch_sizes(method: Method, processes: int, micro_batch: int | None) -> set[int]:
    """How many images pass through the network at a time, but for the last ones of a pass."""
    batch = getattr(method.config, "batch", EVALUATION_BATCH)
    learned = {micro_batch} if micro_batch else {-(-batch // processes), batch // processes}
    return {*learned, micro_batch or EVALUATION_BATCH, getattr(method, "statistics_batch", EVALUATION_BATCH)}


def prepare_kernels(compiled: bool, say: Say, sizes: Collection[int] = ()) -> None:
    """Compile the frozen blocks for these batches or not, and compute in full precision.

    TF32 would make small singular values noise.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if compiled:
        compile_all(say, sizes)
    else:
        plain_all()
