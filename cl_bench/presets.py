"""Settings of published experiments: files in `methods/presets/` that say where each value stands."""

import itertools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from cl_bench.config import unknown
from cl_bench.errors import InputError
from cl_bench.plugins import search_path

NONE = "none"  # the name that turns a method's own preset off


@dataclass(frozen=True)
class Setting:
    """A value, where it stands, and what its source leaves open about it ("" where nothing)."""

    value: Any
    source: str
    open: str = ""


@dataclass(frozen=True)
class Preset:
    """A named set of rules for the benchmarks it covers."""

    name: str
    title: str
    benchmarks: tuple[str, ...]
    rules: tuple[dict, ...]
    # rules on what published code does there, where it is not what it does elsewhere
    published: tuple[dict, ...] = ()

    def settings(self, method: str, benchmark: str) -> dict[str, Setting]:
        """Option -> value for a method on a benchmark such as "cifar100/10"; later rules win."""
        return _matching(self.rules, method, benchmark)


def _matching(rules: tuple[dict, ...], method: str, benchmark: str) -> dict[str, Setting]:
    found = {}
    for rule in rules:
        covered = any(fnmatchcase(benchmark, pattern) for pattern in rule.get("benchmarks", ["*"]))
        if covered and fnmatchcase(method, rule["methods"]):
            for key, value in rule["values"].items():
                found[key] = Setting(value, rule["source"], rule.get("open", ""))
    return found


def names() -> dict[str, Path]:
    """Every preset's file by name: the package's, then the user's. Raises InputError for names used twice."""
    own = {path.stem: path for folder in search_path.own() for path in _files(folder)}
    found = dict(own)
    for folder in search_path.outside():
        for path in _files(folder):
            if path.stem in own and search_path.is_checkout(folder):
                continue
            if path.stem in found:
                there = f"there is a preset {path.stem!r} already ({found[path.stem]})"
                raise InputError(f"{path}: {there}; rename the file")
            found[path.stem] = path
    return found


def _files(folder: Path) -> list[Path]:
    return sorted((folder / "methods" / "presets").glob("*.toml"))


def load(name: str) -> Preset:
    """The preset of this name. Raises InputError with the nearest one."""
    known = names()
    if name not in known:
        raise unknown("preset", name, [*known, NONE])
    return _read(name, known[name], known[name].stat().st_mtime_ns)


@cache
def _read(name: str, path: Path, changed: int) -> Preset:
    """The preset in a file as it was when it was last changed."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        rules = [tuple(values.get(kind, [])) for kind in ("rule", "published")]
        for rule in itertools.chain(*rules):
            kinds = (("methods", str), ("source", str), ("values", dict))
            if not all(isinstance(rule[key], kind) for key, kind in kinds):
                raise TypeError("every rule needs methods and source (words) and values (a table)")
        return Preset(name, str(values["title"]), tuple(values["benchmarks"]), *rules)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"preset {path} cannot be used: {said}") from error


def settings_for(requested: str | None, own: str | None, method: str, benchmark: str) -> dict[str, Setting]:
    """The settings of the requested preset or, where none is, of the method's own if it covers the benchmark.

    Raises InputError when a requested preset says nothing about the method on this benchmark.
    """
    if requested == NONE:
        return {}
    preset = load(requested) if requested else load(own) if own else None
    found = preset.settings(method, benchmark) if preset and benchmark in preset.benchmarks else {}
    if requested and preset and not found:
        its = ", ".join(preset.benchmarks)
        raise InputError(
            f"preset {requested} has no settings for {method} on {benchmark}; its benchmarks are {its}"
        )
    return found


def published_behavior(
    usual: Mapping[str, Any], own: str | None, method: str, benchmark: str
) -> dict[str, Setting]:
    """What `as_published` sets: the method's `AS_PUBLISHED`, then what its preset says of the benchmark."""
    found = {key: Setting(value, "published code") for key, value in usual.items()}
    return {**found, **_matching(load(own).published, method, benchmark)} if found and own else found
