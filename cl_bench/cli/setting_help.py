"""What a setting may be and what it means, read from the class that declares it."""

import inspect
import re
from types import NoneType
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cl_bench.notation import format_option

BOUNDS = {"ge": "from {}", "gt": "above {}", "le": "up to {}", "lt": "below {}"}
KINDS = {int: "a whole number", float: "a number", str: "a word"}
REMARK = re.compile(r"^    (?P<name>\w+): [^#\n]*(?:#\s*(?P<behind>.*))?$")


def allowed(field: FieldInfo) -> str:
    """Such as "none | crop", "on | off" or "a number above 0 up to 1, or null"."""
    parts = get_args(field.annotation) if get_origin(field.annotation) is not Literal else ()
    kinds = [part for part in parts or (field.annotation,) if part is not NoneType]
    bounds = [
        text.format(format_option(getattr(bound, name)))
        for bound in field.metadata
        for name, text in BOUNDS.items()
        if getattr(bound, name, None) is not None
    ]
    words = " ".join([_kind(kinds), *bounds])
    return f"{words}, or null" if NoneType in parts else words


def _kind(kinds: list) -> str:
    if len(kinds) == 1 and get_origin(kinds[0]) is Literal:
        return " | ".join(map(format_option, get_args(kinds[0])))
    if kinds == [bool]:
        return "on | off"
    lists = (tuple, list)
    names = [KINDS.get(kind, "a list" if get_origin(kind) in lists else "a value") for kind in kinds]
    return " or ".join(names)


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """What stands beside or above the declaration of each setting, as far as anything does."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, BaseModel) and kind is not BaseModel:
            found |= _remarks(inspect.getsource(kind))
    return {name: words for name, words in found.items() if name in model.model_fields}


def _remarks(source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    above: list[str] = []
    for line in source.splitlines():
        if line.startswith("    # "):
            above.append(line.strip("# "))
            continue
        match = REMARK.match(line)
        if match:
            words = match["behind"] or " ".join(above)
            found |= {match["name"]: words} if words else {}
        above = []
    return found
