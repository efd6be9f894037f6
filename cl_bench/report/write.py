"""Writes reports: tables and figures of every benchmark or as specified, and one page that holds them all."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cl_bench.errors import InputError, RunFailed
from cl_bench.files import write_atomically
from cl_bench.records import imported
from cl_bench.records.metrics import Conventions
from cl_bench.records.record import RunRecord
from cl_bench.records.sealed import is_missing
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import LeftOut, Store
from cl_bench.report import build, latex, published, render
from cl_bench.report import spec as layout
from cl_bench.report.answers import Answers
from cl_bench.report.figures import choose
from cl_bench.report.grouping import group
from cl_bench.report.lookup import Found
from cl_bench.report.settings import options_in
from cl_bench.report.spec import selector
from cl_bench.report.table import Table
from cl_bench.text.escape import markdown


@dataclass(frozen=True)
class Report:
    """The Markdown of all tables, everything that was written, and what is missing or was left out."""

    text: str
    paths: list[Path]
    warnings: list[str]
    tables: list[Table]
    # what numbers lack, or may lack, since it could not be read or believed
    left_out: list[LeftOut] = field(default_factory=list)


def of_folder(store: Store, out: Path, conventions: Conventions) -> Report:
    """`of_records` of all runs in a results folder."""
    records, left_out = read_records(store)
    return of_records(records, store, out, conventions, left_out)


def of_records(
    records: Sequence[RunRecord],
    store: Store,
    out: Path,
    conventions: Conventions,
    left_out: Sequence[LeftOut] = (),
) -> Report:
    """Every benchmark's table and figures in a folder of its own, and `report.html`.

    Runs that are left out stand in the tables without numbers. Raises InputError when nothing can be shown or
    written, CannotRead when nothing could be read.
    """
    (others, unusable), warnings = imported.usable(store.root), []
    left_out = [*left_out, *unusable]
    if conventions.accuracy == "sample":
        uncounted = [record.spec.display for record in others if record.accuracies("sample") is None]
        warnings = [f"left out: {name} was imported without test sizes" for name in uncounted]
        others = [record for record in others if record.accuracies("sample") is not None]
    benchmarks = group([*records, *standing(left_out)], others)
    if not benchmarks:
        require_none(left_out)
        raise InputError("there are no runs to report; `cl-bench run` makes some")
    folders = [out / benchmark.slug for benchmark in benchmarks]
    with _writing(out):
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        places = list(zip(benchmarks, folders, strict=True))
        drawn = [choose.of_benchmark(benchmark, conventions, folder) for benchmark, folder in places]
        answers = Answers(store)
        made = [build.of_benchmark(benchmark, conventions, answers) for benchmark in benchmarks]
        paths = []
        for table, folder in zip(made, folders, strict=True):
            paths += _write_table(table, folder, "table")
            warnings += latex.warning(table, f"{folder.name}/table.tex")
        files = [[path for wait in begun for path in wait()] for begun in drawn]
        paths += [path for found in files for path in found]
        parts = [(table, _pictures(found)) for table, found in zip(made, files, strict=True)]
        paths.append(_write_page(out, "Results", parts, [], conventions))
    text = "\n".join(render.markdown(table) for table in made)
    return Report(text, paths, warnings, made, [*left_out, *answers.left_out])


def of_layout(path: Path, store: Store, out: Path, accuracy: str | None, forgetting: str | None) -> Report:
    """The tables and figures of a specification: a file each, `report.md`, `report.tex` and `report.html`.

    Raises InputError when the specification cannot be used, when a selector has several answers, or when none
    has any.
    """
    wanted = layout.read(path)
    conventions = Conventions(accuracy or wanted.accuracy, forgetting or wanted.forgetting)
    registry = published.load(Path(wanted.published)) if wanted.published else None
    records, left_out = read_records(store)
    others, unusable = imported.usable(store.root)
    benchmarks = group([*records, *standing(left_out)], others)
    for row in (row for benchmark in benchmarks for row in benchmark.rows):
        row.shared_options = frozenset()  # a selected row says everything that sets it apart from the preset
    found = Found(benchmarks, conventions, Answers(store), registry)
    grids = [found.grid(table) for table in wanted.tables]
    panels = [choose.panels(figure, found) for figure in wanted.figures]
    concerned, others = _concerned([*left_out, *unusable], [*wanted.tables, *wanted.figures], grids, panels)
    found.warnings += [f"not asked for, and left out: {each.reason}" for each in others]
    if wanted.tables and not any(row for grid in grids for line in grid for row in line):
        require_none(concerned)
        first = f": {found.warnings[0]}" if found.warnings else ""
        listing = f"`cl-bench ls runs --results {shlex.quote(str(store.root))}` lists all"
        raise InputError(f"no run in {store.root} is selected by any table of {path}{first} ({listing})")
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        text, paths, made = _write_parts(wanted, grids, panels, found, out)
    return Report(text, paths, found.warnings, made, [*concerned, *found.answers.left_out])


def _write_parts(
    wanted: layout.Layout, grids: Sequence, panels: Sequence, found: Found, out: Path
) -> tuple[str, list[Path], list[Table]]:
    """The Markdown of a specification's tables, all files, and the tables; figures are drawn meanwhile."""
    figures = zip(wanted.figures, panels, strict=True)
    drawn = [choose.of_layout(figure, shown, found, out) for figure, shown in figures]
    made = [build.table(table, grid, found) for table, grid in zip(wanted.tables, grids, strict=True)]
    paths = [written for table in made for written in _write_table(table, out, table.name)]
    shown = []
    for figure, wait in zip(wanted.figures, drawn, strict=True):
        files = wait()
        paths += files
        shown += [(figure.title or figure.name, path) for path in files if path.suffix == ".png"]
    text = "\n".join([f"# {markdown(wanted.title)}\n", *(render.markdown(table) for table in made)])
    found.warnings += [line for table in made for line in latex.warning(table, f"{table.name}.tex")]
    links = [f"![{markdown(title, bracketed=True)}]({picture.name})\n" for title, picture in shown]
    write_atomically(out / "report.md", "\n".join([text, *links]).encode())
    write_atomically(out / "report.tex", latex.document(made).encode())
    parts = [(table, []) for table in made]
    page = _write_page(out, wanted.title, parts, shown, found.conventions)
    return text, [*paths, out / "report.md", out / "report.tex", page], made


