"""What there is and what a plan would do, as lines of text."""

import hashlib

import numpy as np

from cl_bench import registry
from cl_bench.config import canonical_json
from cl_bench.records.record import RunSpec
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
        lines.append(
            f"  {states[spec.run_id()].words:<18} {spec.run_id()}  {spec.label}  {spec.dataset}/{spec.num_tasks}  seed {spec.seed_name()}"
        )
    return [*lines, *(f"warning: {warning}" for warning in warnings)] + (
        [] if warnings else ["nothing wrong found"]
    )


def _one_per_benchmark(specs: list[RunSpec]) -> list[RunSpec]:
    return list({spec.benchmark_id(): spec for spec in reversed(specs)}.values())[::-1]


def _protocol(spec: RunSpec) -> tuple[list[str], list[str]]:
    """What a benchmark is made of, and what is suspicious about it."""
    from cl_bench.run.assemble import split_images
    from cl_bench.run.duplicates import duplicates

    source = registry.source_class(spec.dataset)(spec.dataset_argument)
    sides = split_images(source, spec)
    train, test, name = sides.train_evaluated, sides.test, spec.benchmark_name()
    counts = [
        [int(np.isin(side.labels, classes).sum()) for classes in spec.task_classes] for side in (train, test)
    ]
    order = hashlib.sha256(
        canonical_json([c for classes in spec.task_classes for c in classes]).encode()
    ).hexdigest()[:12]
    backbone, transform, batch = spec.backbone, spec.transform, spec.options.get("batch", 1)
    tasks = f"{len(source.class_names)} classes in {spec.num_tasks} tasks of {len(spec.task_classes[0])}"
    lines = [f"{name}: {tasks}, class order {order} ({spec.order_name()})"]
    for side, found in zip(("training", "evaluation"), counts, strict=True):
        spread = f"smallest {min(found)}, median {int(np.median(found))}, largest {max(found)}"
        lines.append(f"  {side} images a task: {spread}; {sum(found)} in all")
    lines.append(f"  backbone {backbone.name} ({spec.weights_sha256[:12]}) in {spec.precision}")
    lines.append(f"  input {backbone.image_size} px, mean {backbone.mean}, std {backbone.std}")
    crop = f", crop_scale={transform.crop_scale:g}" if transform.augment != "none" else ""
    crop += f", augmenter={transform.augmenter}" if transform.augment != "none" else ""
    crop += (
        f", crop_interpolation={transform.crop_interpolation}"
        if transform.augment.startswith("autoaugment")
        else ""
    )
    lines.append(f"  training transform: augment={transform.augment}{crop}")
    lines.append(
        f"  evaluation transform: resize={transform.resize}, interpolation={transform.interpolation}"
    )
    warnings = []
    small = sum(count < batch for count in counts[0])
    if small:
        smallest = f"the smallest has {min(counts[0])}"
        warnings.append(
            f"{name}: {small} of {spec.num_tasks} tasks have fewer training images than a batch of {batch}; {smallest}"
        )
    for side, labels in (("training", train.labels), ("evaluation", test.labels)):
        absent = [
            source.class_names[c]
            for c in sorted({c for classes in spec.task_classes for c in classes} - set(labels.tolist()))
        ]
        if absent:
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            warnings.append(
                f"{name}: {len(absent)} classes have no {side} image: {', '.join(absent[:3])}{more}"
            )
    same = duplicates(spec, source)
    if same:
        warnings.append(f"{name}: {same} evaluation images are pixel for pixel training images too")
    return lines, warnings
