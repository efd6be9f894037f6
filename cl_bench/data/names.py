"""What classes are called in the sentences that a text tower reads: names from a file, and how the sentences come out."""

import re
from collections.abc import Sequence
from pathlib import Path

from cl_bench.config import unknown
from cl_bench.data.source import Source
from cl_bench.errors import InputError
from cl_bench.text.user_text import composed, read

SHOWN = 3  # classes whose sentences are shown
CODE = re.compile(
    r"n\d{8}|\d+([ ._-].*)?|[A-Za-z]?\d+"
)  # such as n01440764, 001.Black_footed_Albatross, c12: no words for a class


def read_names(path: Path, classes: Sequence[str]) -> list[str]:
    """The name of every class from a file of lines "CLASS NAME". Raises InputError with the line that cannot be used."""
    names = {}
    for number, line in enumerate(composed(read(path, "the names in ")).splitlines(), 1):
        if not line.strip():
            continue
        named = max(
            (c for c in classes if line.startswith(c) and line[len(c) :][:1].isspace()), key=len, default=None
        )
        if named is None:
            raise unknown("class", line.split()[0], classes, f"{path}, line {number}")
        if named in names:
            raise InputError(f"{path}, line {number}: class {named!r} stands twice; leave one line of it")
        names[named] = " ".join(line[len(named) :].split())
        if not names[named]:
            raise InputError(
                f"{path}, line {number}: class {named!r} has no name; expected its folder, then its name"
            )
    missing = [c for c in classes if c not in names]
    if missing:
        raise InputError(
            f"{path} names {len(names)} of {len(classes)} classes; {missing[0]!r} is missing; expected a line a class"
        )
    return [names[c] for c in classes]


def sentences(source: Source) -> tuple[list[str], list[str]]:
    """(remarks, warnings) about what a text tower reads: the first sentences, and names that are codes."""
    names, templates = source.text_names(), source.TEMPLATES
    shown = ", ".join(f'"{templates[0].format(name)}"' for name in names[:SHOWN])
    of = f"{len(names)} classes, {len(templates)} sentence{'s' * (len(templates) > 1)} each"
    remarks = [f"{source.name}: the text tower reads {shown}{', ...' * (len(names) > SHOWN)} ({of})"]
    codes = [name for name in names if CODE.fullmatch(name)]
    if not codes:
        return remarks, []
    return remarks, [
        f"{source.name}: {len(codes)} of {len(names)} class names look like codes ({', '.join(codes[:SHOWN])}), of which a text tower knows little; "
        "give names with folder:PATH?names=FILE, a line a class: its folder, then its name"
    ]
