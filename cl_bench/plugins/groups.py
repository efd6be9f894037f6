"""Groups of methods: `all`, and the words that methods' files name in GROUPS."""

from collections.abc import Callable
from dataclasses import dataclass

from cl_bench.errors import InputError
from cl_bench.notation import items
from cl_bench.plugins import registry
from cl_bench.plugins.registry import ALL, Plugin


@dataclass(frozen=True)
class Expanded:
    """What stands after `--methods` without groups, and what became of those."""

    methods: str
    brought: frozenset[str] = frozenset()  # full names of what a group brought and nobody named
    left_out: tuple[str, ...] = ()  # what a group did not bring, and why: a sentence each


def groups() -> dict[str, list[Plugin]]:
    """The methods of every group in the order of their venues' years, those without venue first."""
    found: dict[str, list[Plugin]] = {ALL: []}
    for plugin in sorted(registry.plugins("methods").values(), key=_age):
        for group in dict.fromkeys((ALL, *plugin.groups)):
            found.setdefault(group, []).append(plugin)
    return found


def _age(plugin: Plugin) -> tuple[str, str]:
    return plugin.venue[-4:], plugin.name


def _problem(plugin: Plugin) -> str:
    return plugin.problem


def expanded(text: str, refused: Callable[[Plugin], str] = _problem) -> Expanded:
    """Methods and groups as after `--methods`, with the methods of each group in its place, each once.

    What a group has and is `refused` with a reason is left out. Raises InputError for a word that is neither
    method nor group, with the nearest, for options of a group, and where nothing is left.
    """
    known, parts = groups(), [(item, item.partition("[")[0].strip()) for item in items(text)]
    named = {item: registry.find("methods", name, known).name for item, name in parts if name not in known}
    if len(named) == len({item for item, _ in parts}):
        return Expanded(text)
    alone = {method for item, method in named.items() if "[" not in item}
    found: list[str] = []
    brought: dict[str, None] = {}
    left_out: dict[str, None] = {}
    for item, name in parts:
        if name in known and "[" in item:
            advice = "give them with --set to all that have them, or name the methods"
            raise InputError(f"{item!r}: a group of methods takes no options; {advice}")
        for plugin in known.get(name, ()):
            if reason := refused(plugin):
                left_out[f"{plugin.name}: {reason}"] = None
            elif plugin.name not in {*alone, *brought}:
                brought[plugin.name] = None
                found.append(plugin.name)
        found += [item] if name not in known else []
    if not found:
        raise InputError(f"{text} has no method that can be used: {'; '.join(left_out)}")
    return Expanded(",".join(found), frozenset(brought) - {*named.values()}, tuple(left_out))
