"""Finds plugins by name without importing the others: the package's own, the user's files, entry points."""

import functools
import hashlib
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from cl_bench.config import unknown
from cl_bench.errors import InputError
from cl_bench.plugins import constants, search_path

Kind = Literal["methods", "datasets"]
ALL, A_GROUP = "all", "a group of methods"  # the word for every method; what stands for several methods
WORDS: dict[str, str] = {"methods": "method", "datasets": "data set"}
CLASSES = {"methods": "METHOD", "datasets": "SOURCE"}  # what a plugin's file sets
BASES = {"methods": ("cl_bench.training.method", "Method"), "datasets": ("cl_bench.data.source", "Source")}


@dataclass(frozen=True)
class Plugin:
    """One plugin: its full name, short aliases, a line about it, and the module that holds it."""

    name: str
    module: str
    aliases: tuple[str, ...] = ()
    summary: str = ""
    # names that could mean something else too, with what to choose from
    asks: tuple[tuple[str, str], ...] = ()
    family: str = ""  # what a method tunes
    venue: str = ""  # such as "CVPR 2024"; "" for what has no paper of its own
    groups: tuple[str, ...] = ()  # words that mean a method and others, see `cl_bench.plugins.groups`
    passes: int | str | None = None  # of an image at prediction; None: its file does not say
    keeps: str = ""  # of old classes
    reconstruction: bool = False  # made from a paper alone: there is no public code
    path: Path | None = None  # of a file that is not the package's own
    problem: str = ""  # why such a file cannot be used
    backbones: bool = True  # whether it may bring backbones

    def load(self) -> ModuleType:
        """Import this plugin's module alone. Raises InputError for what is wrong with a user's file."""
        if self.path is None:
            return importlib.import_module(self.module)
        if self.problem:
            raise InputError(self.problem)
        try:
            importlib.invalidate_caches()
            found = importlib.import_module(self.module)
        except (Exception, SystemExit) as error:  # it may raise anything
            sys.modules.pop(self.module, None)
            raise InputError(constants.blamed(self.path, error)) from error
        self._require_class(found)
        return found

    def _require_class(self, module: ModuleType) -> None:
        kind = self.module.split(".")[1]
        name, base = CLASSES[kind], getattr(importlib.import_module(BASES[kind][0]), BASES[kind][1])
        found = getattr(module, name)
        if not (isinstance(found, type) and issubclass(found, base)):
            expected = f"a subclass of {'.'.join(BASES[kind])}"
            raise InputError(f"{self.path}: {name} is {found!r}; expected {expected}")

    def sha256(self) -> str | None:
        """The digest of a user's file and of the helpers beside it (`_*.py`); None for other plugins."""
        if self.path is None:
            return None
        parts = [self.path, *sorted(self.path.parent.glob("_*.py"))]
        try:
            digests = [(part.name, hashlib.sha256(part.read_bytes()).hexdigest()) for part in parts]
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror or error}") from error
        return hashlib.sha256(repr(digests).encode()).hexdigest()


def plugins(kind: Kind) -> dict[str, Plugin]:
    """All plugins of a kind by full name; files are read, not imported, and those called `_*` are helpers."""
    found: dict[str, Plugin] = {}
    for folder in search_path.own():
        for path in sorted((folder / kind).glob("[a-z]*.py")):
            facts = constants.of_file(path)
            name = path.stem.replace("_", "-")
            found.setdefault(name, _plugin(name, kind, path, facts))
    for entry in _installed(f"cl_bench.{kind}"):
        origin = entry.dist.name if entry.dist else entry.module
        found.setdefault(entry.name, Plugin(entry.name, entry.module, (), f"from {origin}"))
    for plugin in _outside(kind, found):
        found[plugin.name if plugin.name not in found else str(plugin.path)] = plugin
    return found


def _plugin(
    name: str, kind: Kind, path: Path, facts: dict, outside: bool = False, problem: str = ""
) -> Plugin:
    return Plugin(
        name=name,
        module=f"cl_bench.{kind}.{path.stem}",
        aliases=tuple(facts.get("ALIASES", ())),
        summary=facts.get("SUMMARY", ""),
        asks=tuple(facts.get("ASKS", {}).items()),
        family=facts.get("FAMILY", ""),
        venue=facts.get("VENUE", ""),
        groups=tuple(facts.get("GROUPS", ())),
        passes=facts.get("PASSES"),
        keeps=facts.get("KEEPS", ""),
        reconstruction=facts.get("RECONSTRUCTION", False),
        path=path if outside else None,
        problem=problem,
        backbones="BACKBONES" in facts.get("names", ()),
    )


