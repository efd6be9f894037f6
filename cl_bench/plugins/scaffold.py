"""Starts a plugin: a method or a data set in a file of its own, with a test that passes."""

import re
from importlib import resources
from pathlib import Path
from string import Template

from cl_bench.errors import InputError
from cl_bench.plugins import registry

Kind = registry.Kind
WORDS = {"methods": "method", "datasets": "dataset"}


def start(kind: Kind, name: str, folder: Path) -> list[Path]:
    """Write `kind`/NAME.py and tests/test_NAME.py below the folder; returns them.

    Raises InputError for a name that cannot be one or is taken, and where a file stands already.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*", name):
        raise InputError(
            f"{name!r} cannot be a name; expected lower-case words with hyphens, such as my-method"
        )
    if name in taken(kind):
        raise InputError(f"there is a {WORDS[kind]} {name!r} already; choose another name")
    module = name.replace("-", "_")
    plugin, test = folder / kind / f"{module}.py", folder / "tests" / f"test_{module}.py"
    for path in (plugin, test):
        if path.exists():
            raise InputError(f"{path} is there already; choose another name, or move it away")
    words = {
        "name": name,
        "Class": "".join(part.capitalize() for part in name.split("-")),
        "Display": name.replace("-", " ").capitalize(),
        "test": f"tests/{test.name}",
    }
    for path, template in ((plugin, f"{WORDS[kind]}.py.txt"), (test, f"test_{WORDS[kind]}.py.txt")):
        text = resources.files(__package__).joinpath("templates", template).read_text(encoding="utf-8")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(text).substitute(words), encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    return [plugin, test]


def taken(kind: Kind) -> set[str]:
    """Names and aliases of what there is."""
    found = registry.plugins(kind).values()
    return {name for plugin in found for name in (plugin.name, *plugin.aliases)}
