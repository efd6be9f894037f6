"""Footnotes: what the numbers of a table mean, what is missing, and which of them a reader must not trust."""

from collections.abc import Sequence

from cl_bench import metrics
from cl_bench.report.select import Conventions, Row


def of_table(columns: Sequence[Sequence[Row]], conventions: Conventions, shown: Sequence[str]) -> list[str]:
    """A line each; `columns` are the rows found on each benchmark, `shown` the metrics printed."""
    rows = [row for column in columns for row in column]
    seeds = sorted({seed for row in rows if not row.imported for seed in row.seeds})
    notes = [f"Acc.: {metrics.ACCURACY_CONVENTIONS[conventions.accuracy]}, after the last task."]
    if "forgetting" in shown:
        notes.append(f"Forgetting: {metrics.FORGETTING_CONVENTIONS[conventions.forgetting]}.")
    notes.append("Mean ± sample standard deviation (n - 1) over n seeds" + (f" ({', '.join(seeds)})." if seeds else "."))
    notes += _protocol(rows)
    for column in columns:
        planned = sorted({seed for row in column if not row.imported for seed in row.seeds})
        for row in column:
            name = _name(row, len(columns) > 1)
            for record in row.records:
                if record.status != "done":
                    state = f"failed: {record.failure}" if record.status == "failed" else "not finished"
                    notes.append(f"{name}, seed {record.spec.seed_name()}: {state} ({len(record.tasks)} tasks done), not in the table.")
            if row.finished and sorted(row.seeds) != planned and not row.imported:
                notes.append(f"{name}: seeds {', '.join(row.seeds)} only.")
    return notes


def _name(row: Row, several: bool) -> str:
    """The row, with its benchmark where a table has several."""
    return f"{row.title} on {row.spec.dataset}/{row.spec.num_tasks}" if several and not row.imported else row.title


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
            notes[f"‡ {row.display}: imported, not run here; {row.spec.source}{backbone}."] = None
    return list(notes)
