"""Answers the selectors of a report: the runs a cell is made of, and what may not stand in one column."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cl_bench.config import unknown
from cl_bench.errors import InputError
from cl_bench.records.metrics import Conventions
from cl_bench.records.spec import RunSpec
from cl_bench.report.answers import Answers
from cl_bench.report.nearest import of_cell
from cl_bench.report.published import Registry
from cl_bench.report.rows import Benchmark, Row
from cl_bench.report.settings import configured, on_benchmark, same, settings_of, unlike
from cl_bench.report.spec import ColumnLayout, FigureLayout, RowLayout, TableLayout, selector


@dataclass
class Found:
    """The runs of a report: what its selectors are answered from."""

    benchmarks: list[Benchmark]
    conventions: Conventions
    answers: Answers
    registry: Registry | None = None
    warnings: list[str] = field(default_factory=list)

    def places(self, column: ColumnLayout, row: RowLayout | None = None) -> list[Benchmark]:
        """The benchmarks that answer to a column, with the row's own backbone where it names one."""
        backbone = row.backbone if row and row.backbone else column.backbone
        wanted = column.model_copy(update={"backbone": backbone})
        return [found for found in self.benchmarks if _fits(found, wanted)]

    def row(self, column: ColumnLayout, wanted: RowLayout) -> Row | None:
        """The runs of a cell, None where there are none.

        Raises InputError, with what they differ in, where several benchmarks or configurations answer to its
        name.
        """
        if wanted.select is None and wanted.imported is None:
            return None
        rows = [(place, row) for place in self.places(column, wanted) for row in place.rows]
        if wanted.imported is not None:
            return self._imported(
                [row for _, row in rows], wanted.imported, wanted.backbone or column.backbone
            )
        fitting = [(place, row) for place, row in rows if not row.imported and _answers_to(row, wanted)]
        if len({place for place, _ in fitting}) > 1:
            told = _what_differs([place.spec for place, _ in fitting])
            several = f"several benchmarks called {column.benchmark}"
            raise InputError(f"{wanted.at}: {wanted.select} was run on {several}: {told}")
        if len(fitting) > 1:
            told = _what_is_unlike([row for _, row in fitting])
            configurations = f"{len(fitting)} configurations on {fitting[0][0].name} ({told})"
            advice = "choose with where = {...}"
            raise InputError(f"{wanted.at}: {wanted.select} has {configurations}; {advice}")
        return fitting[0][1] if fitting else None

    @staticmethod
    def _imported(rows: Sequence[Row], name: str, backbone: str | None) -> Row | None:
        """The first imported row of this name that is not known to be of another backbone."""
        for row in rows:
            other = None not in (backbone, row.spec.backbone) and row.spec.backbone != backbone
            if row.imported and row.display == name and not other:
                return row
        return None

    def grid(self, part: TableLayout | FigureLayout) -> list[list[Row | None]]:
        """The runs of every row and column of a table or figure; rows without runs are warned about once.

        Raises InputError where the runs of a column may not stand beside each other.
        """
        rows = [[self.row(column, row) for column in part.columns] for row in part.rows]
        for place, column in enumerate(part.columns):
            cells = [(wanted, line[place]) for wanted, line in zip(part.rows, rows, strict=True)]
            _together(column, [(wanted, row) for wanted, row in cells if row])
        alike: dict[str, dict[str, None]] = {}  # where runs are missing and what there is instead -> rows
        for wanted, line in zip(part.rows, rows, strict=True):
            if wanted.select or wanted.imported:
                absent = [column for column, row in zip(part.columns, line, strict=True) if row is None]
                for where in self._absent(wanted, absent):
                    alike.setdefault(where, {})[wanted.select or wanted.imported] = None
        for where, names in alike.items():
            self.warnings.append(f"{part.name}: no run of {', '.join(names)} on {where}")
        return rows

    def _absent(self, wanted: RowLayout, columns: Sequence[ColumnLayout]) -> list[str]:
        """The columns in which a row has no runs, together where what there is instead is the same."""
        absent: dict[str, list[str]] = {}
        for column in columns:
            instead = of_cell(wanted, column, self.places(column, wanted), self.benchmarks)
            absent.setdefault(instead, []).append(column.benchmark)
        return [", ".join(names) + "; " * bool(instead) + instead for instead, names in absent.items()]


def _together(column: ColumnLayout, rows: Sequence[tuple[RowLayout, Row]]) -> None:
    """Raises InputError where rows of one column have other images, or other backbones that no row names."""
    specs = [(wanted, row.spec) for wanted, row in rows if not row.imported]
    same_images = {(spec.manifest_digest, tuple(map(len, spec.task_classes))) for _, spec in specs}
    alone = [spec for wanted, spec in specs if not wanted.backbone]
    unnamed = {(spec.weights_sha256, spec.backbone.image_size) for spec in alone}
    if len(same_images) > 1 or len(unnamed) > 1:
        told = _what_differs([spec for _, spec in specs] if len(same_images) > 1 else alone)
        raise InputError(
            f"{column.at}: {column.benchmark} stands for runs that may not share a column: {told}"
        )


def _fits(benchmark: Benchmark, wanted: ColumnLayout) -> bool:
    """Whether a benchmark's runs belong in a column.

    Trials and runs on held-out images do only where the column names them.
    """
    spec = benchmark.spec
    if spec is None:
        backbones = [None, *(row.spec.backbone for row in benchmark.rows)]
        return (
            wanted.benchmark == benchmark.name
            and wanted.backbone in backbones
            and wanted.image_size is wanted.limit is wanted.validation is None
        )
    return on_benchmark(
        spec,
        wanted.benchmark,
        limit=wanted.limit,
        validation=wanted.validation,
        backbone=wanted.backbone,
        image_size=wanted.image_size,
    )


def _answers_to(row: Row, wanted: RowLayout) -> bool:
    """Whether a row's method and options are those selected, and its settings those of `where`."""
    if not configured(row.spec, *selector(wanted.select)):
        return False
    settings = settings_of(row.spec)
    for key in wanted.where:
        if key not in settings:
            raise unknown("setting", key, list(settings), f"{wanted.at}, where")
    return all(same(settings[key], value) for key, value in wanted.where.items())


def _what_is_unlike(rows: Sequence[Row]) -> str:
    """The settings in which rows differ, and their values."""
    settings = [settings_of(row.spec) for row in rows]
    told = []
    for key in unlike(settings):
        told.append(f"{key}: {', '.join(sorted({str(found.get(key)) for found in settings}))}")
    return "; ".join(told)


def _what_differs(specs: Sequence[RunSpec]) -> str:
    """What separates benchmarks of one name, and what to do about it."""
    separate = "report them from separate"
    ways = [
        ({spec.backbone.name for spec in specs}, "backbones", "name one with backbone = ..."),
        ({spec.backbone.image_size for spec in specs}, "image sizes", "name one with image_size = ..."),
        (
            {spec.weights_sha256[:12] for spec in specs},
            "weights of one name (sha256)",
            f"{separate} results folders",
        ),
        (
            {spec.manifest_digest[:12] for spec in specs},
            "data manifests (digest)",
            f"they are not the same images, {separate} folders",
        ),
        (
            {str(spec.dataset_argument) for spec in specs},
            "folders",
            "name one, such as folder:NAME/10, by as much of its path as tells it apart",
        ),
    ]
    return "; ".join(
        f"{len(found)} {what} ({', '.join(sorted(map(str, found)))}): {how}"
        for found, what, how in ways
        if len(found) > 1
    )
