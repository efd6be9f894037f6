"""YAML as people write it, with the line of every key; what no option can mean is refused in one line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cl_bench.errors import InputError
from cl_bench.text import user_text

MOST_NODES = 100_000  # values in all, those behind aliases counted wherever they stand
DEEPEST = 20  # lists and mappings inside each other
TOO_DEEP = f"lists and mappings stand more than {DEEPEST} deep inside each other"
# what PyYAML's own constructors raise for values that look like a number, a date or a tag and are none
UNREADABLE = (
    yaml.YAMLError,
    ValueError,
    OverflowError,
    RecursionError,
    AttributeError,
    KeyError,
    IndexError,
    TypeError,
)
PLAIN = ("str", "int", "float", "bool", "null", "seq", "map", "merge")
NAMES = {
    "bool": "true or false",
    "timestamp": "a date",
    "binary": "bytes",
    "null": "nothing",
    "float": "a number with a point",
    "seq": "a list",
    "map": "a mapping",
}


@dataclass(frozen=True)
class YamlFile:
    """A mapping, and the place of its keys: "key" and "key.key" -> such as "experiment.yaml, line 7"."""

    values: dict[str, Any]
    places: dict[str, str]


def read(path: Path, what: str = "") -> YamlFile:
    """The mapping in a file. Raises InputError naming file and line."""
    text = user_text.read(path, what)
    root = _composed(text, f"cannot read {what}{path}", str(path))
    if not isinstance(root, yaml.MappingNode):
        raise InputError(f"{path} must hold a mapping of option to value")
    values = {str(key): value for key, value in _constructed(root, str(path)).items()}
    return YamlFile(values, _places(root, path))


def value(text: str) -> Any:
    """One value. Raises InputError."""
    named = f"the value {user_text.short(text)}"
    root = _composed(text, f"cannot read {named}", named)
    return None if root is None else _constructed(root, named)


def _composed(text: str, failed: str, where: str) -> yaml.Node | None:
    """The tree of a text, each mapping with keys of its own. Raises InputError."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except RecursionError:
        raise InputError(f"{failed}: {TOO_DEEP}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{failed}: {' '.join(str(error).split())}") from error
    if root is not None:
        _check(root, failed, where, (), [0])
    return root


def _check(node: yaml.Node, failed: str, where: str, above: tuple[yaml.Node, ...], seen: list[int]) -> None:
    """Raise InputError for what a node holds that no option can mean.

    That is aliases of what they stand in, a tree too large or too deep, values of no plain kind, and keys
    that stand twice. `above` are the nodes that this one stands in, `seen` is how many have been looked at.
    """
    seen[0] += 1
    if node in above:
        raise InputError(f"{failed}: what begins on {_line(node)} stands inside itself, by an alias")
    if seen[0] > MOST_NODES:
        raise InputError(f"{failed}: it stands for more than {MOST_NODES:,} values")
    if len(above) > DEEPEST:
        raise InputError(f"{failed}: {TOO_DEEP}")
    tag = node.tag.rpartition(":")[2]
    if tag not in PLAIN:
        written = user_text.short(node.value) if isinstance(node, yaml.ScalarNode) else "this"
        kind = NAMES.get(tag, node.tag)
        raise InputError(f"{_place(node, where)}: YAML reads {written} as {kind}; put words in quotes")
    above = (*above, node)
    if isinstance(node, yaml.SequenceNode):
        for part in node.value:
            _check(part, failed, where, above, seen)
    elif isinstance(node, yaml.MappingNode):
        _check_keys(node, where)
        for key, part in node.value:
            _check(key, failed, where, above, seen)
            _check(part, failed, where, above, seen)


def _check_keys(node: yaml.MappingNode, where: str) -> None:
    """Keys are words (numbers become words), each once."""
    known: dict[str, yaml.Node] = {}
    for key, _ in node.value:
        tag = key.tag.rpartition(":")[2]
        if not isinstance(key, yaml.ScalarNode) or tag not in ("str", "int", "merge"):
            written = user_text.short(key.value) if isinstance(key, yaml.ScalarNode) else "a list or mapping"
            read = f"YAML reads the key {written} as {NAMES.get(tag, tag)}"
            raise InputError(f"{_place(key, where)}: {read}; put it in quotes")
        if key.value in known:
            lines = f"lines {known[key.value].start_mark.line + 1} and {key.start_mark.line + 1}"
            twice = f"the key {user_text.short(key.value)} stands twice"
            raise InputError(f"{where}, {lines}: {twice}; leave out one of them")
        known[key.value] = key


def _place(node: yaml.Node, where: str) -> str:
    return f"{where}, {_line(node)}"


def _constructed(root: yaml.Node, where: str) -> Any:
    """The values of a checked tree. Raises InputError."""
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(root)
    except UNREADABLE as error:
        said = " ".join(str(error).split())
        raise InputError(f"{where}: {said if len(said) <= 200 else said[:200] + '...'}") from error
    finally:
        loader.dispose()


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


def _places(root: yaml.MappingNode, path: Path, above: str = "") -> dict[str, str]:
    found = {}
    for key, part in root.value:
        name = f"{above}{key.value}"
        found[name] = f"{path}, {_line(key)}"
        if not above and isinstance(part, yaml.MappingNode):
            found |= _places(part, path, f"{name}.")
    return found
