"""Footnotes: what the numbers of a table mean, what is missing, and which of them a reader must not trust."""

from collections.abc import Sequence

from cl_bench.environment import LIBRARIES
from cl_bench.records import metrics
from cl_bench.records.metrics import Conventions
from cl_bench.records.store import LeftOut
from cl_bench.report.rows import Row
from cl_bench.report.settings import settings_of, unlike


def of_table(columns: Sequence[Sequence[Row]], conventions: Conventions, shown: Sequence[str]) -> list[str]:
    """A line each; `columns` are the rows found on each benchmark, `shown` the metrics printed."""
    rows = [row for column in columns for row in column]
    seeds = sorted({seed for row in rows if not row.imported for seed in row.seeds})
    notes = []
    if "accuracy" in shown or "incremental" in shown:
        notes.append(f"Acc.: {metrics.ACCURACY_CONVENTIONS[conventions.accuracy]}, after the last task.")
    if "incremental" in shown and "accuracy" not in shown:
        notes[-1] = (
            f"Avg. inc. acc.: mean over tasks learned of the accuracy so far, each {metrics.ACCURACY_CONVENTIONS[conventions.accuracy]}."
        )
    if "forgetting" in shown:
        notes.append(f"Forgetting: {metrics.FORGETTING_CONVENTIONS[conventions.forgetting]}.")
    counts = sorted({len(row.finished) for row in rows if row.finished})
    n = f"n = {counts[0]} seeds" if len(counts) == 1 else "n seeds"
    notes.append(
        f"Mean ± sample standard deviation (n - 1) over {n}" + (f" ({', '.join(seeds)})." if seeds else ".")
    )
    for column in columns:
        notes += _unlike(column)
    notes += _half(columns) + _duplicates(rows) + _protocol(rows)
    for column in columns:
        planned = sorted({seed for row in column if not row.imported for seed in row.seeds})
        for row in column:
            name = _name(row, len(columns) > 1)
            for record in row.records:
                if isinstance(record, LeftOut):
                    notes.append(
                        f"{name}, seed {record.spec.seed_name()}: {LEFT_OUT[record.kind]}, not in the table."
                    )
                elif record.status != "done":
                    state = f"{'failed' if record.status == 'failed' else 'not finished'}{f': {record.failure}' if record.failure else ''}"
                    notes.append(
                        f"{name}, seed {record.spec.seed_name()}: {state} ({len(record.tasks)} tasks done), not in the table."
                    )
            notes += _library_versions(row, name)
            if row.finished and sorted(row.seeds) != planned and not row.imported:
                notes.append(f"{name}: seeds {', '.join(row.seeds)} only.")
    return notes


LEFT_OUT = {
    "unreadable": "its record could not be read",
    "damaged": "its record is damaged",
    "misplaced": "its record is in a folder that has not its name",
}


def _unlike(column: Sequence[Row]) -> list[str]:
    """In which settings besides options the rows of one benchmark differ, and seeds of one name whose class orders do."""
    rows, notes = [row for row in column if row.ran], []
    settings = unlike([settings_of(row.spec) for row in rows])
    for what, value in UNLIKE.items():
        found: dict[str, list[str]] = {}
        for row in rows:
            found.setdefault(value(row.spec), []).append(row.name)
        if len(found) > 1 and (what != "core version" or "core_version" in settings):
            notes.append(
                f"Rows differ in {what}: "
                + "; ".join(f"{', '.join(dict.fromkeys(names))}: {own}" for own, names in found.items())
                + "."
            )
    orders: dict[str, dict[tuple, None]] = {}
    for record in (record for row in rows for record in row.ran):
        orders.setdefault(record.spec.seed_name(), {})[record.spec.task_classes] = None
    mixed = [seed for seed, found in orders.items() if len(found) > 1]
    return [*notes, f"Class orders differ between rows for seed {', '.join(mixed)}."] if mixed else notes


def _library_versions(row: Row, name: str) -> list[str]:
    """Which of the runs behind one number were made with which version of a library, where they differ."""
    told = []
    for library in LIBRARIES:
        seeds: dict[str, dict[str, None]] = {}
        for record in row.ran:
            for place in record.environments:
                if library in place:
                    seeds.setdefault(str(place[library]), {})[record.spec.seed_name()] = None
        if len(seeds) > 1:
            told.append(
                ", ".join(
                    f"{library} {version} (seed{'s' * (len(own) > 1)} {', '.join(own)})"
                    for version, own in sorted(seeds.items())
                )
            )
    return [f"{name}: made with different versions of libraries: {'; '.join(told)}."] if told else []


