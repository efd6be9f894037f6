"""What classes are called in the sentences that a text tower reads: names from a file, and sentences."""

import re
from collections.abc import Sequence
from pathlib import Path

from cl_bench.config import unknown
from cl_bench.data.source import Source
from cl_bench.errors import InputError
from cl_bench.text.user_text import composed, read

SHOWN = 3  # classes whose sentences are shown
ADVICE = "give names with folder:PATH?names=FILE, a line a class: its folder, then its name"
# no words for a class: such as n01440764, 001.Black_footed_Albatross, c12
CODE = re.compile(r"n\d{8}|\d+([ ._-].*)?|[A-Za-z]?\d+")


def read_names(path: Path, classes: Sequence[str]) -> list[str]:
    """The name of every class from lines "CLASS NAME". Raises InputError with the line that is unusable."""
    names = {}
    for number, line in enumerate(composed(read(path, "the names in ")).splitlines(), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        fitting = [c for c in classes if line.startswith(c) and line[len(c) :][:1].isspace()]
        if not fitting:
            raise unknown("class", line.split()[0], classes, place)
        named = max(fitting, key=len)
        if named in names:
            raise InputError(f"{place}: class {named!r} stands twice; leave one line of it")
        names[named] = " ".join(line[len(named) :].split())
        if not names[named]:
            raise InputError(f"{place}: class {named!r} has no name; expected its folder, then its name")
    missing = [c for c in classes if c not in names]
    if missing:
        lacking = f"{missing[0]!r} is missing; expected a line a class"
        raise InputError(f"{path} names {len(names)} of {len(classes)} classes; {lacking}")
    return [names[c] for c in classes]


def sentences(source: Source) -> tuple[list[str], list[str]]:
    """(remarks, warnings) about what a text tower reads: the first sentences, and names that are codes."""
    names, templates = source.text_names(), source.TEMPLATES
    shown = ", ".join(f'"{templates[0].format(name)}"' for name in names[:SHOWN])
    of = f"{len(names)} classes, {len(templates)} sentence{'s' * (len(templates) > 1)} each"
    remarks = [f"{source.name}: the text tower reads {shown}{', ...' * (len(names) > SHOWN)} ({of})"]
    alike = _codes(names)
    return remarks, [f"{source.name}: {alike}, of which a text tower knows little; {ADVICE}"] if alike else []


def require_names(source: Source, method: str) -> None:
    """Raise InputError where class names are codes, for a method that learns from what they mean."""
    if alike := _codes(source.text_names()):
        raise InputError(f"{method} learns from class names, and of {source.name} {alike}; {ADVICE}")


def _codes(names: Sequence[str]) -> str:
    """How many names are codes, and which; "" where none is."""
    codes = [name for name in names if CODE.fullmatch(name)]
    look = f"{len(codes)} of {len(names)} class names look like codes ({', '.join(codes[:SHOWN])})"
    return look if codes else ""
