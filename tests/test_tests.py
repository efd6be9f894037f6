"""Tests reach the package through public names alone, so that what is private can change without them."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
HELPERS = {  # modules whose names tell that they are no plug-ins, not that they are private
    f"cl_bench.{folder}.{path.stem}"
    for folder in ("methods", "datasets")
    for path in (TESTS.parent / folder).glob("_*.py")
}
FOREIGN = {
    "_file_dict": "torchvision",  # private names of other libraries that have no public door
    "_exit": "os", "_C": "torch", "_dispatch_get_all_op_names": "torch", "_dynamo": "torch",
    "_forward_hooks": "torch", "_apply_op": "torchvision", "_augmentation_space": "torchvision",
    "_pos_embed": "timm", "_subclasses": "torch",
}  # fmt: skip
FILES = {  # but this one, which has examples
    str(path.relative_to(TESTS)): path.read_text(encoding="utf-8")
    for path in TESTS.rglob("*.py")
    if path.name != Path(__file__).name
}
BY_NAME = {"getattr", "setattr", "hasattr", "delattr", "delitem", "setitem", "patch"}


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def own_names(tree: ast.AST) -> set[str]:
    """Private methods and attributes that the file's own classes define."""
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return functions | {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }


def reached(node: ast.AST, own: set[str]) -> list[str]:
    """Private names that this piece of code reaches in something else."""
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) if name in own:
            return []
        case ast.Attribute(attr=name):
            return [name]
        case ast.Import(names=names):
            parts = [alias.name for alias in names if alias.name.startswith("cl_bench")]
            return [part for name in parts if name not in HELPERS for part in name.split(".")]
        case ast.ImportFrom(module=str(module), names=names):
            ours = module.startswith("cl_bench") and module not in HELPERS
            named = [alias.name for alias in names if f"{module}.{alias.name}" not in HELPERS]
            return [*(module.split(".") if ours else []), *named]
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=given) if called in BY_NAME:
            texts = [one.value for one in given if isinstance(one, ast.Constant)]
            return [text.split(".")[-1] for text in texts if isinstance(text, str)]
        case ast.Subscript(
            value=ast.Attribute(attr="__dict__") | ast.Call(), slice=ast.Constant(value=str(name))
        ):
            return [name]
        case ast.Constant(value=str(text)) if "\n" in text:
            return in_code(text)  # such as a patch for another process
    return []


def in_code(text: str) -> list[str]:
    """Private names that a text reaches, where it is code."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # or text that has no encoding
        return []
    own = own_names(tree)
    return [name for node in ast.walk(tree) for name in reached(node, own) if private(name)]


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_test_reaches_no_private_name_of_the_package(file):
    assert not set(in_code(FILES[file])) - set(FOREIGN)


def test_every_exception_is_needed():
    found = {name for text in FILES.values() for name in in_code(text)}
    assert set(FOREIGN) <= found


@pytest.mark.parametrize(
    "code",
    [
        "stream._test", "from cl_bench.data.stream import _rows", "from cl_bench.nn._x import y",
        "import cl_bench._x", "monkeypatch.setattr(throughput, '_start', 1)",
        "monkeypatch.setattr('cl_bench.environment._info', 1)", "getattr(stream, '_test')",
        "stream.__dict__['_test']", "vars(stream)['_test']",
        "class Other(Stream):\n    def f(self):\n        return self._test",
        "PATCH = '''\nTrainer._step = 1\n'''",
    ],
)  # fmt: skip
def test_every_way_to_a_private_name_is_found(code):
    assert [name for name in in_code(code) if name not in FOREIGN]


@pytest.mark.parametrize(
    "code",
    [
        "class Own:\n    def f(self):\n        self._x = 1\n        return self._x",
        "from cl_bench.methods._pgp import f",
    ],
)
def test_what_is_a_tests_own_is_not(code):
    assert not in_code(code)
