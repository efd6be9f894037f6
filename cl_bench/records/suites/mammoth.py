"""Results of Mammoth: its file logs.pyd, and what it prints.

data/results/class-il/DATASET/MODEL/logs.pyd gets a line a run, when it ends: a Python mapping of all settings
('seed': 0, ...) and of

    'accmean_task1': 98.1, 'accuracy_1_task1': 98.1, 'accmean_task2': ..., 'accuracy_1_task2': ...,
    'accuracy_2_task2': ...

accuracy_J_taskT is the accuracy on task J after task T, in percent, not rounded; accmean_taskT the mean over
tasks. The folder task-il beside it has the same names for accuracies with the task known, which are not
read; where neither folder is in the path the file does not say which it is, and is taken for class-il's.
Accuracies measured between epochs (--eval_epochs) are counted as tasks there; then the numbers do not form
a triangle and are refused. 'forgetting' and 'backward_transfer' are worked out again here.

Printed after each task, with what a logger may put before it:

    Accuracy for 2 task(s):   [Class-IL]: 86.5 %   [Task-IL]: 97.2 %
            Raw accuracy values: Class-IL [92.1, 80.9] | Task-IL [98.0, 96.4]

The first is the mean over tasks, rounded to 2 digits; the second is not rounded, and earlier versions lack
it: then only the curve is known. "Accuracy (epoch 3) for ...", "Future Accuracy for ..." and "Joint Accuracy"
are not accuracies after a task of a sequence; Domain-IL is no class-incremental result. With numpy 2 numbers
are np.float64(92.1). Printed settings, Namespace(..., seed=0, ...), name the seed.
"""

import re
from pathlib import Path

from cl_bench.records.matrix_file import Value
from cl_bench.records.suites.log import Lines, LogRun, SuiteLog, numbers, plain, value, wrong

NAME = "Mammoth"
EXAMPLE = "Accuracy for 2 task(s): [Class-IL]: 86.5 % [Task-IL]: 97.2 %, or 'accuracy_1_task2': 92.1"
MEAN = re.compile(r"(?<!Future )\b(?:Mean )?accuracy for (\d+) task\(s\):\s*(.*)$", re.IGNORECASE)
CLASS_IL = re.compile(r"\[Class-IL\]:\s*([^\s%]+)\s*%", re.IGNORECASE)
RAW = re.compile(r"Raw accuracy values: Class-IL (\[.*?\])( \| Task-IL .*\])?\s*$", re.IGNORECASE)
BEGUN = re.compile(r"Raw accuracy values: Class-IL", re.IGNORECASE)
FILE = re.compile(r"'acc(?:uracy_\d+|mean)_task\d+':")
ENTRY = re.compile(r"'accuracy_(\d+)_task(\d+)': ([^,}]+)")
AVERAGE = re.compile(r"'accmean_task(\d+)': ([^,}]+)")
SEED = re.compile(r"\bseed=(\d+)|'seed': (\d+)")
MARK = re.compile(f"{MEAN.pattern}|{FILE.pattern}", re.IGNORECASE)


def read(path: Path, lines: Lines) -> SuiteLog:
    """The runs of a file logs.pyd or of what was printed. Raises InputError."""
    if any(FILE.search(text) for _, text in lines):
        return _of_file(path, lines)
    return _of_print(path, lines)


def _of_file(path: Path, lines: Lines) -> SuiteLog:
    log = SuiteLog(path, NAME, 100.0, "percent, not rounded", [], "task_mean")
    for other in {"task-il", "domain-il"} & set(path.absolute().parts[:-1]):
        raise wrong(path, lines[0][0], f"results of {other}; expected those in the folder class-il")
    if "class-il" not in path.absolute().parts:
        log.remarks.append("taken for Class-IL, which the file does not say")
    for place, (line, text) in enumerate(lines):
        if not text.rstrip().endswith("}"):
            if place + 1 < len(lines):
                raise wrong(path, line, f"no closing bracket; expected a mapping with {EXAMPLE}")
            log.runs.append(LogRun(line, _seed(text), cut=f"line {line} ends in the middle"))
            continue
        log.runs.append(_entry(path, line, plain(text)))
    return log


