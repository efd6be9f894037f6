"""How methods, options, splits and seeds are written: on the command line, in YAML, and in labels."""

import itertools
import re

from cl_bench.config import number_or_word, whole_number
from cl_bench.errors import InputError
from cl_bench.text import yaml_file

FIRST_SEED = 2024  # the published code runs seeds 2024, 2025, 2026

AS_PUBLISHED = "as_published"  # in brackets: the published code's choices, all at once

SYNONYMS = {"input_norm": "normalisation"}


def parse_methods(text: str) -> list[tuple[str, dict]]:
    """ "nsp2[b1=on,eta=0.9|1],pgp" -> one (name, options) per method and grid point, in order."""
    return [
        (name, dict(zip(grid, point, strict=True)))
        for name, grid in grids(text)
        for point in itertools.product(*grid.values())
    ]


def grids(text: str) -> list[tuple[str, dict[str, list]]]:
    """ "nsp2[b1=on,eta=0.9|1],pgp" -> (name, option -> alternatives) of every method, in order."""
    selections = []
    for item in items(text):
        match = re.fullmatch(r"([^\[\]]+?)(?:\[([^\[\]]*)\])?", item)
        if not match:
            expected = "NAME or NAME[option=value,option=value|value]"
            raise InputError(f"{item!r} is not a method; expected {expected}")
        grid = {}
        for option in filter(None, (part.strip() for part in (match[2] or "").split(","))):
            key, equals, alternatives = (f"{option}=on" if option == AS_PUBLISHED else option).partition("=")
            if not equals or not all(value.strip() for value in alternatives.split("|")):
                expected = "KEY=VALUE or KEY=VALUE|VALUE"
                raise InputError(f"{option!r} in {item!r} is not an option; expected {expected}")
            key = key.strip()
            if key in grid:
                several = f"for several values write {key}=A|B"
                raise InputError(f"option {key!r} stands twice in {item!r}; {several}")
            grid[key] = [parse_scalar(value) for value in alternatives.split("|")]
        selections.append((match[1].strip(), grid))
    if not selections:
        raise InputError("--methods is empty; `cl-bench ls methods` lists what there is")
    return selections


def listed(text: str) -> list[str]:
    """ "a, b" -> ["a", "b"]."""
    return [part.strip() for part in text.split(",") if part.strip()]


def items(text: str) -> list[str]:
    """ "nsp2[b1=on,eta=0.9|1], pgp" -> the methods with their options, as they are written."""
    parts = re.split(r",(?![^\[]*\])", text)
    return [part.strip() for part in parts if part.strip()]


def parse_seeds(text: str) -> list[int]:
    """ "3" -> the first three seeds, 2024 to 2026; "2024,2031" -> these; "2031," -> this one."""
    words = [part.strip() for part in str(text).split(",") if part.strip()]
    numbers = [number for number in map(whole_number, words) if number is not None]
    if not numbers or len(numbers) < len(words) or ("," not in str(text) and not 1 <= numbers[0] <= 1000):
        expected = "how many (3), or which, with a comma (2024,2031 or 2024,)"
        raise InputError(f"--seeds {text!r}: expected {expected}")
    return numbers if "," in str(text) else list(range(FIRST_SEED, FIRST_SEED + numbers[0]))


def without_synonyms(settings: dict) -> dict:
    """Options under the names that they are kept by. Raises InputError where both names of one are given."""
    for key, kept in SYNONYMS.items():
        if key in settings and kept in settings:
            raise InputError(f"{key} and {kept} are one option; leave out one of them")
    return {SYNONYMS.get(key, key): value for key, value in settings.items()}


def format_option(value) -> str:
    """An option's value as it is written on the command line, and read back as the same."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return short if float(short := f"{value:g}") == value else repr(value)
    return "null" if value is None else str(value)


def method_text(name: str, options: dict[str, list]) -> str:
    """A method with alternatives of its options as it is written on the command line."""
    inside = ",".join(f"{key}={'|'.join(map(format_option, values))}" for key, values in options.items())
    return f"{name}[{inside}]" if inside else name


def parse_scalar(text: str):
    """A command-line value as YAML reads it (on/off, numbers, null), 1e-3 as a number. Raises InputError."""
    try:
        value = yaml_file.value(text)
    except InputError as error:
        raise InputError(f"{error}; expected a number, on, off, null or a word") from None
    return number_or_word(value) if isinstance(value, str) else value
