"""Footnotes: what the numbers of a table mean, what is missing, and which of them a reader must not trust."""

from collections.abc import Sequence

from cl_bench import environment
from cl_bench.environment import LIBRARIES
from cl_bench.records import diagnosis, metrics
from cl_bench.records.costs import COSTS
from cl_bench.records.metrics import Conventions
from cl_bench.records.record import Certificate
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import LeftOut
from cl_bench.report.rows import Row
from cl_bench.report.settings import settings_of, unlike
from cl_bench.report.table import COST_COLUMNS, heading


def of_table(columns: Sequence[Sequence[Row]], conventions: Conventions, shown: Sequence[str]) -> list[str]:
    """A line each; `columns` are the rows found on each benchmark, `shown` the metrics printed."""
    rows = [row for column in columns for row in column]
    notes = _metrics(conventions, shown) + _costs(rows, shown) + _measures(shown)
    seeds = sorted({seed for row in rows if not row.imported for seed in row.seeds})
    counts = {len(row.finished) for row in rows if row.finished}
    n = f"n = {counts.pop()} seeds" if len(counts) == 1 else "n seeds"
    named = f" ({', '.join(seeds)})" if seeds else ""
    notes.append(f"Mean ± sample standard deviation (n - 1) over {n}{named}.")
    for column in columns:
        notes += _unlike(column)
    notes += _half(columns) + _duplicates(rows) + _protocol(rows)
    for column in columns:
        planned = sorted({seed for row in column if not row.imported for seed in row.seeds})
        for row in column:
            name = _name(row, len(columns) > 1)
            notes += _unfinished(row, name) + _library_versions(row, name)
            if row.finished and sorted(row.seeds) != planned and not row.imported:
                notes.append(f"{name}: seeds {', '.join(row.seeds)} only.")
    return notes


def _metrics(conventions: Conventions, shown: Sequence[str]) -> list[str]:
    """By which convention the numbers are computed."""
    accuracy, notes = metrics.ACCURACY_CONVENTIONS[conventions.accuracy], []
    if "accuracy" in shown:
        notes.append(f"Acc.: {accuracy}, after the last task.")
    elif "incremental" in shown:
        notes.append(f"Avg. inc. acc.: mean over tasks learned of the accuracy so far, each {accuracy}.")
    if "forgetting" in shown:
        notes.append(f"Forgetting: {metrics.FORGETTING_CONVENTIONS[conventions.forgetting]}.")
    return notes


def _costs(rows: Sequence[Row], shown: Sequence[str]) -> list[str]:
    """What the columns of costs count, and on which machines what depends on them was measured."""
    notes = [f"{COST_COLUMNS[name]}: {cost.meaning}." for name, cost in COSTS.items() if name in shown]
    if "keeps" in shown:
        named = "as runs name it; – where they name nothing"
        notes.append(
            f"{COST_COLUMNS['keeps']}: what is kept of old classes besides what is trained, {named}."
        )
    runs = [record for row in rows for record in row.ran]
    machines = sorted({environment.computer(where) for record in runs for where in record.environments})
    if machines and not {"seconds", "memory"}.isdisjoint(shown):
        several = f"{len(machines)} machines, whose figures do not compare: " if len(machines) > 1 else ""
        notes.append(f"Measured on {several}{'; '.join(machines)}.")
    return notes


def _measures(shown: Sequence[str]) -> list[str]:
    """What the columns of a diagnosis are."""
    measured = [name for name in shown if name in diagnosis.MEASURES]
    notes = [f"{heading(name)}: {diagnosis.MEASURES[name]}." for name in measured]
    over = "mean over tasks 2 to T, and over blocks where each has one; – without --diagnose"
    return [*notes, f"What each task does to old images: {over}."] if measured else []


def _unfinished(row: Row, name: str) -> list[str]:
    """Which runs of a row have no number, and why."""
    notes = []
    for record in row.records:
        if isinstance(record, LeftOut):
            state = LEFT_OUT[record.kind]
        elif record.status != "done":
            state = "failed" if record.status == "failed" else "not finished"
            state += f": {record.failure}" if record.failure else ""
            state += f" ({len(record.tasks)} tasks done)"
        else:
            continue
        notes.append(f"{name}, seed {record.spec.seed_name()}: {state}, not in the table.")
    return notes


LEFT_OUT = {
    "unreadable": "its record could not be read",
    "damaged": "its record is damaged",
    "misplaced": "its record is in a folder that has not its name",
}


