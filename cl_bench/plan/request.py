"""What a user asks for: the options of `cl-bench run`, read from the command line and a YAML file."""

import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cl_bench.config import Strict, build_config, number_or_word, unknown
from cl_bench.errors import InputError
from cl_bench.notation import format_option, grids, method_text, parse_scalar
from cl_bench.plugins import search_path
from cl_bench.records.asked import MEASURED
from cl_bench.text import yaml_file

LARGEST_IMAGE = 4096  # pixels a side; attention over 65,536 patches of 16 x 16


class Request(Strict):
    """What `cl-bench run` was asked for; every field has the command-line option's name."""

    methods: str = "vpt-nsp2"
    benchmarks: str | None = None
    dataset: str = "glyphs"
    splits: str = "10"
    base: int | None = Field(None, ge=0)
    increment: int | None = Field(None, ge=1)
    tasks: str | None = None
    online: bool = False
    seeds: str = "1"
    order: str | None = None
    init_seed: int | None = Field(None, ge=0)
    data_seed: int | None = Field(None, ge=0)
    backbone: str | None = None
    weights: str | None = None
    image_size: int | None = Field(None, ge=1, le=LARGEST_IMAGE)
    limit: int | None = Field(None, ge=1)
    validation: float | None = Field(None, gt=0, lt=1)
    memory_budget: str | None = None  # of what methods keep, such as 20MB
    preset: str | None = None
    as_published: bool = False
    losses: bool = False
    diagnose: bool = False
    augmenter: Literal["batched", "torchvision"] | None = None
    set: dict[str, Any] = {}
    grid: dict[str, list] = {}  # values to try, for every method that has the option
    yes: bool = False
    verify: bool = False  # read all files of the data, whatever their time stamps say
    track: str | None = None  # trackers that are told of each run, or none
    # "set.eta" -> where it stands, such as "experiment.yaml, line 7"
    places: dict[str, str] = Field({}, exclude=True)
    # once groups are expanded: the methods that they brought, and a sentence for each that they could not
    grouped: frozenset[str] = Field(frozenset(), exclude=True)
    left_out: tuple[str, ...] = Field((), exclude=True)
    # of a file that has several: each as if it stood in a file of its own; what is above them is of all
    experiments: tuple["Request", ...] = Field((), exclude=True)

    @property
    def each(self) -> tuple["Request", ...]:
        """The experiments of a file that has several, or this one."""
        return self.experiments or (self,)

    @property
    def measured(self) -> list[str]:
        """The options among `cl_bench.records.asked.MEASURED` that are asked for."""
        return [name for name in MEASURED if getattr(self, name)]


def request_from(command_line: dict, experiment: Path | None) -> Request:
    """Options from an experiment file, overridden by the command line (None means not given).

    Raises InputError naming what cannot be used.
    """
    given = {key: value for key, value in command_line.items() if value is not None}
    if experiment is None:
        return _request({}, given, {}, "the command line")
    file = yaml_file.read(experiment)
    several = file.values.pop("experiments", None)
    found = _request(_options(file.values, file.places, str(experiment)), given, file.places, str(experiment))
    if several is None:
        return found
    if not isinstance(several, list) or not several or not all(isinstance(own, dict) for own in several):
        needed = "experiments needs a list of mappings, each of option to value"
        raise InputError(f"{file.places['experiments']}: {needed}")
    single = []
    for number, own in enumerate(several, 1):
        where = f"{file.places['experiments']}, experiment {number}"
        places = {**file.places, **dict.fromkeys(map(str, own), where)}
        both = [_options(values, places, where) for values in (file.values, own)]
        settings = {**both[0].get("set", {}), **both[1].get("set", {})}
        single.append(_request({**both[0], **both[1], "set": settings}, given, places, where))
    return found.model_copy(update={"experiments": tuple(single)})


def _request(values: dict, given: dict, places: dict[str, str], where: str) -> Request:
    """The options of a file, and those of the command line, which win."""
    for key, value in {**values, **given}.items():
        if isinstance(value, str) and not value.strip(" ,"):
            raise InputError(f"--{key.replace('_', '-')} is empty; give a value, or leave it out")
    settings = {**values.get("set", {}), **given.get("set", {})}
    layers = [values, given, {"set": settings, "places": places}]
    return build_config(Request, layers, where)


