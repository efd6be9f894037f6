"""Groups run records into benchmarks and rows: what may stand in one table, and whose mean a row prints."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from cl_bench.errors import InputError
from cl_bench.records.imported import ImportedRecord, short_name
from cl_bench.records.record import RunRecord
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import LeftOut
from cl_bench.report.rows import Benchmark, Row
from cl_bench.report.settings import labels_apart
from cl_bench.text.natural import natural

LONGEST_SLUG = 150  # bytes of a folder's name


def group(records: Iterable[RunRecord | LeftOut], imported: Iterable[ImportedRecord] = ()) -> list[Benchmark]:
    """Benchmarks and the rows of each in order of first appearance, upper bounds after the others.

    An imported matrix stands last, with every benchmark of its name that was run on all images, or alone.
    """
    families: dict[str, dict[str, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        families[record.spec.benchmark_id()][record.spec.family_id()].append(record)
    benchmarks: list[Benchmark] = []
    for benchmark_id, rows in families.items():
        found = _benchmark([_row(runs) for runs in rows.values()])
        if found.slug in {other.slug for other in benchmarks}:
            found.slug += f"-{benchmark_id[:6]}"
        benchmarks.append(found)
    first = _first(found.spec.dataset for found in benchmarks)
    benchmarks.sort(key=lambda found: (first[found.spec.dataset], natural(found.spec.split)))
    _name_apart(benchmarks)
    for benchmark in benchmarks:
        for row in benchmark.rows:
            row.benchmark = benchmark.name
    _add_imported(benchmarks, imported)
    return benchmarks


def _row(runs: Sequence[RunRecord]) -> Row:
    spec = runs[0].spec
    by_seed = sorted(runs, key=lambda r: (r.spec.order_seed or 0, r.spec.init_seed, r.spec.data_seed))
    return Row(spec.label, spec.display, spec.joint, by_seed)


def _benchmark(rows: list[Row]) -> Benchmark:
    """The benchmark of these rows, whose labels and names are made to tell them apart."""
    first = _first(row.spec.method for row in rows)
    rows.sort(key=lambda row: (row.joint, first[row.spec.method], natural(row.label)))
    for row, label in zip(rows, labels_apart([row.spec for row in rows]), strict=True):
        row.label = label
    shared = []
    if len(rows) > 1:
        shared = [option for option in rows[0].options if all(option in row.options for row in rows)]
    for row in rows:
        row.shared_options = frozenset(shared)
    spec = rows[0].spec
    backbone = f"{spec.backbone.name}, {spec.backbone.image_size} px"
    return Benchmark(spec.benchmark_name(), _slug(spec), backbone, rows, shared)


def _first(names: Iterable[str]) -> dict[str, int]:
    """Where each name stands first: what belongs together stays in the order asked for."""
    return {name: place for place, name in reversed(list(enumerate(names)))}


def _slug(spec: RunSpec) -> str:
    """The name of a benchmark's folder."""
    size = "" if spec.smoke else f"{spec.backbone.image_size}px"
    parts = (spec.dataset, spec.benchmark_argument()[1:], spec.split, spec.backbone.name, size)
    slug = short_name("-".join(_file_name(part) for part in parts if part), LONGEST_SLUG)
    slug += f"-trial-{spec.limit}" if spec.limit else ""
    return slug + ("-validation" if spec.validation else "")


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text)


def _name_apart(benchmarks: list[Benchmark]) -> None:
    """Benchmarks of one name on different images get more of their folder's path into it.

    Where the path is the same they get the beginning of the digest.
    """
    by_name = defaultdict(list)
    for benchmark in benchmarks:
        by_name[benchmark.name].append(benchmark)
    for alike in by_name.values():
        images = {found.spec.manifest_digest: found.spec for found in alike}
        if len(images) < 2:
            continue
        paths = {spec.dataset_argument or "" for spec in images.values()}
        depth = _telling_depth(list(images.values()), paths)
        for found in alike:
            found.name = found.spec.benchmark_name(depth)
            if len(paths) < len(images):
                found.name += f" [data {found.spec.manifest_digest[:8]}]"


def _telling_depth(specs: Sequence[RunSpec], paths: set[str]) -> int:
    """How many parts at the end of folders' paths tell them apart; all of the longest where fewer do not."""
    deepest = max(path.count("/") for path in paths) + 1
    for depth in range(1, deepest):
        if len({spec.benchmark_argument(depth) for spec in specs}) == len(paths):
            return depth
    return deepest


def _add_imported(benchmarks: list[Benchmark], imported: Iterable[ImportedRecord]) -> None:
    """Add a row for every name among imported records to each benchmark it belongs to, or to one of its own.

    Spellings of one benchmark that was run here are one. Raises InputError for records of one row with
    different backbones, or with other numbers of one seed.
    """
    rows: dict[tuple, Row] = {}
    meant: dict[str, list[Benchmark]] = {}  # by an import's spelling
    for record in imported:
        spec = record.spec
        places = meant.setdefault(spec.benchmark, _places(spec.benchmark, benchmarks))
        called = tuple(map(id, places)) or spec.benchmark
        row = rows.setdefault((called, spec.display), Row(spec.label, spec.display, False, []))
        if not _is_known(record, row):
            row.records.append(record)
        if spec.backbone != row.spec.backbone:
            backbones = f"{row.spec.backbone or 'an unnamed one'} and {spec.backbone or 'an unnamed one'}"
            raise InputError(
                f"matrices imported as {spec.display!r} on {spec.benchmark} have different backbones "
                f"({backbones}); import one by another name"
            )
    alone: dict[str, Benchmark] = {}
    for row in rows.values():
        name = row.spec.benchmark
        places = [place for place in meant[name] if row.spec.backbone in (None, place.spec.backbone.name)]
        if not places:
            slug = short_name(_file_name(name), LONGEST_SLUG) + "-imported"
            places = [alone.setdefault(name, Benchmark(name, slug, "not run here", [], []))]
        for place in places:
            place.rows.append(row)
    benchmarks += alone.values()


def _places(name: str, benchmarks: Sequence[Benchmark]) -> list[Benchmark]:
    """The benchmarks run here, on all images, that an import's spelling means; none where it may mean others.

    A folder may be left out or named by any end of its path, as in reports.
    """
    whole = [
        place for place in benchmarks if place.spec and place.spec.limit is place.spec.validation is None
    ]
    meant = [place for place in whole if place.name == name]
    meant = meant or [place for place in whole if any(spec.is_called(name) for spec in _specs(place))]
    folders = {place.spec.dataset_argument for place in meant}
    several = len(folders) > 1 and len({place.spec.manifest_digest for place in meant}) > 1
    return [] if several else meant


def _specs(place: Benchmark) -> set[RunSpec]:
    """Those of all runs of a benchmark, whose folder may have been moved."""
    return {record.spec for row in place.rows for record in row.records}


def _is_known(record: ImportedRecord, row: Row) -> bool:
    """Whether the row has these numbers of this seed already, by another spelling of the benchmark.

    Raises InputError where it has others.
    """
    own = record.spec
    for other in row.records:
        if other.spec.seed == own.seed and other.spec.benchmark != own.benchmark:
            if (other.correct, other.curve) == (record.correct, record.curve):
                return True
            names = f"{other.spec.benchmark} and {own.benchmark}"
            raise InputError(
                f"{names} are one benchmark here, and {own.display!r} was imported on both with other "
                f"numbers of seed {own.seed}; remove one of them"
            )
    return False
