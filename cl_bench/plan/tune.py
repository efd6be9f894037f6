"""Hyper-parameter search on held-out training images: a grid, its table, and a file of the chosen values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from cl_bench import splits
from cl_bench.config import number_or_word
from cl_bench.errors import InputError
from cl_bench.notation import format_option, method_text, parse_methods
from cl_bench.plan.expand import parts, spread
from cl_bench.plan.request import Request
from cl_bench.records import metrics
from cl_bench.records.metrics import MEASURES, Conventions
from cl_bench.records.record import RunRecord
from cl_bench.records.spec import RunSpec
from cl_bench.text import escape, markdown, yaml_file

VALIDATION = 0.25  # NSP2 paper, appendix B


@dataclass
class Point:
    """One row with one setting of the grid's options, and its finished records.

    A row is a method with the options that set it apart from the other rows.
    """

    row: str
    options: dict
    records: list[RunRecord] = field(default_factory=list)

    def mean(self, metric: str, conventions: Conventions) -> float | None:
        """Mean over seeds, as a fraction; None where the metric does not exist."""
        found = [MEASURES[metric](record, conventions) for record in self.records]
        values = [value for value in found if value is not None]
        return None if len(values) < len(found) else metrics.mean_and_spread(values)[0]

    def accuracy(self, conventions: Conventions) -> float:
        """Mean over seeds, as a fraction."""
        found = self.mean("accuracy", conventions)
        assert found is not None
        return found


def read_grid(path: Path) -> dict[str, list]:
    """Option -> values to try, from YAML such as {eta: [0.9, 0.97], batch: [64, 128]}. Raises InputError."""
    values = yaml_file.read(path, "the grid ").values
    if not values or not all(isinstance(tried, list) and tried for tried in values.values()):
        raise InputError(f"{path} must map options to lists of values, such as eta: [0.9, 0.97]")
    return {
        str(key): [number_or_word(value) if isinstance(value, str) else value for value in tried]
        for key, tried in values.items()
    }


def with_grid(request: Request, grid: dict[str, list]) -> Request:
    """The request with every method spread over the grid's options that it has, on held-out training images.

    Raises InputError for an option that no method has, one that a method fixes already, and several
    benchmarks at once.
    """
    single = parts(request)
    if len(single) > 1 or len(splits.listed(single[0].splits)) > 1:
        raise InputError("tune one benchmark and one backbone at a time, settings are chosen for each")
    methods, validation = spread(single[0].methods, grid), request.validation or VALIDATION
    return single[0].model_copy(update={"methods": methods, "validation": validation})


def points(specs: Sequence[RunSpec], records: Sequence[RunRecord], grid: dict[str, list]) -> list[Point]:
    """Every grid point in the order of the plan, each with its records of all seeds."""
    found: dict[str, Point] = {}
    rows = [_row(spec.label, grid) for spec in specs]
    shared = set.intersection(*({*own.items()} for _, own in rows))
    for spec, (name, own) in zip(specs, rows, strict=True):
        if spec.family_id() not in found:
            apart = {key: [value] for key, value in own.items() if (key, value) not in shared}
            options = {key: spec.options[key] for key in grid if key in spec.options}
            found[spec.family_id()] = Point(method_text(name, apart), options)
    for record in records:
        found[record.spec.family_id()].records.append(record)
    return list(found.values())


def _row(label: str, grid: dict[str, list]) -> tuple[str, dict]:
    """The method of a label and its options but the grid's: the same for runs that differ in those alone."""
    [(name, options)] = parse_methods(label)
    return name, {key: value for key, value in options.items() if key not in grid}


def choose(tried: Sequence[Point], conventions: Conventions) -> dict[str, Point]:
    """The point of highest mean accuracy of every row; of equal ones the first."""
    best: dict[str, Point] = {}
    for point in tried:
        known = best.get(point.row)
        if known is None or point.accuracy(conventions) > known.accuracy(conventions):
            best[point.row] = point
    return best


def table(
    tried: Sequence[Point], chosen: dict[str, Point], grid: dict[str, list], conventions: Conventions
) -> str:
    """The grid as a Markdown table in percent, the chosen points bold."""
    rows = []
    for point in tried:
        means = [point.mean(metric, conventions) for metric in ("accuracy", "forgetting")]
        cells = [format_option(point.options[key]) if key in point.options else "–" for key in grid]
        cells = [point.row, *cells, *("–" if mean is None else metrics.percent(mean) for mean in means)]
        style = "**{}**" if chosen.get(point.row) is point else "{}"
        rows.append([*(style.format(escape.markdown(cell)) for cell in cells), str(len(point.records))])
    heads = ["Method", *map(escape.markdown, grid), "Acc. ↑", "Forgetting ↓", "n"]
    return "\n".join(markdown.table(heads, rows))


def at_the_edge(chosen: dict[str, Point], grid: dict[str, list]) -> list[str]:
    """A line for every chosen value that is the smallest or largest tried: a better one may lie outside."""
    lines = []
    for point in chosen.values():
        for key, value in point.options.items():
            numbers = sorted(tried for tried in grid[key] if type(tried) in (int, float))
            if len(numbers) > 1 and value in (numbers[0], numbers[-1]):
                lines.append(f"{point.row}: {key}={format_option(value)} is at the edge of the grid")
    return lines


def settings_file(
    request: Request,
    specs: Sequence[RunSpec],
    chosen: dict[str, Point],
    grid: dict[str, list],
    conventions: Conventions,
) -> str:
    """YAML for `cl-bench run`: the chosen methods on their benchmark; comments say what chose them."""
    seeds = list(dict.fromkeys(spec.seed_name() for spec in specs))
    only_here = {"methods", "seeds", "validation", "limit", "grid", "yes", "verify"}
    values = request.model_dump(exclude_none=True, exclude=only_here)
    values["set"] = {**request.set, "precision": specs[0].precision}
    methods = []
    for point in chosen.values():
        [(name, options)] = parse_methods(point.records[0].spec.label)
        single = {key: [value] for key, value in {**options, **point.options}.items()}
        methods.append(method_text(name, single))
    accuracy = metrics.ACCURACY_CONVENTIONS[conventions.accuracy]
    name = escape.one_line(specs[0].benchmark_name())
    head = [f"# chosen by cl-bench tune: highest mean accuracy ({accuracy}) over seeds {', '.join(seeds)}"]
    head.append(f"# on {name}, backbone {specs[0].backbone.name}")
    head += [f"# {key} tried: {', '.join(map(format_option, tried))}" for key, tried in grid.items()]
    for point in chosen.values():
        mean = metrics.percent(point.accuracy(conventions))
        head.append(f"# {point.row}: accuracy {mean} %")
    settings = {"methods": ",".join(methods), **values}
    return "\n".join([*head, yaml.safe_dump(settings, sort_keys=False, width=1000)])