def _unlike(column: Sequence[Row]) -> list[str]:
    """In which settings besides options a benchmark's rows differ, and which seeds' class orders do."""
    rows, notes = [row for row in column if row.ran], []
    settings = unlike([settings_of(row.spec) for row in rows])
    for what, value in UNLIKE.items():
        found: dict[str, list[str]] = {}
        for row in rows:
            found.setdefault(value(row.spec), []).append(row.name)
        if len(found) > 1 and (what != "core version" or "core_version" in settings):
            told = "; ".join(f"{', '.join(dict.fromkeys(names))}: {own}" for own, names in found.items())
            notes.append(f"Rows differ in {what}: {told}.")
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
            runs = [
                f"{library} {version} (seed{'s' * (len(own) > 1)} {', '.join(own)})"
                for version, own in sorted(seeds.items())
            ]
            told.append(", ".join(runs))
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
    told = []
    for benchmark, found in counts.items():
        counted = " or ".join(f"{count} of {images}" for count, images in sorted(found))
        told.append(f"{benchmark}: {counted} evaluation images are pixel for pixel training images too.")
    return told


def _crops(spec: RunSpec) -> str:
    transform = spec.transform
    return "none" if transform.augment == "none" else f"{transform.crop_scale} {transform.crop_interpolation}"


def _augmenter(spec: RunSpec) -> str:
    return "none" if spec.transform.augment == "none" else spec.transform.augmenter


UNLIKE = {
    "precision": lambda spec: spec.precision,
    "core version": lambda spec: str(spec.core_version),
    "augmentation": lambda spec: spec.transform.augment,
    "normalisation": lambda spec: spec.transform.normalisation,
    "random crops": _crops,
    "augmenting code": _augmenter,
    "evaluation resize": lambda spec: f"{spec.transform.resize} {spec.transform.interpolation}",
    "class order": lambda spec: spec.order,
}


def _name(row: Row, several: bool) -> str:
    """The row, with its benchmark where a table has several."""
    on = f" on {row.spec.dataset}/{row.spec.split}" if several and not row.imported else ""
    return row.title + on


def _transductive(found: Sequence[Certificate]) -> str:
    """How far the predictions of a row depend on the batch."""
    images = sum(one.images for one in found)
    shares = {
        "alone": sum(one.right_alone for one in found),
        f"in batches of {found[0].batch} in stream order": sum(one.right_in_batches for one in found),
        "in shuffled batches": sum(one.right_when_shuffled for one in found),
    }
    right = ", ".join(f"{100 * count / images:.1f} % {where}" for where, count in shares.items())
    ordered = sum(one.changed_in_batches for one in found)
    shuffled = sum(one.changed_when_shuffled for one in found)
    return (
        f"predictions depend on the batch. Of {images} test images so many are predicted otherwise "
        f"in a batch than alone: {ordered} in stream order, {shuffled} shuffled; right: {right}."
    )


def _protocol(rows: Sequence[Row]) -> list[str]:
    """What `as_published` rows do, whose predictions depend on the batch, who was not asked or run here."""
    notes = {}  # a row of several benchmarks says a thing once
    for row in rows:
        if row.spec.as_published:
            notes[f"{row.name}: {', '.join(row.spec.as_published)}."] = None
    for row in rows:
        if any(not certificate.inductive for certificate in row.certificates):
            notes[f"† {row.name}: {_transductive(row.certificates)}"] = None
    unasked = dict.fromkeys(row.title for row in rows if len(row.certificates) < len(row.ran))
    if unasked:
        notes[f"Without inductive certificate (cl-bench certify makes it): {', '.join(unasked)}."] = None
    for row in rows:
        if row.spec.keeps:
            notes[f"§ {row.name}: keeps {row.spec.keeps} of old tasks."] = None
    without_code = dict.fromkeys(row.name for row in rows if row.spec.reconstruction)
    if without_code:
        notes[f"¶ Reconstructed from the paper, for want of public code: {', '.join(without_code)}."] = None
    for row in rows:
        if row.imported:
            backbone = f", backbone {row.spec.backbone}" if row.spec.backbone else ""
            told = [*(record.spec.source for record in row.records)]
            told += [record.spec.log for record in row.records if record.spec.log]
            single = "; a single seed" if row.spec.log and len(row.records) == 1 else ""
            sources = "; ".join(dict.fromkeys(told))
            notes[f"‡ {row.display}: imported, not run here; {sources}{backbone}{single}."] = None
    return list(notes)
