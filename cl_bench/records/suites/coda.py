"""Results of CODA-Prompt's code: results-acc/pt.yaml and results-acc/global.yaml in its log folder.

A file is written anew after each repeat: a mapping with 'history', its 'mean' over repeats and, from the
third repeat on, 'std'.

- pt.yaml: history[J][T][R] is the accuracy on task J after task T in repeat R, among all classes so far; 0
  for T before J. The first index is the task evaluated on.
- global.yaml: history[T][R] is the mean over tasks of those, after task T: only a curve.
- All are percent, not rounded. Repeat R has the seed R, from 0.
- pt-local.yaml has accuracies with the task known, and is not read; results-time has seconds.

Keys are written in the order of the alphabet, so that a file which was cut short lacks 'mean', or has one
that is not of 'history': it is refused as a whole.
"""

import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from cl_bench.errors import InputError
from cl_bench.records.matrix_file import Value
from cl_bench.records.suites.log import Lines, LogRun, SuiteLog
from cl_bench.text import yaml_file

NAME = "CODA-Prompt"
EXAMPLE = "'history:' in results-acc/pt.yaml"
MARK = re.compile(r"^history:")
ROUNDING = 1e-9  # of numbers that are not rounded


def read(path: Path, lines: Lines) -> SuiteLog:
    """The repeats of a file. Raises InputError for one that is cut short or of another shape."""
    if path.name.startswith("pt-local") or "results-time" in path.absolute().parts:
        raise InputError(f"{path} has no accuracies without the task known; expected results-acc/pt.yaml")
    values = yaml_file.read(path).values
    history: Any = values.get("history")
    mean = values.get("mean")
    deep = _depth(history)
    if deep not in (2, 3) or not _regular(history, deep):
        shapes = "tasks x tasks x repeats (pt.yaml) or tasks x repeats (global.yaml) of numbers"
        raise InputError(f"{path}, 'history': expected {shapes}")
    if deep == 3 and len(history) != len(history[0]):
        shape = f"{len(history)} x {len(history[0])} x {len(history[0][0])}"
        raise InputError(f"{path}, 'history': {shape}, expected tasks x tasks x repeats")
    if _depth(mean) != deep - 1 or not _regular(mean, deep - 1) or not _is_mean(mean, history, deep):
        short = "'mean' is not the mean of 'history' over repeats"
        raise InputError(f"{path}: {short}; was the file cut short? nothing is read of it")
    log = SuiteLog(path, NAME, 100.0, "percent, not rounded", [], "task_mean")
    repeats = history[0][0] if deep == 3 else history[0]
    for repeat in range(len(repeats)):
        log.runs.append(_run(path, history, deep, repeat, lines[0][0]))
    if deep == 2:
        beside = path.with_name("pt.yaml")
        more = f"; {beside} has the accuracies per task" if beside.exists() else ""
        log.remarks.append(f"averages alone: only the curve is read{more}")
    return log


def _run(path: Path, history: list, deep: int, repeat: int, line: int) -> LogRun:
    """A repeat. Raises InputError for accuracies on tasks not yet learned, as in a transposed matrix."""
    tasks = len(history)
    run = LogRun(line, str(repeat), lines=[line] * tasks)
    if deep == 2:
        run.curve = [Value(float(row[repeat]), ROUNDING) for row in history]
        return run
    for on in range(tasks):
        for after in range(on):
            if history[on][after][repeat] != 0:
                place = f"'history[{on}][{after}][{repeat}]'"
                not_yet = "an accuracy on a task not yet learned, expected 0; the first index is the task"
                raise InputError(f"{path}, {place}: {not_yet}")
    run.rows = [
        [Value(float(history[on][after][repeat]), ROUNDING) for on in range(after + 1)]
        for after in range(tasks)
    ]
    return run


def _depth(found: Any) -> int:
    depth = 0
    while isinstance(found, list) and found:
        found, depth = found[0], depth + 1
    return depth


def _regular(found: Any, depth: int) -> bool:
    """Whether it is lists in lists, so deep and of one length each, of finite numbers."""
    if depth == 0:
        return isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
    if not isinstance(found, list) or not found or not all(_regular(part, depth - 1) for part in found):
        return False
    return depth == 1 or all(_shape(one) == _shape(two) for one, two in pairwise(found))


def _shape(found: Any) -> tuple[int, ...]:
    return (len(found), *_shape(found[0])) if isinstance(found, list) else ()


def _is_mean(mean: Any, history: Any, depth: int) -> bool:
    if depth == 1:
        return abs(mean - math.fsum(history) / len(history)) < 1e-6
    pairs = zip(mean, history, strict=False)
    return len(mean) == len(history) and all(_is_mean(one, two, depth - 1) for one, two in pairs)
