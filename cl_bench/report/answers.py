"""Which test images the runs of a results folder got right, as far as their predictions are stored."""

import io
import zipfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from cl_bench.errors import CannotRead
from cl_bench.records.record import RunRecord
from cl_bench.records.sealed import is_missing
from cl_bench.records.store import BROKEN_ARCHIVE, LeftOut, Store

HEADER = 128  # bytes before the numbers in a .npy file of a vector
MOST_CLASSES = 1 << 20  # a larger one among true classes is no class


@dataclass(frozen=True)
class Answered:
    """A run's answers after its last task for every test image, (N,) each."""

    right: np.ndarray
    tasks: np.ndarray  # -1: of none
    truth: np.ndarray
    _shares: dict = field(default_factory=dict)

    def weighted(self, convention: str) -> np.ndarray:
        """What each image adds to the final accuracy.

        A right one adds 1 / (tasks x images of its task) to the mean over tasks, or 1 / images.
        """
        if convention not in self._shares:
            self._shares[convention] = self._weighted(convention)
        return self._shares[convention]

    def _weighted(self, convention: str) -> np.ndarray:
        known = self.tasks >= 0
        sizes = np.bincount(self.tasks[known])
        if convention == "task_mean":
            weights = 1 / (len(sizes) * sizes)
        else:
            weights = np.full(len(sizes), 1 / known.sum())
        return np.where(known & self.right, weights[self.tasks], 0.0)


class Answers:
    """The answers of the runs in a results folder; true classes that are the same are one array."""

    def __init__(self, store: Store):
        self._store = store
        self._known: dict[Path, Answered | None] = {}
        self._truths: dict[tuple[int, int], np.ndarray] = {}  # by checksum and size
        self._tasks: dict[tuple, np.ndarray] = {}  # by those of the true classes and the run's tasks
        self.left_out: list[LeftOut] = []  # predictions without which intervals are missing

    def __call__(self, record: RunRecord) -> Answered | None:
        """None where predictions or true classes are not stored, or are not what the counts say."""
        path = self._store.folder(record.spec) / "predictions.npz"
        if path not in self._known:
            self._known[path] = self._read(path, record)
        return self._known[path]

    def _read(self, path: Path, record: RunRecord) -> Answered | None:
        try:
            # what numpy.load reads, without its search for the kind of each file
            with open(path, "rb") as file, zipfile.ZipFile(file) as arrays:
                names = [name for name in arrays.namelist() if name.startswith("task_")]
                if "truth.npy" not in arrays.namelist():
                    return None
                answers, (key, truth) = _array(arrays, max(names)), self._truth(arrays)
        except OSError as error:
            return self._without(path, record, error)
        except BROKEN_ARCHIVE as error:
            return self._damaged(path, record, f"is damaged ({type(error).__name__}: {str(error)[:200]})")
        if answers.shape != truth.shape or not _are_classes(truth):
            return self._damaged(path, record, f"has {answers.shape} answers to {truth.shape} images")
        place = (key, record.spec.task_classes)
        if place not in self._tasks:
            self._tasks[place] = tasks_of(truth, record)
        tasks, right = self._tasks[place], answers == truth
        counts = np.bincount(tasks[right & (tasks >= 0)], minlength=len(record.test_sizes))
        if counts.tolist() != list(record.tasks[-1].correct):
            return self._damaged(path, record, "does not hold the answers that its record counts")
        return Answered(right, tasks, truth)

    def _without(self, path: Path, record: RunRecord, error: OSError) -> None:
        """Predictions that were never kept lack nowhere; those that cannot be read do."""
        try:
            if isinstance(error, FileNotFoundError) and is_missing(path):
                return
            raise CannotRead(path, error)
        except CannotRead as unread:
            self.left_out.append(LeftOut(path, "unreadable", str(unread), record.spec))

    def _damaged(self, path: Path, record: RunRecord, reason: str) -> None:
        self.left_out.append(LeftOut(path, "damaged", f"{path} {reason}", record.spec))

    def _truth(self, arrays: zipfile.ZipFile) -> tuple[tuple[int, int], np.ndarray]:
        """Checksum and size of the true classes in a file, and the classes.

        Most runs share them: the same checksum and size are the same array (the counts are checked with it).
        """
        member = arrays.getinfo("truth.npy")
        key = (member.CRC, member.file_size)
        if key not in self._truths:
            self._truths[key] = _array(arrays, member.filename)
        return key, self._truths[key]


def _are_classes(truth: np.ndarray) -> bool:
    return truth.size > 0 and 0 <= truth.min() <= truth.max() < MOST_CLASSES


def _array(arrays: zipfile.ZipFile, name: str) -> np.ndarray:
    content = arrays.read(name)
    shape, dtype = _header(content[:HEADER])
    return np.frombuffer(content, dtype, offset=HEADER).reshape(shape)


@lru_cache(maxsize=64)  # most files have the same one, which takes longer to read than the numbers behind it
def _header(start: bytes) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of a vector of integers from the first `HEADER` bytes of its .npy file.

    Raises ValueError for anything else.
    """
    file = io.BytesIO(start)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("not a .npy file of version 1.0")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if file.tell() != HEADER or dtype.kind not in "iu" or len(shape) != 1:
        raise ValueError("not a vector of integers")
    return shape, dtype


def tasks_of(truth: np.ndarray, record: RunRecord) -> np.ndarray:
    """The task of every test image, (N,); -1 for classes that the run does not learn."""
    found = np.full(int(max(truth.max(), *map(max, record.spec.task_classes))) + 1, -1)
    for index, classes in enumerate(record.spec.task_classes):
        found[list(classes)] = index
    return found[truth]
