"""Records made of another suite's log: which of its runs are complete, by which seeds, and what is known."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_bench.errors import InputError
from cl_bench.records import imported
from cl_bench.records.imported import ImportedRecord, ImportedSpec
from cl_bench.records.matrix_file import MatrixFile
from cl_bench.records.suites.log import LogRun, SuiteLog

AVERAGES = {"task_mean": "averages over tasks", "sample": "averages over all test images"}
UNNAMED = "–"  # the seed of what names none


@dataclass(frozen=True)
class Read:
    """What a log gave: a record a seed, and lines that say what was read and what was not."""

    records: list[ImportedRecord]
    told: list[str]


def read(
    log: SuiteLog, spec: ImportedSpec, tasks: int, classes: Sequence[int], sizes: tuple[int, ...] | None
) -> Read:
    """The records of a log's complete runs; `spec` has the seed that was asked for, or `UNNAMED`.

    Raises InputError where no run is complete, a run has more tasks or other ones than the benchmark, or two
    runs of one seed differ.
    """
    log.check()
    runs, told = [], list(log.remarks)
    for run in _asked(log, spec.seed):
        _fits(log, run, spec.benchmark, tasks, classes)
        if run.tasks == tasks:
            runs.append(run)
            continue
        last = run.lines[-1] if run.lines else run.line
        why = run.cut or f"line {last} is the last of them"
        told.append(f"left out: {_name(run)}, {run.tasks} of {tasks} tasks are complete ({why})")
    if not runs:
        reasons = "; ".join(told[len(log.remarks) :]) or "no run"
        raise InputError(f"{log.path} has no complete run of {spec.benchmark}: {reasons}")
    records: dict[str, ImportedRecord] = {}
    for place, run in enumerate(runs, 1):
        alone = spec.seed if len(runs) == 1 or spec.seed != UNNAMED else f"run {place}"
        if run.seed is None and len(runs) > 1 and spec.seed != UNNAMED:
            alone = f"{spec.seed}, run {place}"
        record = _record(log, run, spec.model_copy(update={"seed": run.seed or alone}), sizes)
        if records.setdefault(record.spec.seed, record) != record:
            again = f"another complete run of seed {record.spec.seed} begins here"
            raise InputError(f"{log.path}, line {run.line}: {again}; leave one of them in the log")
    return Read(list(records.values()), [_what(log, runs, list(records), tasks), *told])


def _asked(log: SuiteLog, seed: str) -> list[LogRun]:
    """All runs, or those of the seed asked for where the log names seeds."""
    named = [run.seed for run in log.runs if run.seed is not None]
    if seed == UNNAMED or not named:
        return log.runs
    found = [run for run in log.runs if run.seed in (seed, None)]
    if not any(run.seed == seed for run in found):
        raise InputError(f"--seed {seed}: {log.path} is of {_seeds(list(dict.fromkeys(named)))}")
    return [run for run in found if run.seed == seed]


def _fits(log: SuiteLog, run: LogRun, benchmark: str, tasks: int, classes: Sequence[int]) -> None:
    """Raises InputError where a run cannot be of the benchmark."""
    if run.tasks > tasks or (run.of or tasks) != tasks:
        line = run.lines[tasks] if run.tasks > tasks else run.line
        count = run.of or run.tasks
        raise InputError(
            f"{log.path}, line {line}: {count} tasks, {benchmark} has {tasks}; give its --benchmark"
        )
    if not run.classes:
        return
    expected = classes or [run.classes[0]] * tasks
    # the last group of classes may be named for more than there are
    pairs = list(zip(run.classes, expected, strict=False))
    if any(own != theirs for own, theirs in pairs[: tasks - 1]) or any(own < theirs for own, theirs in pairs):
        cut = "-".join(map(str, run.classes))
        written = f"{benchmark.rpartition('/')[0]}/{cut}"
        told = f"its tasks have {cut} classes, which are not those of {benchmark}"
        raise InputError(f"{log.path}, line {run.lines[0]}: {told}; give such as --benchmark {written}")


def _record(log: SuiteLog, run: LogRun, spec: ImportedSpec, sizes: tuple[int, ...] | None) -> ImportedRecord:
    """One run: counts of right answers where accuracies per task are known, its curve where they say less."""
    spec = spec.model_copy(update={"log": _known(log, run)})
    curve = tuple(value.number / log.unit for value in run.curve)
    keeps = curve if not run.rows or log.convention == "sample" else ()  # else it is that of the counts
    kept: dict[str, Any] = {"curve": keeps, "convention": log.convention if keeps else None}
    if run.rows:
        found = MatrixFile(log.path, run.rows, run.lines, percent=log.unit == 100)
        made = imported.from_file(found, spec, sizes, percent=False)
        return ImportedRecord(**{**dict(made), **kept})
    if sizes is not None and len(sizes) != run.tasks:
        raise InputError(f"{log.path} has {run.tasks} tasks, --test-sizes has {len(sizes)}")
    return ImportedRecord(spec=spec, correct=(), test_sizes=sizes or (), counted=bool(sizes), **kept)


def _known(log: SuiteLog, run: LogRun) -> str:
    """What stands under every table of the numbers."""
    average = AVERAGES[log.convention]
    if run.rows:
        known = f"accuracies per task{f', and {average}' if run.curve and log.convention == 'sample' else ''}"
    else:
        shown = " (shown with --accuracy sample)" if log.convention == "sample" else ""
        known = f"only {average}{shown}, nothing of single tasks"
    return f"log of {log.suite}: {known}; {log.digits}"


def _what(log: SuiteLog, runs: Sequence[LogRun], seeds: Sequence[str], tasks: int) -> str:
    """Suite, tasks, seeds and convention."""
    kinds = "; ".join(dict.fromkeys(_known(log, run) for run in runs))
    named = "seed not named" if list(seeds) == [UNNAMED] else _seeds(seeds)
    single = " (a single one: no spread)" if len(seeds) == 1 else ""
    return f"{tasks} tasks, {named}{single}; {kinds}"


def _name(run: LogRun) -> str:
    return f"the run that begins in line {run.line}" if run.seed is None else f"seed {run.seed}"


def _seeds(seeds: Sequence[str]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"


def save(records: Sequence[ImportedRecord], root: Path) -> list[Path]:
    """Keep all of them, or none where the folder holds another one of the same name, benchmark and seed."""
    for record in records:
        imported.require_same(record, root)
    return [imported.save(record, root) for record in records]
