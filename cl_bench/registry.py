"""Finds plugins by name without importing the others: files of `methods/` and `datasets/`, and third parties' entry points."""

import ast
import functools
import importlib
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

import cl_bench
from cl_bench.config import unknown
from cl_bench.errors import InputError

FACTS = ("ALIASES", "SUMMARY", "ASKS")  # constants of a plugin's file that are read without importing it
Kind = Literal["methods", "datasets"]


@dataclass(frozen=True)
class Plugin:
    """One plugin: its full name, short aliases, a line about it, and the module that holds it."""

    name: str
    module: str
    aliases: tuple[str, ...] = ()
    summary: str = ""
    asks: tuple[tuple[str, str], ...] = ()  # names that could mean this and something else, with what to choose from

    def load(self) -> ModuleType:
        """Import the plugin's module, and only this one."""
        return importlib.import_module(self.module)


def plugins(kind: Kind) -> dict[str, Plugin]:
    """All plugins of a kind by full name. Files are read, not imported; a leading underscore marks a helper."""
    found = {}
    for folder in cl_bench.__path__:
        for path in sorted((Path(folder) / kind).glob("[a-z]*.py")):
            facts = _constants(path, path.stat().st_mtime_ns)
            name = path.stem.replace("_", "-")
            found.setdefault(
                name,
                Plugin(
                    name,
                    f"cl_bench.{kind}.{path.stem}",
                    tuple(facts.get("ALIASES", ())),
                    facts.get("SUMMARY", ""),
                    tuple(facts.get("ASKS", {}).items()),
                ),
            )
    for entry in _installed(f"cl_bench.{kind}"):
        found.setdefault(entry.name, Plugin(entry.name, entry.module, (), f"from {entry.dist.name if entry.dist else entry.module}"))
    return found


def find(kind: Kind, name: str) -> Plugin:
    """The plugin with this full name or alias. Raises InputError with the nearest name."""
    known = plugins(kind)
    for plugin in known.values():
        if name == plugin.name or name in plugin.aliases:
            return plugin
        if name in dict(plugin.asks):
            raise InputError(dict(plugin.asks)[name])
    raise unknown({"methods": "method", "datasets": "data set"}[kind], name, [*known, *(alias for p in known.values() for alias in p.aliases)])


def method_class(name: str) -> type:
    """The class a method plugin registers as METHOD."""
    return find("methods", name).load().METHOD


def source_class(name: str) -> type:
    """The class a data set plugin registers as SOURCE."""
    return find("datasets", name).load().SOURCE


def named_backbones() -> dict:
    """Backbones that data set plugins bring along: name -> function returning a BackboneSpec."""
    found = {}
    for plugin in plugins("datasets").values():
        found.update(getattr(plugin.load(), "BACKBONES", {}))
    return found


@functools.cache
def _installed(group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=group))


@functools.cache
def _constants(path: Path, changed: int) -> dict:
    """FACTS of a file as it was when it was last changed."""
    facts = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in FACTS:
            facts[node.targets[0].id] = ast.literal_eval(node.value)
    return facts
