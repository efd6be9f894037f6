"""Writes reports: for every benchmark its table and figures, or those that a specification asks for; and one page that holds them all."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cl_bench import imported
from cl_bench.errors import InputError
from cl_bench.escape import markdown
from cl_bench.record import RunRecord
from cl_bench.report import build, latex, layout, pictures, published, tables
from cl_bench.report.found import Found
from cl_bench.report.select import Conventions, group
from cl_bench.report.significance import Answers
from cl_bench.report.table import Table
from cl_bench.store import Store, write_atomically


@dataclass(frozen=True)
class Report:
    """The Markdown of all tables, everything that was written, and what is missing or was left out."""

    text: str
    paths: list[Path]
    warnings: list[str]
    tables: list[Table]


def of_records(records: Sequence[RunRecord], store: Store, out: Path, conventions: Conventions) -> Report:
    """Every benchmark's table and figures in a folder of its own, and `report.html`. Raises InputError when nothing can be shown or written."""
    others, warnings = imported.records(store.root), []
    if conventions.accuracy == "sample":
        warnings = [f"left out: {record.spec.display} was imported without test sizes" for record in others if not record.counted]
        others = [record for record in others if record.counted]
    benchmarks = group(records, others)
    if not benchmarks:
        raise InputError("there are no runs to report; `cl-bench run` makes some")
    folders = [out / benchmark.slug for benchmark in benchmarks]
    with _writing(out):
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        drawn = [pictures.of_benchmark(benchmark, conventions, folder) for benchmark, folder in zip(benchmarks, folders, strict=True)]
        made = [tables.of_benchmark(benchmark, conventions) for benchmark in benchmarks]
        paths = [path for table, folder in zip(made, folders, strict=True) for path in _write_table(table, folder, "table")]
        files = [[path for wait in begun for path in wait()] for begun in drawn]
        paths += [path for found in files for path in found]
        warnings += [line for table, folder in zip(made, folders, strict=True) for line in latex.warning(table, f"{folder.name}/table.tex")]
        parts = [(table, _pictures(found)) for table, found in zip(made, files, strict=True)]
        paths.append(_write_page(out, "Results", parts, [], conventions))
    return Report("\n".join(tables.markdown(table) for table in made), paths, warnings, made)


def of_layout(path: Path, store: Store, out: Path, accuracy: str | None, forgetting: str | None) -> Report:
    """The tables and figures of a specification: a file each, `report.md`, `report.tex` and `report.html`.

    Raises InputError when the specification cannot be used, when a selector has several answers, or when none has any.
    """
    wanted = layout.read(path)
    conventions = Conventions(accuracy or wanted.accuracy, forgetting or wanted.forgetting)
    registry = published.load(Path(wanted.published)) if wanted.published else None
    records, warnings = read_records(store)
    benchmarks = group(records, imported.records(store.root))
    for row in (row for benchmark in benchmarks for row in benchmark.rows):
        row.shared_options = frozenset()  # a selected row says everything that sets it apart from the preset
    found = Found(benchmarks, conventions, Answers(store), registry, warnings)
    grids = [found.grid(table) for table in wanted.tables]
    panels = [pictures.panels(figure, found) for figure in wanted.figures]
    if wanted.tables and not any(row for grid in grids for line in grid for row in line):
        first = f": {found.warnings[0]}" if found.warnings else ""
        listing = f"`cl-bench ls runs --results {shlex.quote(str(store.root))}` lists all"
        raise InputError(f"no run in {store.root} is selected by any table of {path}{first} ({listing})")
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        drawn = [pictures.of_layout(figure, shown, found, out) for figure, shown in zip(wanted.figures, panels, strict=True)]
        made = [build.table(table, grid, found) for table, grid in zip(wanted.tables, grids, strict=True)]
        paths = [written for table in made for written in _write_table(table, out, table.name)]
        shown = []
        for figure, wait in zip(wanted.figures, drawn, strict=True):
            files = wait()
            paths += files
            shown += [(figure.title or figure.name, path) for path in files if path.suffix == ".png"]
        text = "\n".join([f"# {markdown(wanted.title)}\n", *(tables.markdown(table) for table in made)])
        found.warnings += [line for table in made for line in latex.warning(table, f"{table.name}.tex")]
        links = [f"![{markdown(title, bracketed=True)}]({picture.name})\n" for title, picture in shown]
        write_atomically(out / "report.md", "\n".join([text, *links]).encode())
        write_atomically(out / "report.tex", latex.document(made).encode())
        page = _write_page(out, wanted.title, [(table, []) for table in made], shown, conventions)
    return Report(text, [*paths, out / "report.md", out / "report.tex", page], found.warnings, made)


def read_records(store: Store) -> tuple[list[RunRecord], list[str]]:
    """The records of a results folder, and a warning for each that cannot be believed. Raises InputError when there is no such folder."""
    if not store.root.is_dir():
        raise InputError(f"there is no results folder {store.root}; `cl-bench run` makes one, --results names another")
    records, warnings = [], []
    for found in store.records():
        if isinstance(found, RunRecord):
            records.append(found)
        else:
            warnings.append(f"left out: {found[1]}")
    return records, warnings


class _writing:
    """What cannot be written is an InputError that names the folder."""

    def __init__(self, out: Path):
        self._out = out

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error, trace) -> None:
        if isinstance(error, OSError):
            raise InputError(f"cannot write the report to {self._out}: {error.strerror or error}; choose another folder with --out") from error


def _write_table(table: Table, folder: Path, name: str) -> list[Path]:
    contents = {".md": tables.markdown(table), ".tex": latex.document([table])}
    for suffix, content in contents.items():
        write_atomically(folder / f"{name}{suffix}", content.encode())
    return [folder / f"{name}{suffix}" for suffix in contents]


def _pictures(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    return [(path.stem, path) for path in paths if path.suffix == ".png"]


def _write_page(out: Path, title: str, parts: Sequence[tuple[Table, Sequence]], pictures: Sequence, conventions: Conventions) -> Path:
    from cl_bench.report import page

    path = out / "report.html"
    write_atomically(path, page.render(title, parts, pictures, conventions).encode())
    return path
