"""What there is and what a plan would do, as lines of text."""

import hashlib

import numpy as np

from cl_bench.config import canonical_json
from cl_bench.plugins import registry
from cl_bench.records.spec import RunSpec
from cl_bench.records.states import State, of_plan
from cl_bench.records.store import Store


def plan_lines(plan, store: Store, places: list[str], states: dict[str, State] | None = None) -> list[str]:
    """The runs of a plan with their state, the protocol of every benchmark, and what deserves a look."""
    lines, warnings, states = list(plan.remarks), list(plan.warnings), states or of_plan(plan.specs, store)
    for spec in _one_per_benchmark(plan.specs):
        found, suspicious = _protocol(spec)
        lines += found
        warnings += suspicious
    lines.append(f"{len(plan.specs)} runs on {', '.join(places)}, results in {store.root}:")
    for spec in plan.specs:
        run_id = spec.run_id()
        benchmark = f"{spec.benchmark_key()}  seed {spec.seed_name()}"
        lines.append(f"  {states[run_id].words:<18} {run_id}  {spec.label}  {benchmark}")
    return lines + ([f"warning: {warning}" for warning in warnings] or ["nothing wrong found"])


def _one_per_benchmark(specs: list[RunSpec]) -> list[RunSpec]:
    return list({spec.benchmark_id(): spec for spec in reversed(specs)}.values())[::-1]


def _protocol(spec: RunSpec) -> tuple[list[str], list[str]]:
    """What a benchmark is made of, and what is suspicious about it."""
    from cl_bench.run.assemble import split_images
    from cl_bench.run.duplicates import duplicates

    source = registry.source_class(spec.dataset)(spec.dataset_argument)
    sides, name = split_images(source, spec), spec.benchmark_name()
    labels = {"training": sides.train_evaluated.labels, "evaluation": sides.test.labels}
    lines, warnings = [], []
    classes = [c for task in spec.task_classes for c in task]
    order = hashlib.sha256(canonical_json(classes).encode()).hexdigest()[:12]
    sizes = [len(task) for task in spec.task_classes]
    each = ", ".join(map(str, sizes if len(set(sizes)) > 1 else sizes[:1]))
    tasks = f"{len(source.class_names)} classes in {spec.num_tasks} tasks of {each}"
    lines.append(f"{name}: {tasks}, class order {order} ({spec.order_name()})")
    counts = {side: _counts(found, spec) for side, found in labels.items()}
    for side, images in counts.items():
        spread = f"smallest {min(images)}, median {int(np.median(images))}, largest {max(images)}"
        lines.append(f"  {side} images a task: {spread}; {sum(images)} in all")
    batch = spec.options.get("batch", 1)
    small = sum(count < batch for count in counts["training"])
    if small:
        smallest = f"the smallest has {min(counts['training'])}"
        fewer = f"{small} of {spec.num_tasks} tasks have fewer training images than a batch of {batch}"
        warnings.append(f"{name}: {fewer}; {smallest}")
    for side, found in labels.items():
        absent = [source.class_names[c] for c in sorted(set(classes) - set(found.tolist()))]
        if absent:
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            named = ", ".join(absent[:3]) + more
            warnings.append(f"{name}: {len(absent)} classes have no {side} image: {named}")
    same = duplicates(spec, source)
    if same:
        warnings.append(f"{name}: {same} evaluation images are pixel for pixel training images too")
    return lines + _inputs(spec), warnings


def _counts(labels: np.ndarray, spec: RunSpec) -> list[int]:
    """Images of every task."""
    return [int(np.isin(labels, classes).sum()) for classes in spec.task_classes]


def _inputs(spec: RunSpec) -> list[str]:
    """What the network is, and what its inputs are made by."""
    backbone, transform = spec.backbone, spec.transform
    training = f"augment={transform.augment}"
    if transform.augment != "none":
        training += f", crop_scale={transform.crop_scale:g}, augmenter={transform.augmenter}"
    if transform.augment.startswith("autoaugment"):
        training += f", crop_interpolation={transform.crop_interpolation}"
    return [
        f"  backbone {backbone.name} ({spec.weights_sha256[:12]}) in {spec.precision}",
        f"  input {backbone.image_size} px, mean {backbone.mean}, std {backbone.std}",
        f"  training transform: {training}",
        f"  evaluation transform: resize={transform.resize}, interpolation={transform.interpolation}",
    ]
