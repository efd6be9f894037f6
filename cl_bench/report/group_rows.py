"""What rows of a report select: one configuration of a method each, or a group of methods."""

from collections.abc import Sequence
from functools import cache

from cl_bench.errors import InputError
from cl_bench.notation import parse_methods, without_synonyms
from cl_bench.plugins import registry
from cl_bench.plugins.groups import groups


@cache
def selector(text: str) -> tuple[str, dict]:
    """(full method name, options) of a method as it is written after `--methods`.

    Raises InputError with the nearest name.
    """
    found = parse_methods(text)
    if len(found) != 1:
        raise InputError(f"{text!r} names {len(found)} configurations; a row is one")
    return _method(found[0][0]), without_synonyms(found[0][1])


@cache
def _method(name: str) -> str:
    return registry.find("methods", name, groups()).name


def standing(rows: Sequence, text: str, but: str = "") -> int | None:
    """The place of the row that a method with its options names, None where no row is it.

    The first that is spelled so, or else that means it by other names; never the one that stands at `but`.
    """
    known = groups()
    places = [place for place, row in enumerate(rows) if row.select not in (None, *known) and row.at != but]
    spelled = [place for place in places if rows[place].select == text]
    if spelled:
        return spelled[0]
    try:
        meant = selector(text)
    except InputError:
        return None
    return next((place for place in places if selector(rows[place].select) == meant), None)


def without_groups(part):
    """With a row for each method of a group that no row of its own selects."""
    known, rows = groups(), []
    own = [selector(row.select) for row in part.rows if row.select and row.select not in known]
    named = {method for method, options in own if not options}
    for row in part.rows:
        if row.select not in known:
            rows.append(row)
            continue
        brought = [plugin for plugin in known[row.select] if plugin.name not in named and not plugin.problem]
        named |= {plugin.name for plugin in brought}
        rows += _of_group(row, brought)
    return part.model_copy(update={"rows": [_labelled(row) for row in rows]})


def _of_group(row, brought: Sequence[registry.Plugin]) -> list:
    """A row for each method that a group brought."""
    rows = [row.model_copy(update={"select": plugin.name}) for plugin in brought]
    if row.by is None:
        return rows
    families = list(dict.fromkeys(plugin.family for plugin in brought))
    found = []
    for family in families:
        own = [made for made, plugin in zip(rows, brought, strict=True) if plugin.family == family]
        first = own[0].model_copy(update={"rule": bool(found) or row.rule})
        found += [first, *own[1:]]
    return found


def _labelled(row):
    """The row with its method's family and venue in its labels."""
    if not any("{" in label for label in row.labels) or row.select is None:
        return row
    plugin = registry.find("methods", selector(row.select)[0])
    labels = list(row.labels)
    for name, value in (("{family}", plugin.family), ("{venue}", plugin.venue or "–")):
        labels = [label.replace(name, value) for label in labels]
    return row.model_copy(update={"labels": labels})