def _concerned(
    left_out: Sequence[LeftOut], parts: Sequence, grids: Sequence, panels: Sequence
) -> tuple[list[LeftOut], list[LeftOut]]:
    """Those that a number of the report may lack, and the others.

    The first stand in one of its rows, or nothing but the method is known of them and one of its rows is of
    that method.
    """
    rows = [row for grid in grids for line in grid for row in line if row]
    rows += [row for shown in panels for panel in shown for _, row in panel.rows]
    records = [record for row in rows for record in row.records]
    standing_in = {record.path for record in records if isinstance(record, LeftOut)}
    wanted = [row for part in parts for row in part.rows]
    methods = {selector(row.select)[0] for row in wanted if row.select}
    methods |= {"imported" for row in wanted if row.imported}
    concerned, others = [], []
    for found in left_out:
        name = "imported" if found.folder == "imported" else found.folder.rpartition("-")[0]
        lacks = found.path in standing_in or (found.spec is None and found.lacking and name in methods)
        (concerned if lacks else others).append(found)
    return concerned, others


def standing(left_out: Sequence[LeftOut]) -> list[LeftOut]:
    """Those that stand in the row of their run."""
    return [found for found in left_out if found.spec and found.lacking]


def require_none(left_out: Sequence[LeftOut]) -> None:
    """Raises RunFailed where there is nothing to show and something was left out."""
    if left_out:
        more = f"; and {len(left_out) - 1} more like this" if len(left_out) > 1 else ""
        raise RunFailed(f"nothing can be shown: {left_out[0].reason}{more}")


def read_records(store: Store) -> tuple[list[RunRecord], list[LeftOut]]:
    """The records of a results folder, and those that cannot be read or believed.

    Raises InputError when there is no such folder.
    """
    store.require_folder()
    if is_missing(store.root):
        advice = "`cl-bench run` makes one, --results names another"
        raise InputError(f"there is no results folder {store.root}; {advice}")
    records, left_out = [], []
    for found in store.records():
        if found.spec and not _is_named(found.spec):
            path = store.folder(found.spec) / "record.json"
            reason = f"{path}: {found.spec.label[:100]!r} is not a method with options"
            left_out.append(LeftOut(path, "damaged", reason))
        else:
            (records if isinstance(found, RunRecord) else left_out).append(found)
    return records, left_out


def _is_named(spec: RunSpec) -> bool:
    """Whether a run's label is a method with options, which selectors are held against."""
    try:
        options_in(spec.label)
        return True
    except InputError:
        return False


class _writing:
    """What cannot be written is an InputError that names the folder."""

    def __init__(self, out: Path):
        self._out = out

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error, trace) -> None:
        if isinstance(error, OSError):
            reason = f"{error.strerror or error}; choose another folder with --out"
            raise InputError(f"cannot write the report to {self._out}: {reason}") from error


def _write_table(table: Table, folder: Path, name: str) -> list[Path]:
    contents = {".md": render.markdown(table), ".tex": latex.document([table])}
    for suffix, content in contents.items():
        write_atomically(folder / f"{name}{suffix}", content.encode())
    return [folder / f"{name}{suffix}" for suffix in contents]


def _pictures(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    return [(path.stem, path) for path in paths if path.suffix == ".png"]


def _write_page(
    out: Path,
    title: str,
    parts: Sequence[tuple[Table, Sequence]],
    pictures: Sequence,
    conventions: Conventions,
) -> Path:
    from cl_bench.report import page

    path = out / "report.html"
    write_atomically(path, page.render(title, parts, pictures, conventions).encode())
    return path
