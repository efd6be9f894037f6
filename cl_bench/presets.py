"""Settings of published experiments: files in `methods/presets/` that give each value with where it stands."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import cl_bench
from cl_bench.config import unknown
from cl_bench.errors import InputError

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
    published: tuple[dict, ...] = ()  # rules on what published code does there, where it is not what it does elsewhere

    def settings(self, method: str, benchmark: str) -> dict[str, Setting]:
        """Option -> value for a method on a benchmark such as "cifar100/10"; later rules win."""
        return _matching(self.rules, method, benchmark)


def _matching(rules: tuple[dict, ...], method: str, benchmark: str) -> dict[str, Setting]:
    found = {}
    for rule in rules:
        if fnmatchcase(method, rule["methods"]) and any(fnmatchcase(benchmark, pattern) for pattern in rule.get("benchmarks", ["*"])):
            found.update({key: Setting(value, rule["source"], rule.get("open", "")) for key, value in rule["values"].items()})
    return found


def names() -> dict[str, Path]:
    """Every preset's file by its name."""
    return {path.stem: path for folder in cl_bench.__path__ for path in sorted((Path(folder) / "methods" / "presets").glob("*.toml"))}


@cache
def load(name: str) -> Preset:
    """The preset of this name. Raises InputError with the nearest one."""
    known = names()
    if name not in known:
        raise unknown("preset", name, [*known, NONE])
    values = tomllib.loads(known[name].read_text(encoding="utf-8"))
    return Preset(name, values["title"], tuple(values["benchmarks"]), tuple(values["rule"]), tuple(values.get("published", [])))


def settings_for(requested: str | None, own: str | None, method: str, benchmark: str) -> dict[str, Setting]:
    """The settings of the requested preset or, where none is requested, of the method's own if it covers the benchmark.

    Raises InputError when a requested preset says nothing about the method on this benchmark.
    """
    if requested == NONE:
        return {}
    preset = load(requested) if requested else load(own) if own else None
    found = preset.settings(method, benchmark) if preset and benchmark in preset.benchmarks else {}
    if requested and not found:
        raise InputError(f"preset {requested} has no settings for {method} on {benchmark}; its benchmarks are {', '.join(preset.benchmarks)}")
    return found


def published_behavior(usual: Mapping[str, Any], own: str | None, method: str, benchmark: str) -> dict[str, Setting]:
    """What `as_published` sets: a method's `AS_PUBLISHED`, and over it what its preset's `published` rules say about the benchmark."""
    found = {key: Setting(value, "published code") for key, value in usual.items()}
    return {**found, **_matching(load(own).published, method, benchmark)} if found and own else found
