"""Groups run records into benchmarks and rows: what may stand in one table, and whose mean a row prints."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cl_bench.errors import InputError
from cl_bench.records import metrics
from cl_bench.records.imported import ImportedRecord, short_name
from cl_bench.records.metrics import MEASURES, Conventions
from cl_bench.records.record import Certificate, RunRecord, RunSpec
from cl_bench.records.store import LeftOut
from cl_bench.report.settings import settings_of, unlike

MARKS = (
    " †",
    " §",
    " ‡",
)  # predictions depend on the batch; something of old tasks' images is kept; imported


@dataclass
class Row:
    """All seeds of one method with one configuration."""

    label: str
    display: str
    joint: bool
    records: list[RunRecord | ImportedRecord | LeftOut] = field(default_factory=list)
    benchmark: str = ""  # the name of the one it was run on
    shared_options: frozenset[str] = (
        frozenset()
    )  # those that all rows have in common and the benchmark names once
    _known: dict = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict:
        """For another process: without what is known by the places of records in this one's memory."""
        return {**self.__dict__, "_known": {}}

    @property
    def imported(self) -> bool:
        """Whether its numbers come from elsewhere."""
        return isinstance(self.records[0], ImportedRecord)

    @property
    def spec(self) -> RunSpec:
        """The specification of its first record; those of the others differ in seeds and class order."""
        return self.records[0].spec

    @property
    def options(self) -> list[str]:
        """The options that differ from the benchmark's preset, such as "eta=0.9"."""
        return list(filter(None, self.label.partition("[")[2].rstrip("]").split(",")))

    @property
    def name(self) -> str:
        """The method's name, with the options that set it apart from the other rows."""
        own = [
            option.replace("_", " ") if option == "as_published" else option
            for option in self.options
            if option not in self.shared_options
        ]
        return f"{self.display} [{', '.join(own)}]" if own and not self.imported else self.display

    @property
    def marks(self) -> str:
        """Those of `MARKS` that it carries."""
        carried = (
            any(not certificate.inductive for certificate in self.certificates),
            bool(self.spec.keeps),
            self.imported,
        )
        return "".join(mark for mark, carries in zip(MARKS, carried, strict=True) if carries)

    @property
    def title(self) -> str:
        """The name with its marks, as it stands in tables."""
        return self.name + self.marks

    @property
    def certificates(self) -> list[Certificate]:
        """The inductive certificates of the finished records."""
        return [record.certificate for record in self.finished if record.certificate]

    @property
    def finished(self) -> list[RunRecord]:
        """The records whose every task is learned."""
        return [record for record in self.records if record.status == "done"]

    @property
    def state(self) -> str:
        """What a cell without a number says: that no run has ended yet, or that the records of all cannot be had."""
        kinds = {record.kind for record in self.records if isinstance(record, LeftOut)}
        return (
            kinds.pop()
            if len(kinds) == 1 and not any(isinstance(record, RunRecord) for record in self.records)
            else "unfinished"
        )

    @property
    def ran(self) -> list[RunRecord]:
        """The finished records of runs; those imported from elsewhere are not among them."""
        return [record for record in self.finished if isinstance(record, RunRecord)]

    @property
    def seeds(self) -> list[str]:
        """Seeds of the finished records."""
        return [record.spec.seed_name() for record in self.finished]

    def value(self, record: RunRecord, metric: str, conventions: Conventions) -> float | None:
        """The metric of one of its records as a fraction, None where it does not exist; worked out once."""
        self.require_counts(record, conventions)
        key = (id(record), metric, conventions)
        if key not in self._known:
            self._known[key] = MEASURES[metric](record, conventions)
        return self._known[key]

    def require_counts(self, record: RunRecord, conventions: Conventions) -> None:
        """Raises InputError for an accuracy over images of a matrix that was imported without their number."""
        if conventions.accuracy == "sample" and isinstance(record, ImportedRecord) and not record.counted:
            raise InputError(
                f"{self.display} was imported without test sizes: its accuracy over samples is not known; report with --accuracy task_mean"
            )

    def curves(self, conventions: Conventions) -> list[list[float]]:
        """Accuracy on the classes seen after each task, for every finished record, as fractions."""
        for record in self.finished:
            self.require_counts(record, conventions)
        return [
            metrics.accuracy_curve(record.correct, record.test_sizes, conventions.accuracy)
            for record in self.finished
        ]

    @cached_property
    def paired(self) -> dict[tuple, RunRecord]:
        """Its finished runs by benchmark, class order and seeds: what runs of two rows must share to be a pair."""
        benchmark = "" if self.imported else self.spec.benchmark_id()  # a row's records share it
        specs = [record.spec for record in self.ran]
        keys = [
            (benchmark, spec.task_classes, spec.order_seed, spec.init_seed, spec.data_seed) for spec in specs
        ]
        return dict(zip(keys, self.ran, strict=True))

    def values(self, metric: str, conventions: Conventions) -> list[float]:
        """The metric of every finished record, as fractions; empty where the metric does not exist."""
        found = [self.value(record, metric, conventions) for record in self.finished]
        return [value for value in found if value is not None]


