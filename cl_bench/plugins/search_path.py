"""Folders outside this package that hold plugins: $CL_BENCH_PLUGINS, --plugins, and the working folder.

They stand behind the package's own folder on its search path: the files in their `methods/` and `datasets/`
are modules `cl_bench.methods.*` and `cl_bench.datasets.*`, and never top-level names. Processes that this one
starts are told by the environment variable.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import cl_bench
from cl_bench.errors import InputError

VARIABLE = "CL_BENCH_PLUGINS"
KINDS = ("methods", "datasets")
_told: str | None = None  # what this module has written into the variable, and what stood there before
_given = ""
_asked: list[Path] = []


def own() -> list[Path]:
    """The package's own folders."""
    return [Path(folder) for folder in cl_bench.__path__[: cl_bench.OWN_FOLDERS]]


def outside() -> list[Path]:
    """The other folders in use."""
    return [Path(folder) for folder in cl_bench.__path__[cl_bench.OWN_FOLDERS :]]


def asked() -> list[Path]:
    """Those of --plugins, as they were given."""
    return list(_asked)


def use(asked: Sequence[Path] = ()) -> None:
    """Find plugins in the folders of --plugins and of the environment variable, and in the working folder.

    Raises InputError for a folder that is named and holds none.
    """
    global _told, _given
    value = os.environ.get(VARIABLE, "")
    if not value or value != _told:
        _given = value
    named = [(folder, "--plugins") for folder in asked]
    named += [(Path(folder), f"${VARIABLE}") for folder in _given.split(os.pathsep) if folder]
    for folder, origin in named:
        if not _holds_plugins(folder):
            lacking = "holds neither a folder methods/ nor a folder datasets/"
            raise InputError(f"{origin}: {folder} {lacking}; name the folder above them")
    found = [folder for folder, _ in named]
    if _holds_plugins(Path.cwd()):
        found.append(Path.cwd())
    _asked[:] = asked
    known = {folder.resolve() for folder in own()}
    folders = dict.fromkeys(str(folder.absolute()) for folder in found if folder.resolve() not in known)
    cl_bench.__path__[cl_bench.OWN_FOLDERS :] = folders
    os.environ[VARIABLE] = _told = os.pathsep.join(folders)
    for name, module in list(sys.modules.items()):  # of a folder that is not in use any more
        path = getattr(module, "__file__", None)
        if path and name.startswith(tuple(f"cl_bench.{kind}." for kind in KINDS)) and not _inside(path):
            del sys.modules[name]


def _holds_plugins(folder: Path) -> bool:
    try:
        return any((folder / kind).is_dir() for kind in KINDS)
    except (OSError, ValueError):
        return False


def _inside(path: str) -> bool:
    return any(Path(path).resolve().is_relative_to(Path(folder).resolve()) for folder in cl_bench.__path__)


def is_checkout(folder: Path) -> bool:
    """Whether a folder holds this project's source, whose plugins of known names are the package's own."""
    return (folder / "pyproject.toml").is_file() and (folder / "cl_bench" / "__init__.py").is_file()
