"""Accuracies from elsewhere: read from CSV files and logs, kept beside the runs, marked where shown."""

import re
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import StringConstraints, ValidationError, model_validator

from cl_bench import splits
from cl_bench.config import Strict, build_config, canonical_json, whole_number
from cl_bench.errors import CannotRead, InputError
from cl_bench.files import write_atomically
from cl_bench.plugins import registry
from cl_bench.records.matrix_file import MatrixFile
from cl_bench.records.metrics import MEASURES, Conventions, accuracy_curve, accuracy_matrix
from cl_bench.records.sealed import content_of, entries, is_missing
from cl_bench.records.store import LeftOut

PARTS = 1_000_000  # fractions without test sizes are kept as millionths


OneLine = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f]*$")]


class ImportedSpec(Strict):
    """What a table says of an imported matrix, under the names that a run's specification has."""

    display: OneLine
    benchmark: str  # such as "cifar100/10"
    seed: OneLine
    source: OneLine
    backbone: str | None = None
    log: OneLine | None = None  # of a suite's log: which, and what its numbers are
    joint: bool = False
    as_published: tuple[str, ...] = ()
    keeps: str = ""
    reconstruction: bool = False
    options: dict = {}

    @property
    def label(self) -> str:
        """The name it was given."""
        return self.display

    def seed_name(self) -> str:
        """The seed it was given."""
        return self.seed


class ImportedRecord(Strict):
    """Right answers per task after each task, as in a run's record, or only averages that a log prints."""

    spec: ImportedSpec
    correct: tuple[tuple[int, ...], ...]  # empty where accuracies per task are not known
    test_sizes: tuple[int, ...]
    counted: bool  # whether the test sizes are real ones
    curve: tuple[float, ...] = ()  # accuracy on the classes so far after each task, as printed; fractions
    convention: Literal["task_mean", "sample"] | None = None  # of the curve
    status: str = "done"
    certificate: None = None

    @model_validator(mode="after")
    def _counts_fit(self) -> "ImportedRecord":
        """Whatever a file says, there are no more right answers than images, and one line after each task."""
        if not all(0 <= value <= 1 for value in self.curve):
            raise ValueError("a curve with values that are no fractions")
        if bool(self.curve) != bool(self.convention):
            raise ValueError("a curve needs a convention, and nothing else does")
        if self.curve and not self.correct:
            if len(self.test_sizes) not in (0, len(self.curve)) or min(self.test_sizes, default=1) < 1:
                raise ValueError(f"{len(self.curve)} averages and test sizes {list(self.test_sizes)}")
            return self
        accuracy_matrix(self.correct, self.test_sizes)
        if not len(self.correct) == len(self.test_sizes) == len(self.correct[-1]):
            raise ValueError(f"{len(self.correct)} lines of accuracies and {len(self.test_sizes)} test sizes")
        if self.curve and len(self.curve) != len(self.correct):
            raise ValueError(f"{len(self.correct)} lines of accuracies and {len(self.curve)} averages")
        return self

    @property
    def tasks(self) -> tuple:
        """One entry per task learned."""
        return self.correct or self.curve

    def accuracies(self, convention: str) -> list[float] | None:
        """Accuracy on the classes so far after each task, None where it is not known by this convention."""
        if self.correct and (self.counted or convention == "task_mean"):
            return accuracy_curve(self.correct, self.test_sizes, convention)
        equal = self.counted and len(set(self.test_sizes)) == 1  # the conventions agree
        return list(self.curve) if self.curve and (equal or convention == self.convention) else None

    def measure(self, metric: str, conventions: Conventions) -> float | None:
        """A metric of `MEASURES`, None where it does not exist or cannot be known."""
        if metric not in ("accuracy", "incremental"):
            return MEASURES[metric](self, conventions) if self.correct else None
        found = self.accuracies(conventions.accuracy)
        if found is None:
            return None
        return found[-1] if metric == "accuracy" else sum(found) / len(found)


def checked_benchmark(text: str) -> tuple[str, int, list[int]]:
    """A benchmark's name as tables have it, its number of tasks, and their classes where it says them.

    Raises InputError for what is none, or does not say how many tasks it has.
    """
    dataset, _, split = text.rpartition("/")
    cut, classes = splits.offline(split), []
    if splits.BASE.fullmatch(cut) and dataset:
        raise InputError(
            f"{text!r} does not say how many tasks it has; write their classes: DATASET/50-10-10"
        )
    if splits.SIZES.fullmatch(cut):
        classes = [int(part) for part in cut.split("-")]
        cut = splits.name(classes) if all(classes) else ""
    tasks = len(classes) or whole_number(cut)
    if not dataset or not cut or not tasks:
        raise InputError(f"{text!r} is not a benchmark; expected DATASET/TASKS, such as cifar100/10")
    registry.find("datasets", dataset.partition(":")[0])
    name = f"{dataset}/{splits.online(cut) if splits.is_online(split) else cut}"
    return name, tasks, classes


