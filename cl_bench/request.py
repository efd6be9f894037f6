"""What a user asks for: the options of `cl-bench run`, read from the command line and a YAML file."""

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cl_bench import yaml_file
from cl_bench.config import Strict, build_config, number_or_word, parse_scalar, unknown, whole_number
from cl_bench.errors import InputError

FIRST_SEED = 2024  # the published code runs seeds 2024, 2025, 2026
AS_PUBLISHED = "as_published"  # in brackets: the published code's choices, all at once
LARGEST_IMAGE = 4096  # pixels a side; attention over 65,536 patches of 16 x 16
SYNONYMS = {"input_norm": "normalisation"}


class Request(Strict):
    """What `cl-bench run` was asked for; every field has the command-line option's name."""

    methods: str = "vpt-nsp2"
    benchmarks: str | None = None
    dataset: str = "glyphs"
    splits: str = "10"
    seeds: str = "1"
    order: str | None = None
    init_seed: int | None = Field(None, ge=0)
    data_seed: int | None = Field(None, ge=0)
    backbone: str | None = None
    weights: str | None = None
    image_size: int | None = Field(None, ge=1, le=LARGEST_IMAGE)
    limit: int | None = Field(None, ge=1)
    validation: float | None = Field(None, gt=0, lt=1)
    preset: str | None = None
    as_published: bool = False
    losses: bool = False
    augment: Literal["batched", "torchvision"] | None = None
    set: dict[str, Any] = {}
    grid: dict[str, list] = {}  # values to try, for every method that has the option
    yes: bool = False
    verify: bool = False  # read all files of the data, whatever their time stamps say
    places: dict[str, str] = Field({}, exclude=True)  # "set.eta" -> where it stands, such as "experiment.yaml, line 7"


def request_from(command_line: dict, experiment: Path | None) -> Request:
    """Options from an experiment file overridden by the command line (None means not given). Raises InputError naming what cannot be used."""
    values, places = _read_yaml(experiment) if experiment is not None else ({}, {})
    given = {key: value for key, value in command_line.items() if value is not None}
    for key, value in {**values, **given}.items():
        if isinstance(value, str) and not value.strip(" ,"):
            raise InputError(f"--{key.replace('_', '-')} is empty; give a value, or leave it out")
    settings = {**values.pop("set", {}), **given.pop("set", {})}
    return build_config(Request, [values, given, {"set": settings, "places": places}], str(experiment or "the command line"))


LISTS = ("methods", "benchmarks", "backbone", "splits", "seeds", "order")  # a list in the file is what commas are on the command line
PLURALS = {"backbones": "backbone", "datasets": "dataset"}


def _read_yaml(path: Path) -> tuple[dict, dict[str, str]]:
    file = yaml_file.read(path)
    values, places = file.values, file.places
    if not all(isinstance(values.get(key, {}), dict) for key in ("set", "grid")):
        raise InputError(f"{path} must hold a mapping of option to value, and so must its set and its grid")
    known = sorted({*Request.model_fields, *PLURALS} - {"places"})
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
            raise InputError(f"{places[f'grid.{name}']}: {name} in the grid needs a list of values, such as {name}: [0.9, 0.97]")
    return values, places


def _as_on_the_command_line(key: str, value: Any, places: dict[str, str]) -> str:
    """A list as words between commas; seeds: [3] is seed 3, as 3, is on the command line."""
    parts = value if isinstance(value, list) else [value]
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, str | int):
            where = next(places[name] for name in (key, *PLURALS) if name in places and PLURALS.get(name, name) == key)
            expected = "expected words or numbers, in quotes where YAML needs them"
            raise InputError(f"{where}: YAML reads a value of {key} as {format_option(part)!r}; {expected}")
    return ",".join(map(str, parts)) + ("," if isinstance(value, list) and key == "seeds" else "")


def _numbers(value):
    """YAML reads 1e-3 as a word."""
    return [_numbers(part) for part in value] if isinstance(value, list) else number_or_word(value) if isinstance(value, str) else value