# a list in the file is what commas are on the command line
LISTS = ("methods", "benchmarks", "backbone", "splits", "tasks", "seeds", "order", "track")
PLURALS = {"backbones": "backbone", "datasets": "dataset"}


def _options(values: dict, places: dict[str, str], where: str) -> dict:
    """The values of a file as a command line would have them. Raises InputError."""
    if not all(isinstance(values.get(key, {}), dict) for key in ("set", "grid")):
        raise InputError(f"{where} must hold a mapping of option to value, and so must its set and its grid")
    options = {name for name, field in Request.model_fields.items() if not field.exclude}
    known = sorted({*options, *PLURALS})
    for key in values:
        if key not in known:
            raise unknown("option", key, known, places.get(key))
        if key in PLURALS and PLURALS[key] in values:
            raise InputError(f"{places[key]}: {key} and {PLURALS[key]} are one option; leave out one of them")
    values = {PLURALS.get(key, key): value for key, value in values.items()}
    for key in LISTS:
        values |= {key: _as_on_the_command_line(key, values[key], places)} if key in values else {}
    for key in ("set", "grid"):
        if key in values:
            values[key] = {str(name): _numbers(value) for name, value in values[key].items()}
    for name, tried in values.get("grid", {}).items():
        if not isinstance(tried, list) or not tried:
            needed = f"{name} in the grid needs a list of values, such as {name}: [0.9, 0.97]"
            raise InputError(f"{places.get(f'grid.{name}', where)}: {needed}")
    return values


def _as_on_the_command_line(key: str, value: Any, places: dict[str, str]) -> str:
    """A list as words between commas; seeds: [3] is seed 3, as 3, is on the command line."""
    parts = value if isinstance(value, list) else [value]
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, str | int):
            names = [name for name in (key, *PLURALS) if PLURALS.get(name, name) == key]
            where = next(places[name] for name in names if name in places)
            expected = "expected words or numbers, in quotes where YAML needs them"
            raise InputError(f"{where}: YAML reads a value of {key} as {format_option(part)!r}; {expected}")
    return ",".join(map(str, parts)) + ("," if isinstance(value, list) and key == "seeds" else "")


def _numbers(value):
    """YAML reads 1e-3 as a word."""
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    return number_or_word(value) if isinstance(value, str) else value


def parse_settings(items: Sequence[str]) -> dict:
    """["eta=0.9", ...] -> {"eta": 0.9, ...}."""
    settings = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise InputError(f"{item!r} is not an option; expected KEY=VALUE, such as eta=0.9")
        settings[key.strip()] = parse_scalar(value)
    return settings


def count_methods(text: str) -> int:
    """How many `parse_methods` would return, without making them."""
    return sum(math.prod(len(values) for values in grid.values()) for _, grid in grids(text))


def parse_duration(text: str) -> float:
    """ "90m", "2h30m", "45s" or "3600" -> seconds."""
    units = "".join(f"(?:([0-9]{{1,9}}){unit})?" for unit in ("d", "h", "m", "s?"))
    match = re.fullmatch(units, text.strip())
    if not match or not any(match.groups()):
        raise InputError(f"{text!r} is not a time; expected such as 90m, 2h30m or 3600 (seconds)")
    seconds = zip(match.groups(default="0"), (86400, 3600, 60, 1), strict=True)
    return float(sum(int(part) * unit for part, unit in seconds))


CARRIED = (
    "order", "init_seed", "data_seed", "backbone", "weights", "image_size", "limit", "validation", "preset",
    "augmenter",
)  # fmt: skip


def single_run(
    request: Request,
    method: str,
    options: dict,
    splits: str,
    seed: int,
    settings: dict,
    plugins: bool = False,
) -> str:
    """`cl-bench run` with one method, number of tasks and seed.

    `settings` are those of --set that mean something to the method, `plugins` says whether the user's own
    files are needed.
    """
    methods = method_text(method, {key: [value] for key, value in options.items()})
    chosen = {"methods": methods, "dataset": request.dataset, "splits": splits, "seeds": f"{seed},"}
    carried = {name: getattr(request, name) for name in CARRIED}
    chosen |= {name: value for name, value in carried.items() if value is not None}
    words = [word for name, value in chosen.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words += [f"--{name}" for name in request.measured]
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={format_option(value)}")]
    words += [word for folder in search_path.asked() if plugins for word in ("--plugins", str(folder))]
    return shlex.join(["cl-bench", "run", *words])
