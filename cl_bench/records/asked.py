"""What runs are asked to measure besides their results, which those that were begun without it lack."""

from collections.abc import Iterable

from cl_bench.records.record import RunRecord

MEASURED = {
    "losses": "kept_losses",
    "diagnose": "diagnosis",
}  # option of `cl-bench run` -> of a task's record


def lacking(records: Iterable[RunRecord], asked: Iterable[str]) -> list[str]:
    """A sentence for each option that was asked for and that some of the runs were begun without."""
    records, told = list(records), []
    learned = [record for record in records if not record.spec.joint]
    for option in asked:
        name = MEASURED[option]
        count = sum(any(getattr(task, name) is None for task in record.tasks) for record in learned)
        if count:
            runs = f"{count} of {len(records)} runs were begun without --{option} and lack what it measures"
            told.append(f"{runs}; `cl-bench clean` them and repeat the command, or give another --results")
    return told
