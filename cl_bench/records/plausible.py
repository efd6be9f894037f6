"""What a record says must agree with itself: as many counts as tasks, none above the images it counts."""

from cl_bench.records.record import Certificate, RunRecord, TaskRecord
from cl_bench.records.spec import RunSpec


def contradiction(record: RunRecord) -> str | None:
    """What in a record cannot be, None where all of it can."""
    found = _of_spec(record.spec)
    if found:
        return found
    spec, sizes, learned = record.spec, record.test_sizes, len(record.tasks)
    if len(sizes) != spec.num_tasks or not all(1 <= size <= LARGEST for size in sizes):
        return f"test sizes {list(sizes)} of {spec.num_tasks} tasks"
    if learned > spec.num_learned or (record.status == "done" and learned < spec.num_learned):
        return f"{learned} of {spec.num_learned} tasks learned, status {record.status}"
    if record.duplicates is not None and not 0 <= record.duplicates <= sum(sizes):
        return f"{record.duplicates} duplicates among {sum(sizes)} test images"
    if record.threads < 1:
        return f"{record.threads} threads"
    for number, task in enumerate(record.tasks, 1):
        wrong = _of_task(task, spec, number, sizes)
        if wrong:
            return f"after task {number}: {wrong}"
    for facts in record.environments:
        devices = facts.get("devices", 1)
        if not isinstance(devices, int) or devices < 1:
            return f"{devices!r} devices"
    return _of_certificate(record.certificate) if record.certificate else None


def _of_spec(spec: RunSpec) -> str | None:
    classes = [c for found in spec.task_classes for c in found]
    if not spec.task_classes or not all(spec.task_classes):
        return "a task without classes"
    if min(classes) < 0 or len(set(classes)) < len(classes):
        return "classes that are negative or stand in two tasks"
    if spec.limit is not None and spec.limit < 1:
        return f"a limit of {spec.limit} training images"
    if spec.validation is not None and not 0 < spec.validation < 1:
        return f"{spec.validation} of the training images held out"
    return None


def _of_task(task: TaskRecord, spec: RunSpec, number: int, sizes: tuple[int, ...]) -> str | None:
    evaluated = spec.num_tasks if spec.joint else number
    for name in ("correct", "correct_within_task"):
        counts = getattr(task, name)
        if len(counts) != evaluated:
            return f"{name} has {len(counts)} counts, expected {evaluated}"
        for place, (count, size) in enumerate(zip(counts, sizes, strict=False), 1):
            if not 0 <= count <= size:
                return f"{name} counts {count} of the {size} test images of task {place}"
    if not spec.joint and task.classes != spec.task_classes[number - 1]:
        return f"classes {list(task.classes)} instead of {list(spec.task_classes[number - 1])}"
    numbers = {name: getattr(task, name) for name in COUNTED}
    wrong = next((name for name, value in numbers.items() if not 0 <= value <= LARGEST), None)  # or NaN
    if wrong:
        return f"{wrong} is {numbers[wrong]}"
    if task.kept_losses is not None and len(task.kept_losses) != min(number, 2):
        return f"{len(task.kept_losses)} losses of the first two tasks"
    for name in ("training_seconds", "processor_seconds", "diagnose_seconds"):
        value = getattr(task, name)
        if value is not None and not 0 <= value <= LARGEST:
            return f"{name} is {value}"
    for name in ("micro_batch", "prediction_passes"):
        value = getattr(task, name)
        if value is not None and not 1 <= value <= LARGEST:
            return f"{name} is {value}"
    return None


LARGEST = 2**62  # of any count, and of seconds: what numpy's integers hold
COUNTED = (
    "training_images", "images_seen", "trainable_parameters", "stored_values", "learn_seconds",
    "evaluate_seconds", "peak_memory_bytes",
)  # fmt: skip


def _of_certificate(found: Certificate) -> str | None:
    changed = (found.changed_in_batches, found.changed_when_shuffled)
    counts = (*changed, found.right_alone, found.right_in_batches, found.right_when_shuffled)
    if found.images < 1 or found.batch < 1 or not all(0 <= count <= found.images for count in counts):
        return f"a certificate of {found.images} images with counts {list(counts)}"
    return None
