"""Logs of Avalanche: what TextLogger and InteractiveLogger print, and eval_results.csv of CSVLogger.

Printed:

    -- >> Start of training phase << --
    -- Starting training on experience 1 (Task 0) from train stream --
    -- >> End of training phase << --
    -- >> Start of eval phase << --
    -- Starting eval on experience 0 (Task 0) from test stream --
    > Eval on experience 0 (Task 0) from test stream ended.
            Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp000 = 0.9210
    -- >> End of eval phase << --
            Top1_Acc_Stream/eval_phase/test_stream/Task000 = 0.8650

Top1_Acc_Exp is right answers over all images of an experience, a fraction with 4 digits. Top1_Acc_Stream is
over all images evaluated, weighted by them; it is an average over the tasks so far only where nothing else
was evaluated. Evaluations inside of a training phase are validation, and those before any training a
baseline; of several after one experience the last counts. Accuracies on experiences not yet learned are left
out. Different Task labels mean that the task was known at test time: refused.

eval_results.csv has the columns eval_exp, training_exp, eval_accuracy, eval_loss and forgetting: accuracy on
experience eval_exp after training on training_exp, numbers from 0, the same fractions; 0 in every line where
the accuracy was not monitored. training_exp is None before any training.

Neither names a seed. Training on experience 0 again is another run.
"""

import csv
import re
from pathlib import Path

from cl_bench.records.matrix_file import Value
from cl_bench.records.suites.log import Lines, LogRun, SuiteLog, ends_whole, value, wrong

NAME = "Avalanche"
EXAMPLE = (
    "Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp003 = 0.8123, or a heading eval_exp,training_exp,..."
)
HEADING = ("eval_exp", "training_exp", "eval_accuracy")
PHASE = re.compile(r"-- >> (Start|End) of (training|eval) phase << --")
TRAINING = re.compile(r"-- Starting training on (?:experience|step) (\d+)")
EXPERIENCE = re.compile(r"Top1_Acc_Exp/eval_phase/(\w+)_stream/(?:Task(\d+)/)?Exp(\d+) =(.*)$")
STREAM = re.compile(r"Top1_Acc_Stream/eval_phase/(\w+)_stream(?:/Task(\d+))? =(.*)$")
MARK = re.compile(r"Top1_Acc_Exp/eval_phase/|^\ufeff?eval_exp,training_exp,")


class _Reader:
    """Accuracies by experience trained on, run by run."""

    def __init__(self, path: Path, ends_marked: bool):
        self.path = path
        self.ends_marked = ends_marked  # whether the log says that an evaluation has ended
        self.log = SuiteLog(path, NAME, 1.0, "fractions, 4 digits", [], "sample")
        self.found: dict[int, dict[int, Value]] = {}  # after experience -> on experience -> accuracy
        self.streams: dict[int, Value] = {}
        self.ends: dict[int, int] = {}  # after experience -> last line
        self.task: str | None = None  # the one label
        self.begun = 1
        self.cut = ""
        self.future = False

    def finish(self) -> None:
        """Put the run that was read to those of the log."""
        if not self.found:
            return
        run, last = LogRun(self.begun, cut=self.cut), max(self.found)
        for after in range(last + 1):
            row = self.found.get(after, {})
            self.future |= any(on > after for on in row)
            missing = [on for on in range(after + 1) if on not in row]
            if missing and after == last and (self.cut or not self.ends_marked):
                run.cut = self.cut or f"task {after + 1} lacks accuracies behind line {self.ends[after]}"
                break
            if missing:
                of = f"experience {missing[0]} after training on experience {after}"
                raise wrong(
                    self.path, self.ends.get(after, self.begun), f"no accuracy of {of}; expected all so far"
                )
            run.rows.append([row[on] for on in range(after + 1)])
            run.lines.append(self.ends[after])
            if after in self.streams and len(row) == after + 1 and len(run.curve) == after:
                run.curve.append(self.streams[after])
        run.curve = run.curve if len(run.curve) == len(run.rows) else []
        self.log.runs.append(run)
        self.found, self.streams, self.ends, self.cut = {}, {}, {}, ""

    def trains(self, after: int, known: int | None, line: int) -> None:
        """Training on an experience begins, after that on `known`."""
        if after == 0 and known:
            self.finish()
            self.begun = line
        elif after not in (known, 0 if known is None else known + 1):
            raise wrong(self.path, line, f"experience {after} follows {known}; expected one after the other")

    def done(self) -> SuiteLog:
        """What was read, with what was not."""
        self.finish()
        if self.future:
            self.log.remarks.append("accuracies on tasks not yet learned are left out")
        return self.log