def parse_settings(items: Sequence[str]) -> dict:
    """["eta=0.9", ...] -> {"eta": 0.9, ...}."""
    settings = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise InputError(f"{item!r} is not an option; expected KEY=VALUE, such as eta=0.9")
        settings[key.strip()] = parse_scalar(value)
    return settings


def parse_methods(text: str) -> list[tuple[str, dict]]:
    """ "nsp2[b1=on,eta=0.9|1],pgp" -> one (name, options) per method and grid point, in order."""
    return [(name, dict(zip(grid, point, strict=True))) for name, grid in grids(text) for point in itertools.product(*grid.values())]


def count_methods(text: str) -> int:
    """How many `parse_methods` would return, without making them."""
    return sum(math.prod(len(values) for values in grid.values()) for _, grid in grids(text))


def grids(text: str) -> list[tuple[str, dict[str, list]]]:
    """ "nsp2[b1=on,eta=0.9|1],pgp" -> (name, option -> alternatives) of every method, in order."""
    selections = []
    for item in _split_outside_brackets(text):
        match = re.fullmatch(r"([^\[\]]+?)(?:\[([^\[\]]*)\])?", item.strip())
        if not match:
            raise InputError(f"{item!r} is not a method; expected NAME or NAME[option=value,option=value|value]")
        grid = {}
        for option in filter(None, (part.strip() for part in (match[2] or "").split(","))):
            key, equals, alternatives = (f"{option}=on" if option == AS_PUBLISHED else option).partition("=")
            if not equals or not all(value.strip() for value in alternatives.split("|")):
                raise InputError(f"{option!r} in {item!r} is not an option; expected KEY=VALUE or KEY=VALUE|VALUE")
            if key.strip() in grid:
                raise InputError(f"option {key.strip()!r} stands twice in {item!r}; for several values write {key.strip()}=A|B")
            grid[key.strip()] = [parse_scalar(value) for value in alternatives.split("|")]
        selections.append((match[1].strip(), grid))
    if not selections:
        raise InputError("--methods is empty; `cl-bench ls methods` lists what there is")
    return selections


def listed(text: str) -> list[str]:
    """ "a, b" -> ["a", "b"]."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _split_outside_brackets(text: str) -> list[str]:
    parts = re.split(r",(?![^\[]*\])", text)
    return [part for part in parts if part.strip()]


def parse_splits(text: str) -> list[int]:
    """ "10,20" -> [10, 20]."""
    splits = [whole_number(part.strip()) for part in str(text).split(",")]
    if None in splits:
        raise InputError(f"--splits {text!r}: expected numbers of tasks, such as 10 or 10,20")
    return list(dict.fromkeys(splits))


def parse_seeds(text: str) -> list[int]:
    """ "3" -> the first three seeds, 2024 to 2026; "2024,2031" -> these (a trailing comma makes a list of one)."""
    numbers = [whole_number(part.strip()) for part in str(text).split(",") if part.strip()]
    if not numbers or None in numbers or ("," not in str(text) and not 1 <= numbers[0] <= 1000):
        raise InputError(f"--seeds {text!r}: expected how many (3), or which, with a comma (2024,2031 or 2024,)")
    return numbers if "," in str(text) else list(range(FIRST_SEED, FIRST_SEED + numbers[0]))


def parse_duration(text: str) -> float:
    """ "90m", "2h30m", "45s" or "3600" -> seconds."""
    match = re.fullmatch(r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s?)?", text.strip())
    if not match or not any(match.groups()):
        raise InputError(f"{text!r} is not a time; expected such as 90m, 2h30m or 3600 (seconds)")
    return float(sum(int(part) * unit for part, unit in zip(match.groups(default="0"), (86400, 3600, 60, 1), strict=True)))


def without_synonyms(settings: dict) -> dict:
    """Options under the names that they are kept by. Raises InputError where both names of one are given."""
    for key, kept in SYNONYMS.items():
        if key in settings and kept in settings:
            raise InputError(f"{key} and {kept} are one option; leave out one of them")
    return {SYNONYMS.get(key, key): value for key, value in settings.items()}


def format_option(value) -> str:
    """An option's value as it is written on the command line."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
