"""Accuracy matrices from elsewhere: read from CSV files, kept in a results folder beside the runs, marked wherever they are shown."""

import csv
import re
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints, ValidationError

from cl_bench import registry
from cl_bench.config import Strict, build_config, canonical_json
from cl_bench.errors import InputError
from cl_bench.metrics import accuracy_matrix
from cl_bench.store import write_atomically

PARTS = 1_000_000  # fractions without test sizes are kept as millionths


OneLine = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f]*$")]


class ImportedSpec(Strict):
    """What a table says of an imported matrix, under the names that a run's specification has."""

    display: OneLine
    benchmark: str  # such as "cifar100/10"
    seed: OneLine
    source: OneLine
    backbone: str | None = None
    joint: bool = False
    as_published: tuple[str, ...] = ()
    keeps: str = ""
    options: dict = {}

    @property
    def label(self) -> str:
        """The name it was given."""
        return self.display

    def seed_name(self) -> str:
        """The seed it was given."""
        return self.seed


class ImportedRecord(Strict):
    """Right answers per task after each task, as in a run's record; `counted` says whether the test sizes are real ones."""

    spec: ImportedSpec
    correct: tuple[tuple[int, ...], ...]
    test_sizes: tuple[int, ...]
    counted: bool
    status: str = "done"
    certificate: None = None

    @property
    def tasks(self) -> tuple:
        """One entry per task learned."""
        return self.correct


def checked_benchmark(text: str) -> str:
    """A benchmark's name with a number of tasks in it. Raises InputError."""
    dataset, _, tasks = text.rpartition("/")
    if not dataset or not tasks.isdigit():
        raise InputError(f"{text!r} is not a benchmark; expected DATASET/TASKS, such as cifar100/10")
    registry.find("datasets", dataset.partition(":")[0])
    return text


def parse_sizes(text: str) -> tuple[int, ...]:
    """ "1000,900" -> (1000, 900). Raises InputError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdigit() and int(part) for part in parts):
        raise InputError(f"--test-sizes {text!r}: expected numbers of test images, such as 1000,1000")
    return tuple(map(int, parts))


def described(**values) -> ImportedSpec:
    """The specification with these values. Raises InputError for those that cannot be used."""
    return build_config(ImportedSpec, [values], "the import")


def read_matrix(path: Path, spec: ImportedSpec, test_sizes: tuple[int, ...] | None, percent: bool) -> ImportedRecord:
    """A lower triangle of accuracies, one line after each task; cells above the diagonal may be empty, missing or 0.

    Raises InputError with the line and column of the first cell that cannot be used.
    """
    rows, tasks = _numbers(path), int(spec.benchmark.rpartition("/")[2])
    if len(rows) != tasks:
        raise InputError(f"{path} has {len(rows)} lines of accuracies, {spec.benchmark} has {tasks} tasks")
    if test_sizes is not None and len(test_sizes) != len(rows):
        raise InputError(f"{path} has {len(rows)} tasks, --test-sizes has {len(test_sizes)}")
    sizes, scale = test_sizes or (PARTS,) * len(rows), 100.0 if percent else 1.0
    largest = max(value for row in rows for value, _ in row)
    if not percent and largest > 1:
        raise InputError(f"{path} holds values above 1; give --percent if they are percentages")
    if percent and largest <= 1:
        raise InputError(f"{path} holds no value above 1; leave out --percent if they are fractions")
    correct = []
    for line, row in enumerate(rows, 1):
        for column, (value, decimals) in enumerate(row, 1):
            count, unit = value / scale * sizes[column - 1], 0.5 * 10.0**-decimals / scale * sizes[column - 1]
            if not 0 <= value <= scale:
                raise InputError(f"{path}, line {line}, task {column}: {value:g} is not between 0 and {scale:g}")
            if test_sizes is not None and abs(count - round(count)) > unit + 1e-6:
                raise InputError(f"{path}, line {line}, task {column}: {value:g} of {sizes[column - 1]} images is not a whole number of images")
        correct.append(tuple(round(value / scale * size) for (value, _), size in zip(row, sizes, strict=False)))
    accuracy_matrix(correct, sizes)
    return ImportedRecord(spec=spec, correct=tuple(correct), test_sizes=tuple(sizes), counted=test_sizes is not None)


def _numbers(path: Path) -> list[list[tuple[float, int]]]:
    """The triangle in the file, each value with its number of decimals; a first line without numbers is a heading."""
    try:
        text = path.read_text(encoding="utf-8")
        lines = [[cell.strip() for cell in line] for line in csv.reader(text.splitlines()) if any(cell.strip() for cell in line)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if lines and not any(re.match(r"[-+.\d]", cell) for cell in lines[0]):
        lines = lines[1:]
    if not lines:
        raise InputError(f"{path} holds no numbers; expected one line of accuracies after each task")
    rows = []
    for number, line in enumerate(lines, 1):
        needed, above = line[:number], line[number:]
        if len(needed) < number or not all(needed):
            raise InputError(f"{path}, line {number}: expected {number} accuracies (tasks 1 to {number}), got {sum(map(bool, needed))}")
        try:
            rows.append([(float(cell), len(cell.partition(".")[2])) for cell in needed])
            over = [float(cell) for cell in above if cell]
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        if any(value != 0 for value in over):
            raise InputError(f"{path}, line {number}: there are accuracies on tasks not yet learned; is the matrix transposed?")
    return rows


def save(record: ImportedRecord, root: Path) -> Path:
    """Keep it in the results folder; returns its file. Raises InputError where another matrix has the same name, benchmark and seed."""
    path = place(record, root)
    require_same(record, root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, record.model_dump_json(indent=1).encode())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def place(record: ImportedRecord, root: Path) -> Path:
    """The file of a matrix: one for each name, benchmark and seed."""
    identity = (record.spec.display, record.spec.benchmark, record.spec.seed)
    name = re.sub(r"[^\w.-]+", "-", "-".join(identity))
    return root / "imported" / f"{name}-{sha256(canonical_json(identity).encode()).hexdigest()[:8]}.json"


def require_same(record: ImportedRecord, root: Path) -> None:
    """Raises InputError where the results folder holds another matrix under the same name, benchmark and seed."""
    path = place(record, root)
    if path.exists() and _read(path) != record:
        raise InputError(f"{path} holds another matrix of {record.spec.display} on {record.spec.benchmark}; give another --seed, or remove it first")


def records(root: Path) -> list[ImportedRecord]:
    """Those in a results folder. Raises InputError for a file that is not one."""
    return [_read(path) for path in sorted((root / "imported").glob("*.json"))]


def _read(path: Path) -> ImportedRecord:
    try:
        return ImportedRecord.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise InputError(f"{path} is not an imported matrix ({str(error).splitlines()[0]}); import it again or remove it") from error
