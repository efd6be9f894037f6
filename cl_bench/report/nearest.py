"""What a selector that nothing answers to may have meant: the nearest ones that runs exist for."""

from collections.abc import Mapping, Sequence

from cl_bench.config import nearest
from cl_bench.notation import format_option
from cl_bench.records.spec import RunSpec
from cl_bench.report.rows import Benchmark
from cl_bench.report.settings import configured, options_in, same, settings_of
from cl_bench.report.spec import ColumnLayout, RowLayout, selector

MOST = 3


def selectors(
    text: str, specs: Sequence[RunSpec], where: Mapping | None = None, version: str = ""
) -> list[str]:
    """The nearest first, as they would be written in the place of `text`.

    They are of its method, with other options, settings of `where` or version.
    """
    method, options = selector(text)
    found: dict[str, tuple[int, float]] = {}
    for spec in (spec for spec in specs if spec.method == method):
        named, settings = options_in(spec.label), settings_of(spec)
        other = {
            key: settings[key]
            for key, value in (where or {}).items()
            if key in settings and not same(settings[key], value)
        }
        pairs = [(options.get(key), named.get(key, settings.get(key))) for key in {*options, *named}]
        unlike, apart = sum(not same(*pair) for pair in pairs) + len(other), sum(map(_apart, pairs))
        fits = configured(spec, method, options)
        marks = spec.label.removeprefix(method) if not fits else text[len(text.partition("[")[0]) :]
        told = text.partition("[")[0] + marks
        if version and version != str(spec.method_version):
            told, unlike = f"{told}@{spec.method_version}", unlike + 1
        if other:
            told += f" with {', '.join(f'{key} = {format_option(value)}' for key, value in other.items())}"
        found[told] = min((unlike, apart), found.get(told, (unlike, apart)))
    return sorted(found, key=lambda told: found[told])[:MOST]


def _apart(pair: tuple) -> float:
    """How far two numbers are from each other; 0 for other values."""
    return abs(pair[0] - pair[1]) if all(isinstance(value, int | float) for value in pair) else 0.0


def sentence(found: Sequence[str]) -> str:
    """Selectors as the end of a message; "" for none."""
    listed = " and ".join(filter(None, (", ".join(found[:-1]), *found[-1:])))
    return f"there {'are' if len(found) > 1 else 'is'} {listed}" if found else ""


def of_cell(
    wanted: RowLayout, column: ColumnLayout, places: Sequence[Benchmark], benchmarks: Sequence[Benchmark]
) -> str:
    """The same for a row and a column of a report.

    `places` are the benchmarks that answer to the column, of all `benchmarks`.
    """
    rows = [row for place in places for row in place.rows]
    if wanted.imported is not None:
        near = nearest(wanted.imported, {row.display for row in rows if row.imported})
        return f"there is {near!r}" if near else ""
    if any(not row.imported for row in rows):
        specs = [row.spec for row in rows if not row.imported]
        return sentence(selectors(wanted.select, specs, wanted.where))
    specs = [place.spec for place in benchmarks if place.spec and _is_named(place.spec, column.benchmark)]
    backbone = wanted.backbone or column.backbone
    needed = dict.fromkeys(", ".join(_needed(spec, column, backbone)) for spec in specs)
    return f"its runs are of columns with {' or of ones with '.join(needed)}" if needed else ""


def _is_named(spec: RunSpec, benchmark: str) -> bool:
    return benchmark in (spec.benchmark_key(), f"{spec.dataset}/{spec.split}")


def _needed(spec: RunSpec, column: ColumnLayout, backbone: str | None) -> list[str]:
    """What a column must say to mean a run."""
    own = {"limit": (column.limit, spec.limit), "validation": (column.validation, spec.validation)}
    own |= {"backbone": (backbone or spec.backbone.name, spec.backbone.name)}
    own |= {"image_size": (column.image_size or spec.backbone.image_size, spec.backbone.image_size)}
    return [
        f"{key} = {value!r}" if value is not None else f"no {key}"
        for key, (asked, value) in own.items()
        if asked != value
    ]