def _outside(kind: Kind, known: dict[str, Plugin]) -> list[Plugin]:
    """The plugins in the user's folders; one that cannot be used, or whose name is taken, has a `problem`."""
    taken: dict[str, str] = {}
    found: list[Plugin] = []
    for plugin in known.values():
        taken |= dict.fromkeys((plugin.name, *plugin.aliases), f"the {WORDS[kind]} {plugin.name}")
        taken |= dict.fromkeys(plugin.groups, A_GROUP)
    taken |= {ALL: A_GROUP} if kind == "methods" else {}
    for folder in search_path.outside():
        checkout = search_path.is_checkout(folder)
        for path in sorted((folder / kind).glob("[!_]*.py")):
            name = path.stem.replace("_", "-")
            if checkout and name in known:
                continue
            facts, problem = constants.of_users_file(path)
            if not problem and CLASSES[kind] not in facts["names"]:
                problem = f"{path} sets no {CLASSES[kind]}: it is no {WORDS[kind]}"
            names = (name, *facts.get("ALIASES", ()))
            clash = next((word for word in names if word in taken), None)
            if clash and not (problem and clash != name):
                by = taken[clash]
                problem = f"{path}: the name {clash!r} is taken by {by}; rename the file or its alias"
            group = next((word for word in facts.get("GROUPS", ()) if _is_name(word, names, taken)), None)
            if group and not problem:
                problem = f"{path}: the group {group!r} has the name of a method; rename the group"
            plugin = _plugin(name, kind, path, facts, True, problem)
            if not problem:
                taken |= dict.fromkeys(names, str(path)) | dict.fromkeys(plugin.groups, A_GROUP)
            found.append(plugin)
    return found


def _is_name(group: str, own: Iterable[str], taken: dict[str, str]) -> bool:
    """Whether a group's name is that of a method: the file's own one, or one that is taken."""
    return group in own or taken.get(group, A_GROUP) != A_GROUP


def find(kind: Kind, name: str, others: Iterable[str] = ()) -> Plugin:
    """The plugin with this full name or alias.

    Raises InputError with the nearest name, or the nearest of `others` that could stand in its place, and for
    a user's file that cannot be used.
    """
    known = plugins(kind)
    named = [plugin for plugin in known.values() if name in (plugin.name, *plugin.aliases)]
    named += [plugin for plugin in known.values() if plugin.name in {other.name for other in named}]
    for plugin in sorted(named, key=lambda plugin: not plugin.problem):
        if plugin.problem:
            raise InputError(plugin.problem)
        return plugin
    for plugin in known.values():
        if name in dict(plugin.asks):
            raise InputError(dict(plugin.asks)[name])
    usable = [plugin for plugin in known.values() if not plugin.problem]
    words = [word for plugin in usable for word in (plugin.name, *plugin.aliases)]
    raise unknown(WORDS[kind], name, [*words, *others])


def find_for(kind: Kind, name: str, sha256: str | None) -> Plugin:
    """The plugin that a run was planned with: the package's, or a file of this digest. Raises InputError."""
    word = WORDS[kind]
    try:
        plugin = find(kind, name)
    except InputError as error:
        if sha256 is None:
            raise
        there = f"put it on this machine too and name its folder in ${search_path.VARIABLE}"
        raise InputError(f"{word} {name!r} is a plugin file that is not here ({error}); {there}") from None
    if plugin.sha256() != sha256:
        here = f"the file {plugin.path}" if plugin.path else "the package's own"
        other = "which is not what this run was planned with; plan it again with `cl-bench run`"
        raise InputError(f"{word} {name!r} is {here} here, {other}")
    return plugin


def method_class(name: str) -> type[Any]:
    """The class a method plugin registers as METHOD, which is a `cl_bench.training.method.Method`."""
    return find("methods", name).load().METHOD


def source_class(name: str) -> type[Any]:
    """The class a data set plugin registers as SOURCE, which is a `cl_bench.data.source.Source`."""
    return find("datasets", name).load().SOURCE


def named_backbones() -> dict:
    """Backbones that data set plugins bring along: name -> function returning a BackboneSpec."""
    found: dict[str, Callable] = {}
    for plugin in plugins("datasets").values():
        if plugin.backbones and not plugin.problem:
            try:
                found = {**getattr(plugin.load(), "BACKBONES", {}), **found}
            except InputError:  # a user's file: whoever asks for it by name is told
                continue
    return found


@functools.cache
def _installed(group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=group))