def _half(columns: Sequence[Sequence[Row]]) -> list[str]:
    """Where the rows of one benchmark all had the frozen network in bf16."""
    precisions = {}
    for row in (row for column in columns for row in column if row.ran):
        precisions.setdefault(row.benchmark, set()).add(row.spec.precision)
    half = [name for name, found in precisions.items() if found == {"bf16"}]
    where = "" if len(half) == len(precisions) else f" on {', '.join(half)}"
    return [f"Frozen network in bf16{where}."] if half else []


def _duplicates(rows: Sequence[Row]) -> list[str]:
    """On which benchmarks images are evaluated that were also learned."""
    counts: dict[str, dict[tuple[int, int], None]] = {}
    for row in rows:
        for record in row.ran:
            if record.duplicates:
                counts.setdefault(row.benchmark, {})[record.duplicates, sum(record.test_sizes)] = None
    told = {
        benchmark: " or ".join(f"{count} of {images}" for count, images in sorted(found))
        for benchmark, found in counts.items()
    }
    return [
        f"{benchmark}: {counted} evaluation images are pixel for pixel training images too."
        for benchmark, counted in told.items()
    ]


UNLIKE = {
    "precision": lambda spec: spec.precision,
    "core version": lambda spec: str(spec.core_version),
    "augmentation": lambda spec: spec.transform.augment,
    "normalisation": lambda spec: spec.transform.normalisation,
    "random crops": lambda spec: (
        "none"
        if spec.transform.augment == "none"
        else f"{spec.transform.crop_scale} {spec.transform.crop_interpolation}"
    ),
    "augmenting code": lambda spec: "none" if spec.transform.augment == "none" else spec.transform.augmenter,
    "evaluation resize": lambda spec: f"{spec.transform.resize} {spec.transform.interpolation}",
    "class order": lambda spec: spec.order,
}


def _name(row: Row, several: bool) -> str:
    """The row, with its benchmark where a table has several."""
    return (
        f"{row.title} on {row.spec.dataset}/{row.spec.num_tasks}"
        if several and not row.imported
        else row.title
    )


def _protocol(rows: Sequence[Row]) -> list[str]:
    """What `as_published` rows do, whose predictions depend on the batch, who was not asked, and who was not run here."""
    notes = {}  # a row of several benchmarks says a thing once
    for row in rows:
        if row.spec.as_published:
            notes[f"{row.name}: {', '.join(row.spec.as_published)}."] = None
    for row in rows:
        found = row.certificates
        if any(not certificate.inductive for certificate in found):
            images = sum(c.images for c in found)
            shares = {
                "alone": sum(c.right_alone for c in found), f"in batches of {found[0].batch} in stream order": sum(c.right_in_batches for c in found),
                "in shuffled batches": sum(c.right_when_shuffled for c in found),
            }  # fmt: skip
            right = ", ".join(f"{100 * count / images:.1f} % {where}" for where, count in shares.items())
            changed = f"{sum(c.changed_in_batches for c in found)} in stream order, {sum(c.changed_when_shuffled for c in found)} shuffled"
            notes[
                f"† {row.name}: predictions depend on the batch. Of {images} test images so many are predicted otherwise "
                f"in a batch than alone: {changed}; right: {right}."
            ] = None
    unasked = dict.fromkeys(row.title for row in rows if len(row.certificates) < len(row.ran))
    if unasked:
        notes[f"Without inductive certificate (cl-bench certify makes it): {', '.join(unasked)}."] = None
    for row in rows:
        if row.spec.keeps:
            notes[f"§ {row.name}: keeps {row.spec.keeps} of old tasks."] = None
    for row in rows:
        if row.imported:
            backbone = f", backbone {row.spec.backbone}" if row.spec.backbone else ""
            sources = "; ".join(dict.fromkeys(record.spec.source for record in row.records))
            notes[f"‡ {row.display}: imported, not run here; {sources}{backbone}."] = None
    return list(notes)
