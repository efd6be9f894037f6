"""Runs as tables and figures show them: rows, the benchmarks they stand in, and the parts of a figure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cl_bench.errors import InputError
from cl_bench.records import diagnosis, metrics
from cl_bench.records.costs import COSTS
from cl_bench.records.imported import ImportedRecord
from cl_bench.records.metrics import MEASURES, Conventions
from cl_bench.records.record import Certificate, RunRecord
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import LeftOut
from cl_bench.report.settings import settings_of

# predictions depend on the batch; something of old tasks' images is kept; imported; without public code
MARKS = (" †", " §", " ‡", " ¶")


@dataclass(eq=False)
class Row:
    """All seeds of one method with one configuration."""

    label: str
    display: str
    joint: bool
    records: list[RunRecord | ImportedRecord | LeftOut] = field(default_factory=list)
    benchmark: str = ""  # the name of the one it was run on
    shared_options: frozenset[str] = frozenset()  # those of all its rows, which the benchmark names once
    _known: dict = field(default_factory=dict, repr=False)

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
        own = [option for option in self.options if option not in self.shared_options]
        words = ["as published" if option == "as_published" else option for option in own]
        return f"{self.display} [{', '.join(words)}]" if words and not self.imported else self.display

    @property
    def marks(self) -> str:
        """Those of `MARKS` that it carries."""
        transductive = any(not certificate.inductive for certificate in self.certificates)
        carried = (transductive, bool(self.spec.keeps), self.imported, self.spec.reconstruction)
        return "".join(mark for mark, carries in zip(MARKS, carried, strict=True) if carries)

    @property
    def kept(self) -> str:
        """What its finished runs name that they keep of old tasks' images; "" where they name nothing."""
        return "; ".join(dict.fromkeys(record.spec.keeps for record in self.ran if record.spec.keeps))

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
        """What a cell without a number says: no run has ended yet, or the records of all cannot be had."""
        kinds = {record.kind for record in self.records if isinstance(record, LeftOut)}
        begun = any(isinstance(record, RunRecord) for record in self.records)
        return kinds.pop() if len(kinds) == 1 and not begun else "unfinished"

    @property
    def ran(self) -> list[RunRecord]:
        """The finished records of runs; those imported from elsewhere are not among them."""
        return [record for record in self.finished if isinstance(record, RunRecord)]

    @property
    def trains(self) -> bool:
        """Whether any of its runs minimized a loss, or had values to train."""
        tasks = [task for record in self.ran for task in record.tasks]
        return any(task.pass_losses or task.trainable_parameters for task in tasks)

    @property
    def seeds(self) -> list[str]:
        """Seeds of the finished records."""
        return [record.spec.seed_name() for record in self.finished]

    def value(self, record: RunRecord, metric: str, conventions: Conventions) -> float | None:
        """The metric of one of its records as a fraction, its cost or a mean of its diagnosis.

        None where it does not exist, or the record does not say.
        """
        if metric in COSTS:
            return COSTS[metric].of(record) if isinstance(record, RunRecord) else None
        if metric in diagnosis.MEASURES:
            found = record.measured(metric) if isinstance(record, RunRecord) else None
            return sum(found) / len(found) if found else None
        self.require_counts(record, conventions)
        key = (_own(record), metric, conventions)
        if key not in self._known:
            imported = isinstance(record, ImportedRecord)
            found = record.measure(metric, conventions) if imported else MEASURES[metric](record, conventions)
            self._known[key] = found
        return self._known[key]

    def require_counts(self, record: RunRecord, conventions: Conventions) -> None:
        """Raises InputError for accuracy over images of a matrix that was imported without their number."""
        if (
            conventions.accuracy == "sample"
            and isinstance(record, ImportedRecord)
            and record.accuracies("sample") is None
        ):
            raise InputError(
                f"{self.display} was imported without test sizes: its accuracy over samples is not known; "
                "report with --accuracy task_mean"
            )

    def curves(self, conventions: Conventions) -> list[list[float]]:
        """For every finished record accuracy on the classes seen after each task, as fractions.

        Empty where the curve of one is not known by this convention.
        """
        for record in self.finished:
            self.require_counts(record, conventions)
        if self.imported:
            known = [record.accuracies(conventions.accuracy) for record in self.finished]
            return known if None not in known else []
        return [
            metrics.accuracy_curve(record.correct, record.test_sizes, conventions.accuracy)
            for record in self.finished
        ]

    @cached_property
    def paired(self) -> dict[tuple, RunRecord]:
        """Its finished runs by benchmark, class order and seeds: what two runs must share to be a pair."""
        benchmark = "" if self.imported else self.spec.benchmark_id()  # a row's records share it
        return {(benchmark, *_own(record)): record for record in self.ran}

    def values(self, metric: str, conventions: Conventions) -> list[float]:
        """The metric or cost of the finished records that have it; empty where it does not exist.

        Of imported records it is empty too where it is not known of all.
        """
        found = [self.value(record, metric, conventions) for record in self.finished]
        if self.imported and None in found:
            return []
        return [value for value in found if value is not None]


def _own(record: RunRecord | ImportedRecord) -> tuple:
    """What no other record of its row has: class order and seeds."""
    spec = record.spec
    if isinstance(record, ImportedRecord):
        return spec.seed, record.correct, record.curve
    return spec.task_classes, spec.order_seed, spec.init_seed, spec.data_seed


@dataclass(eq=False)
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


def is_number(value) -> bool:
    """Whether an option's value has a place on an axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def sweep_rows(row: Row, rows: Sequence[Row], option: str) -> list[Row]:
    """The rows that differ from this one in a numeric option at most, in ascending order of it.

    Raises InputError for an option of words.
    """

    def rest(found: Row) -> dict:
        spec = found.spec
        return {"benchmark": spec.benchmark_id(), "method": spec.method, **settings_of(spec), option: None}

    able = [found for found in rows if found.ran and option in found.spec.options]
    fitting = [found for found in able if rest(found) == rest(row)]
    values = [found.spec.options[option] for found in fitting]
    if not all(map(is_number, values)):
        raise InputError(
            f"{option} of {row.name} is not a number ({', '.join(map(str, values))}); "
            "a trade-off needs one along its axis"
        )
    return sorted(fitting, key=lambda found: found.spec.options[option])