@dataclass
class Benchmark:
    """Everything that was run on the same images, task sizes and backbone."""

    name: str
    slug: str
    backbone: str
    rows: list[Row]
    shared_options: list[str]

    @property
    def spec(self) -> RunSpec | None:
        """A specification of one of its runs; None where everything is imported."""
        return next((row.spec for row in self.rows if not row.imported), None)

    @property
    def finished_rows(self) -> list[Row]:
        """The rows with at least one finished record."""
        return [row for row in self.rows if row.finished]


@dataclass(frozen=True)
class Panel:
    """What a part of a figure shows: named rows of one benchmark; `others` are all that were run there."""

    title: str
    rows: Sequence[tuple[str, Row]]
    others: Sequence[Row] = ()


def group(records: Iterable[RunRecord | LeftOut], imported: Iterable[ImportedRecord] = ()) -> list[Benchmark]:
    """Benchmarks in order of first appearance, each with its rows in order of first appearance, upper bounds last, imported matrices after them.

    An imported matrix stands with every benchmark of its name that was run on all images, or alone.
    """
    families: dict[str, dict[str, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        families[record.spec.benchmark_id()][record.spec.family_id()].append(record)
    benchmarks, slugs = [], set()
    for benchmark_id, rows in families.items():
        found = []
        for runs in rows.values():
            spec = runs[0].spec
            found.append(
                Row(
                    spec.label,
                    spec.display,
                    spec.joint,
                    sorted(runs, key=lambda r: (r.spec.order_seed or 0, r.spec.init_seed, r.spec.data_seed)),
                )
            )
        found.sort(key=lambda row: row.joint)
        _tell_apart(found)
        shared = [
            option
            for option in found[0].options
            if len(found) > 1 and all(option in row.options for row in found)
        ]
        for row in found:
            row.shared_options = frozenset(shared)
        spec = found[0].records[0].spec
        parts = (
            spec.dataset,
            spec.benchmark_argument()[1:],
            str(spec.num_tasks),
            spec.backbone.name,
            "" if spec.smoke else f"{spec.backbone.image_size}px",
        )
        slug = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "-", part) for part in parts if part)
        slug = short_name(slug, 150)
        slug += f"-trial-{spec.limit}" if spec.limit else ""
        slug += "-validation" if spec.validation else ""
        slug = slug if slug not in slugs else f"{slug}-{benchmark_id[:6]}"
        slugs.add(slug)
        benchmarks.append(
            Benchmark(
                spec.benchmark_name(),
                slug,
                f"{spec.backbone.name}, {spec.backbone.image_size} px",
                found,
                shared,
            )
        )
    _name_apart(benchmarks)
    for benchmark in benchmarks:
        for row in benchmark.rows:
            row.benchmark = benchmark.name
    _add_imported(benchmarks, imported)
    return benchmarks


