"""What the public code of VPT-NSP² (VPTinNSforCL, train_eval.py) prints, and code made from it.

For each task, after some epochs' lines:

    ####...#### Task: [2/10] ####...####
    Current classes (10): [3, 71, ...]
    Task [2/10]:: Eval [1/2]: eval_time=3.1s, acc_class_inc=92.10%
    Task [2/10]:: Eval [2/2]: eval_time=3.0s, acc_class_inc=80.90%
    :: ** Results of task [2]: [ class_inc_last_acc=86.50% | class_inc_last_forg= 1.20% ] **

- acc_class_inc of Eval [J/T] is the accuracy on task J after task T, among all classes so far, in percent,
  with 2 digits.
- class_inc_last_acc is the mean over tasks weighted by their images, with 2 digits. The forgetting beside it
  takes the best accuracy also after the last task, and is worked out again here.
- Settings and seed are not printed. A new "Task [1/T]" is another run.
- A task is complete with its line of results.
"""

import re
from pathlib import Path

from cl_bench.records.matrix_file import Value
from cl_bench.records.suites.log import Lines, LogRun, SuiteLog, value, wrong

NAME = "VPT-NSP²'s public code"
EXAMPLE = "Task [2/10]:: Eval [1/2]: eval_time=3.1s, acc_class_inc=92.10%"
EVALUATION = re.compile(r"Task \[\s*(\d+)/(\d+)\]:: Eval \[\s*(\d+)/\s*(\d+)\]:(.*)$")
ACCURACY = re.compile(r"\bacc_class_inc=\s*([^\s%,]+)%")
RESULTS = re.compile(r"Results of task \[(\d+)\]:(.*)$")
AVERAGE = re.compile(r"\bclass_inc_last_acc=\s*([^\s%,]+)%")
CLASSES = re.compile(r"Current classes \((\d+)\):")
MARK = re.compile(r"Task \[\s*\d+/\d+\]:: Eval \[")


def read(path: Path, lines: Lines) -> SuiteLog:
    """The runs of a log. Raises InputError with the line that cannot be read."""
    log = SuiteLog(path, NAME, 100.0, "percent, 2 digits", [], "sample")
    run, classes = LogRun(1), 0
    row: list[Value] = []
    for place, (line, text) in enumerate(lines):
        if found := CLASSES.search(text):
            classes = int(found[1])
        elif found := EVALUATION.search(text):
            task, of, on, upto = map(int, found.groups()[:4])
            if task == 1 and on == 1:
                run, row = LogRun(line, of=of), []
                log.runs.append(run)
            accuracy = ACCURACY.search(found[5])
            if accuracy is None and place + 1 == len(lines):
                run.cut = f"line {line} ends in the middle"
                continue
            expected = (run.tasks + 1, len(row) + 1, run.tasks + 1)
            if accuracy is None or (task, on, upto) != expected or of != run.of:
                wanted = f"Task [{expected[0]}/{run.of or of}]:: Eval [{expected[1]}/{expected[2]}]"
                raise wrong(path, line, f"expected {wanted}: ... acc_class_inc=..%")
            row.append(value(path, line, accuracy[1]))
            run.cut = f"task {task} has no line of results (line {line} is its last)"
        elif found := RESULTS.search(text):
            average = AVERAGE.search(found[2])
            if average is None and place + 1 == len(lines):
                run.cut = f"line {line} ends in the middle"
                continue
            _finish(path, line, int(found[1]), average and value(path, line, average[1]), run, row)
            run.classes, row, classes, run.cut = [*run.classes, classes], [], 0, ""
    for run in log.runs:
        run.classes = run.classes if all(run.classes) else []
    return log


def _finish(path: Path, line: int, task: int, average: Value | None, run: LogRun, row: list[Value]) -> None:
    """The line of a task's results. Raises InputError where evaluations before it are lacking."""
    if task != run.tasks + 1 or len(row) != task:
        before = f"{len(row)} evaluations stand before it after {run.tasks} tasks"
        raise wrong(path, line, f"results of task {task}: {before}, expected {task}")
    if average is None:
        raise wrong(path, line, "expected such as class_inc_last_acc=86.50%")
    run.rows.append(row)
    run.lines.append(line)
    run.curve.append(average)