def read(path: Path, lines: Lines) -> SuiteLog:
    """The runs of a log. Raises InputError with the line that cannot be read."""
    return (
        _of_csv(path, lines)
        if lines[0][1].lstrip("\ufeff").startswith("eval_exp,")
        else _of_print(path, lines)
    )


def _of_csv(path: Path, lines: Lines) -> SuiteLog:
    reader, heading, known = _Reader(path, False), next(csv.reader([lines[0][1]])), None
    if heading[:3] != [*HEADING]:
        raise wrong(path, lines[0][0], f"expected the columns {', '.join(HEADING)}")
    for place, (line, text) in enumerate(lines[1:], 2):
        cells, last = [cell.strip() for cell in text.split(",")], place == len(lines)
        if last and len(cells) < len(heading):
            reader.cut = f"line {line} ends in the middle"
            break
        if len(cells) != len(heading) or not cells[0].isdecimal():
            raise wrong(path, line, f"{text.strip()[:40]!r}; expected {','.join(heading)}")
        if cells[1] == "None":
            continue
        if not cells[1].isdecimal():
            raise wrong(path, line, f"training_exp {cells[1][:40]!r} is not a number")
        on, after = int(cells[0]), int(cells[1])
        if after != known:
            reader.trains(after, known, line)
            known = after
        reader.found.setdefault(after, {})[on] = value(path, line, cells[2])
        reader.ends[after] = line
    log = reader.done()
    if log.runs and not any(number.number for run in log.runs for row in run.rows for number in row):
        raise wrong(path, lines[1][0], "every accuracy is 0: it was not monitored (accuracy_metrics)")
    return log


def _of_print(path: Path, lines: Lines) -> SuiteLog:
    reader, known, training, evaluating = _Reader(path, True), None, False, False
    whole = ends_whole(path)
    for place, (line, text) in enumerate(lines):
        last = place + 1 == len(lines) and not whole
        if found := PHASE.search(text):
            training = found[1] == "Start" if found[2] == "training" else training
            if found[2] == "eval" and not training and known is not None:
                evaluating = found[1] == "Start"
                reader.cut = f"the evaluation after task {known + 1} does not end (line {line})" * evaluating
                if evaluating:
                    reader.found[known], reader.ends[known] = {}, line
                    reader.streams.pop(known, None)
        elif found := TRAINING.search(text):
            reader.trains(int(found[1]), known, line)
            known = int(found[1])
        elif training or known is None:
            continue
        elif found := EXPERIENCE.search(text):
            _experience(reader, line, known, found, last)
        elif (found := STREAM.search(text)) and found[1] == "test" and found[3].strip() and not last:
            reader.streams[known] = value(path, line, found[3])
    return reader.done()


def _experience(reader: _Reader, line: int, known: int, found: re.Match, last: bool) -> None:
    """The accuracy on one experience."""
    stream, task, on, text = found.groups()
    if stream != "test":
        return
    reader.task = task if reader.task is None else reader.task
    if task != reader.task:
        labels = f"Task{task} beside Task{reader.task}: the task was known at test time"
        raise wrong(reader.path, line, f"{labels}; expected one label, as in class-incremental learning")
    if last:
        return  # it may be cut
    reader.found.setdefault(known, {})[int(on)] = value(reader.path, line, text)
    reader.ends[known] = line
