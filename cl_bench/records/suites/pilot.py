"""Logs of LAMDA-PILOT and PyCIL, and of methods published in their frame.

After each task the trainer logs, each behind a time stamp, "[trainer.py] =>" and nothing else:

    CNN: {'total': 86.5, '00-09': 92.1, '10-19': 80.9, 'old': 92.1, 'new': 80.9}
    CNN top1 curve: [98.9, 86.5]

- 'total' is right answers over all test images of the classes so far, in percent, rounded to 2 digits
  (numpy's around): weighted by images. The curve repeats it, a value a task.
- 'aa-bb' are accuracies on classes aa to bb in the order they were learned, rounded likewise. Where every
  task has as many classes they are the tasks'. With a larger first task, later versions have one group for
  it; earlier ones cut its classes into groups of a later task's size, which are no tasks: then only the curve
  is known. 'old' and 'new' are all earlier classes and the last task's.
- With numpy 2 a number is np.float64(86.5).
- A run begins with all its settings, one a line, among them "seed: 1993". A file is appended to: it may hold
  several seeds, and runs that were stopped.
- "NME: {...}" and "NME top1 curve" are the nearest-mean classifier's, "CNN top5 curve" counts five guesses,
  and "CNN top1 task curve" or "with task curve" (of some methods) know or guess the task: none is read.
"""

import re
from pathlib import Path

from cl_bench.records.matrix_file import Value
from cl_bench.records.suites.log import Lines, LogRun, SuiteLog, numbers, plain, value, wrong

NAME = "PILOT or PyCIL"
EXAMPLE = "CNN: {'total': 86.5, '00-09': 92.1, ...} or CNN top1 curve: [98.9, 86.5]"
GROUPS = re.compile(r"(?:^|=>|\s)\s*CNN: (\{.*)$")
CURVE = re.compile(r"(?:^|=>|\s)\s*CNN top1 curve: (\[.*)$")
SEED = re.compile(r"(?:^|=>)\s*seed: \[?(\d+)\]?\s*$", re.IGNORECASE)
INITIAL = re.compile(r"(?:^|=>)\s*init_cls: (\d+)\s*$")  # classes of the first task
PAIR = re.compile(r"'([^']*)': ([^,]+)")
CLASSES = re.compile(r"(\d+)-(\d+)")
MARK = re.compile(f"{GROUPS.pattern}|{CURVE.pattern}")


class _Reader:
    def __init__(self, path: Path):
        self.path = path
        self.run = LogRun(1)
        self.runs: list[LogRun] = []
        self.pending: tuple[int, Value | None, list[Value], int] | None = None  # of a task without its curve
        self.seen = 0  # classes
        self.last = ""

    def begin(self, line: int, seed: str | None = None) -> None:
        """Another run, or the settings of one."""
        self.close()
        self.run, self.pending, self.seen, self.last = LogRun(line, seed), None, 0, ""

    def close(self) -> None:
        """Put the run to those of the log, where it has anything."""
        if self.pending:
            self._add(self.pending[0])
        if self.run.lines or self.run.cut:
            self.runs.append(self.run)

    def groups(self, line: int, text: str, last: bool) -> None:
        """A line of accuracies by groups of classes."""
        if text == self.last:  # logged twice
            return
        if not plain(text).rstrip().endswith("}"):
            if not last:
                raise wrong(self.path, line, f"no closing bracket; expected such as {EXAMPLE}")
            self.run.cut = f"line {line} ends in the middle"
            return
        pairs = dict(PAIR.findall(plain(text).strip().strip("{}")))
        total = pairs.get("total")
        found = {tuple(map(int, key.split("-"))): pairs[key] for key in pairs if CLASSES.fullmatch(key)}
        if total is None and not found:
            raise wrong(self.path, line, f"neither 'total' nor groups of classes; expected such as {EXAMPLE}")
        starts = [start for start, _ in found]
        if starts != [0, *(end + 1 for _, end in found)][: len(starts)]:
            raise wrong(self.path, line, f"groups of classes with gaps ({', '.join(pairs)})")
        end = max((end + 1 for _, end in found), default=0)
        if found and end <= self.seen:
            self.begin(line)
        elif self.pending:
            self._add(self.pending[0])
        read = [value(self.path, line, cell) for cell in found.values()]
        average = None if total is None else value(self.path, line, total)
        self.pending, self.last = (line, average, read, end), text

    def curve(self, line: int, text: str, last: bool) -> None:
        """The line behind it, or a curve alone."""
        if not text.rstrip().endswith("]"):
            if not last:
                raise wrong(self.path, line, f"no closing bracket; expected such as {EXAMPLE}")
            self.run.cut = f"line {line} ends in the middle"
            return
        found = numbers(self.path, line, text)
        if self.pending is None and found == self.run.curve:
            return
        if self.pending is None and len(found) == 1 and self.run.lines:
            self.begin(line)
        expected = self.run.tasks + 1
        if len(found) != expected:
            raise wrong(self.path, line, f"a curve of {len(found)} accuracies after {expected} tasks")
        _, average, read, end = self.pending or (line, None, [], 0)
        if average is not None and abs(found[-1].number - average.number) > 2 * average.rounding:
            ends = f"the curve ends with {found[-1].number:g}"
            raise wrong(self.path, line, f"{ends}, 'total' above it is {average.number:g}")
        self.pending = (line, found[-1], read, end)
        self._add(line)

    def _add(self, line: int) -> None:
        """The task that is complete."""
        assert self.pending is not None
        run, (_, average, read, end) = self.run, self.pending
        if average is not None:
            run.curve.append(average)
        run.lines.append(line)
        run.rows.append(read)
        run.classes.append(end - self.seen)
        self.seen, self.pending = end, None


def read(path: Path, lines: Lines) -> SuiteLog:
    """The runs of a log. Raises InputError with the line that cannot be read."""
    reader, initial = _Reader(path), {}
    for place, (line, text) in enumerate(lines):
        last = place + 1 == len(lines)
        if found := INITIAL.search(text):
            initial[line] = int(found[1])
        elif found := SEED.search(text):
            reader.begin(line, found[1])
        elif found := GROUPS.search(text):
            reader.groups(line, found[1], last)
        elif found := CURVE.search(text):
            reader.curve(line, found[1], last)
    reader.close()
    log = SuiteLog(path, NAME, 100.0, "percent, rounded to 2 digits", reader.runs, "sample")
    for run in log.runs:
        _settle(run, log, initial)
    return log


def _settle(run: LogRun, log: SuiteLog, initial: dict[int, int]) -> None:
    """Keep of a run what is known: accuracies per task only where groups of classes are the tasks."""
    if len(run.curve) != len(run.lines):
        run.curve = []
    first = next(
        (initial[line] for line in sorted(initial, reverse=True) if line < min(run.lines, default=0)), 0
    )
    other = bool(first and run.classes and run.classes[0] not in (0, first))  # groups larger than a task
    if other or any(len(row) != place for place, row in enumerate(run.rows, 1)):
        if any(run.rows):
            groups = "its groups of classes are not the tasks"
            log.remarks.append(f"line {run.lines[0]}: {groups}; only the curve is read")
        if not run.curve and run.lines:
            raise wrong(log.path, run.lines[0], f"no accuracies per task and no curve; expected {EXAMPLE}")
        run.rows = []
    if other or min(run.classes, default=0) <= 0:
        run.classes = []