def _name_apart(benchmarks: list[Benchmark]) -> None:
    """Benchmarks of one name on different images get more of their folder's path into it or, where that is the same, the beginning of the digest."""
    by_name = defaultdict(list)
    for benchmark in benchmarks:
        by_name[benchmark.name].append(benchmark)
    for alike in by_name.values():
        images = {found.spec.manifest_digest: found.spec for found in alike}
        if len(images) < 2:
            continue
        paths = {spec.dataset_argument or "" for spec in images.values()}
        deepest = max(path.count("/") for path in paths) + 1
        depth = next(
            (
                n
                for n in range(1, deepest)
                if len({s.benchmark_argument(n) for s in images.values()}) == len(paths)
            ),
            deepest,
        )
        for found in alike:
            found.name = found.spec.benchmark_name(depth)
            if len(paths) < len(images):
                found.name += f" [data {found.spec.manifest_digest[:8]}]"


def _add_imported(benchmarks: list[Benchmark], imported: Iterable[ImportedRecord]) -> None:
    rows: dict[tuple[str, str], Row] = {}
    for record in imported:
        spec = record.spec
        row = rows.setdefault((spec.benchmark, spec.display), Row(spec.label, spec.display, False, []))
        row.records.append(record)
        if spec.backbone != row.spec.backbone:
            backbones = f"{row.spec.backbone or 'an unnamed one'} and {spec.backbone or 'an unnamed one'}"
            raise InputError(
                f"matrices imported as {spec.display!r} on {spec.benchmark} have different backbones ({backbones}); import one by another name"
            )
    for (name, _), row in rows.items():
        fitting = [place for place in benchmarks if _belongs(row, name, place)]
        places = [place for place in fitting if place.spec] or fitting
        if not places:
            places = [
                Benchmark(
                    name,
                    short_name(re.sub(r"[^A-Za-z0-9_.]+", "-", name), 150) + "-imported",
                    "not run here",
                    [],
                    [],
                )
            ]
            benchmarks += places
        for place in places:
            place.rows.append(row)


def _belongs(row: Row, name: str, place: Benchmark) -> bool:
    """Whether an imported row stands with a benchmark's runs: all images, and its own backbone where that is known."""
    if place.spec is None:
        return place.name == name
    whole = place.spec.limit is None and place.spec.validation is None
    return (
        whole
        and name in (place.spec.benchmark_key(), place.name)
        and row.spec.backbone in (None, place.spec.backbone.name)
    )


def _tell_apart(rows: list[Row]) -> None:
    """Rows of equal label but different settings get the settings they differ in into their label."""
    by_label = defaultdict(list)
    for row in rows:
        by_label[row.label].append(row)
    for twins in by_label.values():
        if len(twins) < 2:
            continue
        settings = [settings_of(row.spec) for row in twins]
        differing = unlike(settings)
        for row, found in zip(twins, settings, strict=True):
            marks = ",".join(f"{key}={found.get(key)}" for key in differing)
            row.label = f"{row.label.rstrip(']')},{marks}]" if "[" in row.label else f"{row.label}[{marks}]"


def is_number(value) -> bool:
    """Whether an option's value has a place on an axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def sweep_rows(row: Row, rows: Sequence[Row], option: str) -> list[Row]:
    """The rows that differ from this one in a numeric option at most, in ascending order of it. Raises InputError for an option of words."""

    def rest(found: Row) -> dict:
        spec = found.spec
        return {"benchmark": spec.benchmark_id(), "method": spec.method, **settings_of(spec), option: None}

    fitting = [
        found for found in rows if found.ran and option in found.spec.options and rest(found) == rest(row)
    ]
    values = [found.spec.options[option] for found in fitting]
    if not all(map(is_number, values)):
        raise InputError(
            f"{option} of {row.name} is not a number ({', '.join(map(str, values))}); a trade-off needs one along its axis"
        )
    return sorted(fitting, key=lambda found: found.spec.options[option])