def parse_sizes(text: str) -> tuple[int, ...]:
    """ "1000,900" -> (1000, 900). Raises InputError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(whole_number(part) for part in parts):
        raise InputError(f"--test-sizes {text!r}: expected numbers of test images, such as 1000,1000")
    return tuple(map(int, parts))


def described(**values) -> ImportedSpec:
    """The specification with these values. Raises InputError for those that cannot be used."""
    return build_config(ImportedSpec, [values], "the import")


def from_file(
    found: MatrixFile, spec: ImportedSpec, test_sizes: tuple[int, ...] | None, percent: bool
) -> ImportedRecord:
    """The record of a matrix that was read. Raises InputError where it does not fit what is said of it."""
    rows, path, signs = found.rows, found.path, found.percent
    if test_sizes is not None and len(test_sizes) != len(rows):
        raise InputError(f"{path} has {len(rows)} tasks, --test-sizes has {len(test_sizes)}")
    sizes, scale = test_sizes or (PARTS,) * len(rows), 100.0 if percent or signs else 1.0
    largest = max(value.number for row in rows for value in row)
    if not (percent or signs) and largest > 1:
        raise InputError(f"{path} holds values above 1; give --percent if they are percentages")
    if percent and not signs and largest <= 1:
        signed = "write percent signs if no accuracy is above 1 percent"
        what_to_do = f"leave out --percent if they are fractions, or {signed}"
        raise InputError(f"{path} holds no value above 1; {what_to_do}")
    correct = []
    for place, row in enumerate(rows):
        for column, (value, size) in enumerate(zip(row, sizes, strict=False), 1):
            count, unit = value.number / scale * size, value.rounding / scale * size
            if not 0 <= value.number <= scale:
                raise found.error(place, f", task {column}: {value.number:g} is not between 0 and {scale:g}")
            if test_sizes is not None and abs(count - round(count)) > unit + 1e-6:
                part = f"{value.number:g} of {size} images"
                raise found.error(place, f", task {column}: {part} is not a whole number of images")
        pairs = zip(row, sizes, strict=False)
        correct.append(tuple(round(value.number / scale * size) for value, size in pairs))
    accuracy_matrix(correct, sizes)
    counted = test_sizes is not None
    return ImportedRecord(spec=spec, correct=tuple(correct), test_sizes=tuple(sizes), counted=counted)


def doubts(record: ImportedRecord) -> list[str]:
    """What deserves a look in a matrix that can be used.

    A task that was hardly learned may be a fraction among percentages.
    """
    learned = [record.correct[task][task] / record.test_sizes[task] for task in range(len(record.correct))]
    low = [f"task {task} ({share:.2%})" for task, share in enumerate(learned, 1) if share <= 0.01]
    if not low:
        return []
    return [f"at most 1 % right after learning: {', '.join(low)}; are there fractions among percentages?"]


def save(record: ImportedRecord, root: Path) -> Path:
    """Keep it in the results folder; returns its file.

    Raises InputError where another matrix has the same name, benchmark and seed.
    """
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
    name = short_name(re.sub(r"[^\w.-]+", "-", "-".join(identity)))
    return root / "imported" / f"{name}-{sha256(canonical_json(identity).encode()).hexdigest()[:8]}.json"


def short_name(name: str, longest: int = 200) -> str:
    """The beginning, in bytes, of a name too long for a file's, whose rest is to tell it apart."""
    return name.encode()[:longest].decode(errors="ignore")


def require_same(record: ImportedRecord, root: Path) -> None:
    """Raises InputError where the folder holds another matrix of the same name, benchmark and seed."""
    path = place(record, root)
    if not is_missing(path) and _read(path) != record:
        other = f"another matrix of {record.spec.display} on {record.spec.benchmark}"
        raise InputError(f"{path} holds {other}; give another --seed, or remove it first")


def records(root: Path) -> list[ImportedRecord]:
    """Those in a results folder. Raises InputError for a file that is none, CannotRead for one unreadable."""
    return [_read(path) for path in entries(root / "imported", "[!.]*.json")]


def usable(root: Path) -> tuple[list[ImportedRecord], list[LeftOut]]:
    """Those in a results folder, and what cannot be read or is not one."""
    found, left_out = [], []
    for path in entries(root / "imported", "[!.]*.json"):
        try:
            found.append(_read(path))
        except CannotRead as error:
            left_out.append(LeftOut(path, "unreadable", str(error)))
        except InputError as error:
            left_out.append(LeftOut(path, "damaged", str(error)))
    return found, left_out


def _read(path: Path) -> ImportedRecord:
    data = content_of(path)
    if data is None:
        raise CannotRead(path, "it is gone")
    try:
        return ImportedRecord.model_validate_json(data)
    except ValueError as error:
        if isinstance(error, ValidationError):
            reason = error.errors()[0]["msg"]
        else:
            reason = str(error).splitlines()[0]
        what_to_do = "import it again or remove it"
        raise InputError(f"{path} is not an imported matrix ({reason}); {what_to_do}") from error
