"""Accuracy matrices from elsewhere, as the command `import` reads them."""

from pathlib import Path

from cl_bench.records import imported, matrix_file
from cl_bench.records.imported import ImportedRecord, ImportedSpec

MATRIX = "t1,t2,t3\n80.0,,\n60.0,70.0,0\n50.0,60.0,70.0\n"


def matrix_spec(**changes) -> ImportedSpec:
    """What is said of a matrix of three tasks."""
    said = {"display": "Theirs", "benchmark": "glyphs/3", "seed": "1", "source": "their Table 2"}
    return ImportedSpec(**{**said, **changes})


def read_matrix(
    path: Path, spec: ImportedSpec, test_sizes: tuple[int, ...] | None, percent: bool
) -> ImportedRecord:
    """The record of a file, of which this is said."""
    _, tasks, _ = imported.checked_benchmark(spec.benchmark)
    return imported.from_file(matrix_file.read(path, tasks), spec, test_sizes, percent)
