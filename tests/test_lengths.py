"""Lines, functions and files stay short enough to be read at a glance."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# characters of a line, and lines of a function, a file, a method's file and a file of tests
LINE, FUNCTION, FILE, METHOD, TESTS = 110, 60, 250, 150, 400

TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for folder in ("cl_bench", "methods", "datasets", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
SOURCES = {name: text for name, text in TEXTS.items() if not name.startswith("tests/")}


def functions(text: str) -> dict[str, int]:
    """Lines of every function by name, without decorators; of one name, those of the longest."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    lengths = sorted((node.end_lineno - node.lineno + 1, node.name) for node in nodes)
    return {name: length for length, name in lengths}


def test_no_line_is_too_long():
    counts = {name: sum(len(line) > LINE for line in text.splitlines()) for name, text in TEXTS.items()}
    assert {name: count for name, count in counts.items() if count} == {}


def test_no_function_is_too_long():
    found = {
        f"{name}: {own}": lines for name, text in SOURCES.items() for own, lines in functions(text).items()
    }
    assert {place: lines for place, lines in found.items() if lines > FUNCTION} == {}


def most(name: str) -> int:
    """Lines that a file may have."""
    folder = name.partition("/")[0]
    return {"methods": METHOD, "tests": TESTS}.get(folder, FILE)


def test_no_file_is_too_long():
    lengths = {name: len(text.splitlines()) for name, text in TEXTS.items()}
    assert {name: length for name, length in lengths.items() if length > most(name)} == {}
