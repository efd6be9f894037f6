"""What `ls methods` prints: a line a method, or with `--details` all that its file says of it."""

import textwrap
from collections.abc import Sequence

from cl_bench.plugins import registry
from cl_bench.plugins.groups import groups
from cl_bench.plugins.registry import ALL, Plugin

WIDTH, LEAST = 80, 20  # of a terminal; of the last column
HEADS = ("method", "family", "venue", "passes", "keeps of old classes")
NOTHING = "–"


def lines(details: bool) -> list[str]:
    """Methods by family and age, then what the marks mean and which groups there are."""
    found = registry.plugins("methods").values()
    usable = sorted((plugin for plugin in found if not plugin.problem), key=_place)
    made = [line for plugin in usable for line in _details(plugin)] if details else _table(usable)
    made += [f"{_names(plugin)}  cannot be used: {plugin.problem}" for plugin in found if plugin.problem]
    return [*made, "", *_legend(details)]


def values() -> list[dict]:
    """What the files of all methods say, as JSON values; `problem` is why one cannot be used."""
    facts = ("family", "venue", "passes", "keeps", "summary", "reconstruction", "problem")
    return [
        {
            "name": plugin.name,
            "aliases": list(plugin.aliases),
            "groups": list(plugin.groups),
            **{fact: getattr(plugin, fact) for fact in facts},
        }
        for plugin in sorted(registry.plugins("methods").values(), key=_place)
    ]


def _place(plugin: Plugin) -> tuple[str, str, str]:
    return plugin.family.lower(), plugin.venue[-4:], plugin.name


def _names(plugin: Plugin) -> str:
    return ", ".join((plugin.name, *plugin.aliases))


def _cells(plugin: Plugin) -> tuple[str, ...]:
    passes = "?" if plugin.passes is None else str(plugin.passes)
    mark = " ¶" * plugin.reconstruction
    venue = (plugin.venue or NOTHING) + mark
    return _names(plugin), plugin.family or NOTHING, venue, passes, plugin.keeps or NOTHING


def _table(plugins: Sequence[Plugin]) -> list[str]:
    """Columns as wide as what stands in them; the last one gets the rest of the terminal."""
    rows = [HEADS, *map(_cells, plugins)]
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    before, found = sum(widths) + 2 * len(widths), []
    for *cells, last in rows:
        start = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        first, *rest = textwrap.wrap(last, max(LEAST, WIDTH - before))
        found += [f"{start}  {first}", *(" " * before + line for line in rest)]
    return found


def _details(plugin: Plugin) -> list[str]:
    _, family, venue, passes, keeps = _cells(plugin)
    said = [f"family: {family}", f"venue: {venue}", f"passes: {passes}", f"keeps of old classes: {keeps}"]
    said += [f"groups: {', '.join(plugin.groups)}"] if plugin.groups else []
    wrapper = textwrap.TextWrapper(WIDTH, initial_indent="    ", subsequent_indent="    ")
    text = [line for part in (plugin.summary, "; ".join(said)) for line in wrapper.wrap(part)]
    return [_names(plugin), *text, *([f"    {plugin.path}"] if plugin.path else [])]


def _legend(details: bool) -> list[str]:
    told = ["passes: forward passes of an image at prediction (t: one a task; ?: the file does not say)"]
    told += ["¶ no public code: a reconstruction from the paper"]
    for group, plugins in groups().items():
        if group != ALL:
            told.append(f"group {group}: {', '.join(plugin.name for plugin in plugins)}")
    told.append(f"group {ALL}: all that fit the backbone and data asked for")
    told += [] if details else ["what each of them is: cl-bench ls methods --details"]
    return [line for part in told for line in textwrap.wrap(part, WIDTH, subsequent_indent="    ")]