def _seed(text: str) -> str | None:
    found = SEED.search(text)
    return found and (found[1] or found[2])


def _entry(path: Path, line: int, text: str) -> LogRun:
    """A run of logs.pyd."""
    found = {(int(after), int(on)): cell for on, after, cell in ENTRY.findall(text)}
    means = {int(after): cell for after, cell in AVERAGE.findall(text)}
    last = max([after for after, _ in found] + [*means], default=0)
    run = LogRun(line, _seed(text), lines=[line] * last)
    for after in range(1, last + 1):
        measured = [on for task, on in found if task == after]
        if found and sorted(measured) != list(range(1, after + 1)):
            got = f"{len(measured)} accuracies after task {after}"
            raise wrong(path, line, f"{got}, expected {after} (was it evaluated between epochs too?)")
        if found:
            run.rows.append([value(path, line, found[after, on]) for on in range(1, after + 1)])
        if sorted(means) == list(range(1, last + 1)):
            run.curve.append(value(path, line, means[after]))
    if not run.rows and not run.curve:
        raise wrong(path, line, f"no accuracies of all tasks; expected {EXAMPLE}")
    return run


def _of_print(path: Path, lines: Lines) -> SuiteLog:
    log = SuiteLog(path, NAME, 100.0, "percent, per task not rounded, means to 2 digits", [], "task_mean")
    run, seed = LogRun(1), None
    rows: dict[int, list[Value]] = {}
    for place, (line, text) in enumerate(lines):
        last = place + 1 == len(lines)
        if found := SEED.search(text):
            seed = found[1] or found[2]
        if found := MEAN.search(text):
            if int(found[1]) == 1 and (run.lines or not log.runs):
                run, rows = LogRun(line, seed), {}
                log.runs.append(run)
            _mean(path, line, found[1], found[2], run, last)
        elif found := RAW.search(text):
            if run.lines:
                rows[run.tasks] = numbers(path, line, found[1])
                run.lines[-1] = line
                run.rows = [rows[task] for task in sorted(rows)]
        elif BEGUN.search(text):
            if not last:
                raise wrong(
                    path, line, "expected such as Raw accuracy values: Class-IL [92.1, 80.9] | Task-IL [..]"
                )
            run.cut = f"line {line} ends in the middle"
    for run in log.runs:
        _settle(path, run, log)
    return log


def _mean(path: Path, line: int, task: str, text: str, run: LogRun, last: bool) -> None:
    """The line of a task's mean accuracy."""
    found = CLASS_IL.search(text)
    if found is None:
        if last and "Domain-IL" not in text:
            run.cut = f"line {line} ends in the middle"
            return
        raise wrong(path, line, f"no Class-IL accuracy ({text.strip()[:40]!r}); expected such as {EXAMPLE}")
    if int(task) != run.tasks + 1:
        raise wrong(path, line, f"the accuracy for {task} tasks follows that for {run.tasks}")
    run.curve.append(value(path, line, found[1]))
    run.lines.append(line)


def _settle(path: Path, run: LogRun, log: SuiteLog) -> None:
    """A triangle, or a curve alone; a last task that was cut short does not count."""
    if (run.cut or run.rows) and len(run.rows) + 1 == run.tasks:
        run.cut = run.cut or f"task {run.tasks} has no raw accuracy values (line {run.lines[-1]})"
        run.lines, run.curve = run.lines[:-1], run.curve[:-1]
    for place, row in enumerate(run.rows, 1):
        if len(row) != place or len(run.rows) != run.tasks:
            got = (
                f"{len(row)} raw accuracies for {place} tasks, {len(run.rows)} lines of them for {run.tasks}"
            )
            raise wrong(path, run.lines[place - 1], f"{got}; expected as many as tasks")
    if not run.rows and run.lines:
        log.remarks.append(f"line {run.line}: no raw accuracy values; only the curve is read")
