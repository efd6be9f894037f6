"""Spreads a request over groups, grids, benchmarks and backbones: one request for each benchmark."""

from typing import Any

from cl_bench import splits
from cl_bench.config import unknown
from cl_bench.errors import InputError
from cl_bench.notation import grids, listed, method_text, parse_seeds
from cl_bench.plan.request import Request, count_methods
from cl_bench.plugins import groups, registry
from cl_bench.trackers.named import require as require_trackers

MOST_RUNS = 10_000  # more need --yes


def _without_groups(request: Request) -> Request:
    """The request with methods in the place of groups."""
    found = groups.expanded(request.methods, _broken)
    told = {"grouped": request.grouped | found.brought, "left_out": (*request.left_out, *found.left_out)}
    return request.model_copy(update={"methods": found.methods, **told})


def _with_splits(request: Request) -> Request:
    """The request with splits in the place of a first task and steps, or of sizes. Raises InputError."""
    cut = splits.of_options(request.base, request.increment, request.tasks)
    if cut is None:
        return request
    if {"benchmarks", "splits"} & {name for name in request.model_fields_set if getattr(request, name)}:
        raise InputError("give --splits or benchmarks, or the sizes of tasks (--base, --increment, --tasks)")
    return request.model_copy(update={"splits": cut, "base": None, "increment": None, "tasks": None})


def _shown(request: Request, cuts: str) -> str:
    """The splits, with every training image shown once where that is asked for."""
    return ",".join(map(splits.online, splits.listed(cuts))) if request.online else cuts


def _broken(plugin: registry.Plugin) -> str:
    """Why a user's file cannot be used; "" for a method that can."""
    try:
        plugin.load()
    except InputError as error:
        return str(error)
    return ""


def require_known(request: Request) -> None:
    """What is wrong with a request by its words alone, without torch.

    Raises InputError for methods, data sets and trackers that there are not, for trackers that are not
    installed, and for splits and seeds that are none.
    """
    require_trackers(request.track)
    for single in request.each:
        for name, _ in grids(groups.expanded(single.methods).methods):
            registry.find("methods", name)
        for dataset, cuts in _benchmarks(_with_splits(single)):
            registry.find("datasets", dataset.partition(":")[0])
            splits.listed(cuts)
        parse_seeds(single.seeds)


def parts(request: Request) -> list[Request]:
    """Requests of one data set and one backbone each, without groups and grid, in the order asked for.

    Raises InputError as `_parts`, for each experiment of a file.
    """
    found = [part for single in request.each for part in _parts(single)]
    told = {
        "grouped": frozenset().union(*(part.grouped for part in found)),
        "left_out": tuple(dict.fromkeys(line for part in found for line in part.left_out)),
    }
    return [part.model_copy(update=told) for part in found]


def _parts(request: Request) -> list[Request]:
    """The parts of one experiment.

    Raises InputError for benchmarks given twice over, for an option of the grid that no method has, and for
    more than 10,000 runs without `yes`.
    """
    if request.benchmarks and {"dataset", "splits"} & request.model_fields_set:
        raise InputError("give benchmarks (such as glyphs/10), or a data set and splits, not both")
    request = _without_groups(_with_splits(request))
    methods = spread(request.methods, request.grid, request.places) if request.grid else request.methods
    backbones = listed(request.backbone) if request.backbone else [None]
    if len(backbones) > 1 and (request.weights or request.image_size):
        raise InputError("weights and image_size belong to one backbone; leave them out or name one backbone")
    single: dict[str, Any] = {"methods": methods, "benchmarks": None, "grid": {}}
    found = [
        request.model_copy(
            update={**single, "dataset": dataset, "splits": _shown(request, cuts), "backbone": backbone}
        )
        for dataset, cuts in _benchmarks(request)
        for backbone in backbones
    ]
    count = len(backbones) * sum(_count(part) for part in found[:: len(backbones)])
    if count > MOST_RUNS and not request.yes:
        advice = f"give --yes for more than {MOST_RUNS:,}, or fewer values"
        raise InputError(f"this makes {count:,} runs; {advice}")
    return found


def _benchmarks(request: Request) -> list[tuple[str, str]]:
    """(data set, splits) pairs; neighbors of one data set stand together."""
    if not request.benchmarks:
        return [(request.dataset, request.splits)]
    found: dict[str, list[str]] = {}
    for name in listed(request.benchmarks):
        dataset, _, split = name.rpartition("/")
        if not dataset or not splits.is_split(split):
            raise InputError(f"{name!r} is not a benchmark; expected DATASET/SPLITS, such as glyphs/10")
        found.setdefault(dataset, []).append(split)
    return [(dataset, ",".join(cuts)) for dataset, cuts in found.items()]


def _count(part: Request) -> int:
    return count_methods(part.methods) * len(splits.listed(part.splits)) * len(parse_seeds(part.seeds))


def spread(methods: str, grid: dict[str, list], places: dict[str, str] | None = None) -> str:
    """The methods, each with the options of the grid that it has.

    Raises InputError for an option that no method has (with its place in the file) and for one that a method
    fixes already.
    """
    selections = [(registry.find("methods", name), options) for name, options in grids(methods)]
    fields = {plugin.name: plugin.load().METHOD.Config.model_fields for plugin, _ in selections}
    known = {option for own in fields.values() for option in own}
    for key in grid:
        if key not in known:
            raise unknown("option in the grid", key, known, (places or {}).get(f"grid.{key}"))
    texts = []
    for plugin, options in selections:
        own = {key: tried for key, tried in grid.items() if key in fields[plugin.name]}
        clash = sorted(set(own) & set(options))
        if clash:
            both = f"{clash[0]} of {plugin.name} is both in --methods and in the grid"
            raise InputError(f"{both}; leave it out of one")
        texts.append(method_text(plugin.name, {**options, **own}))
    return ",".join(texts)
