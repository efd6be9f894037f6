"""What a plugin's file says of itself in constants, read without importing it."""

import ast
import functools
import traceback
from pathlib import Path
from typing import Any

# of any plugin: other names, a line about it, and names that could mean something else too
OF_ALL = ("ALIASES", "SUMMARY", "ASKS")
# of a method: what it tunes, where it was published ("" for no paper of its own), the groups that it is in,
# forward passes of an image at prediction (a number, or words), what it keeps of old classes, and whether it
# is a reconstruction, since there is no public code
OF_METHODS = ("FAMILY", "VENUE", "GROUPS", "PASSES", "KEEPS", "RECONSTRUCTION")
FACTS = (*OF_ALL, *OF_METHODS)
LISTS = ("ALIASES", "GROUPS")
KINDS = {  # what the others are, and an example
    "SUMMARY": (str, '"a line"'), "FAMILY": (str, '"prompts"'), "VENUE": (str, '"CVPR 2024"'),
    "PASSES": (int | str, "1"), "KEEPS": (str, '"class means"'), "RECONSTRUCTION": (bool, "True"),
}  # fmt: skip


def of_file(path: Path) -> dict[str, Any]:
    """FACTS of a file, and all "names" that it sets. Raises what reading, parsing and evaluating raise."""
    return _constants(path, path.stat().st_mtime_ns)


@functools.cache
def _constants(path: Path, changed: int) -> dict[str, Any]:
    """As the file was when it was last changed."""
    facts: dict[str, Any] = {}
    names: set[str] = set()
    for node in ast.parse(path.read_bytes(), str(path)).body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            names.update(part.id for part in ast.walk(target) if isinstance(part, ast.Name))
            facts |= {name: ast.literal_eval(value) for name, value in _set(target, node.value)}
    return {**facts, "names": names}


def _set(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    """The FACTS that an assignment sets: one, or of several in a row those."""
    both = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        both = [*zip(target.elts, value.elts, strict=False)]
    return [(one.id, own) for one, own in both if isinstance(one, ast.Name) and one.id in FACTS]


def of_users_file(path: Path) -> tuple[dict[str, Any], str]:
    """The same of a user's file, and what is wrong with it: "" for nothing."""
    try:
        facts = of_file(path)
        for key in LISTS:
            words = facts.get(key, ())
            if not (isinstance(words, tuple | list) and all(isinstance(word, str) for word in words)):
                raise ValueError(f'expected {key} = ("name", ...)')
        for key, (kind, example) in KINDS.items():
            if key in facts and not isinstance(facts[key], kind):
                raise ValueError(f"{key} = {facts[key]!r}: expected such as {key} = {example}")
        return {key: value for key, value in facts.items() if key != "ASKS"}, ""
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:
        return {}, blamed(path, error)


def blamed(path: Path, error: BaseException) -> str:
    """One line: file, line and error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename in (str(path), None, "<unknown>"):
        lines.append(error.lineno)
    said = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    place = f"{path}, line {lines[-1]}" if lines else str(path)
    return f"{place}: {type(error).__name__}: {said}"
