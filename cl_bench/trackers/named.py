"""Trackers by name: those of this package, and those that other packages register."""

import importlib.util
from importlib.metadata import EntryPoint, entry_points

from cl_bench.config import unknown
from cl_bench.errors import InputError
from cl_bench.notation import listed
from cl_bench.trackers.contract import Tracker

GROUP = "cl_bench.trackers"
NONE = "none"  # the word for no tracker, where an experiment file names some
# as in pyproject.toml; here too, so that a checkout that is not installed has them
BUILT_IN = {
    "tensorboard": "cl_bench.trackers.tensorboard:TensorBoard",
    "wandb": "cl_bench.trackers.wandb:WeightsAndBiases",
    "mlflow": "cl_bench.trackers.mlflow:MLflow",
}


def known() -> dict[str, EntryPoint]:
    """All trackers by name; nothing is imported."""
    found = {name: EntryPoint(name, place, GROUP) for name, place in BUILT_IN.items()}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, entry)
    return found


def find(name: str) -> type[Tracker]:
    """The tracker of this name.

    Raises InputError with the nearest name, and for one that cannot be imported or is no tracker.
    """
    entries = known()
    if name not in entries:
        raise unknown("tracker", name, [*entries, NONE])
    try:
        found = entries[name].load()
    except (Exception, SystemExit) as error:  # another package may raise anything
        why = f"{type(error).__name__}: {error}"
        raise InputError(f"the tracker {name} ({entries[name].value}) cannot be imported: {why}") from error
    if not (isinstance(found, type) and issubclass(found, Tracker)):
        expected = f"a subclass of {Tracker.__module__}.{Tracker.__name__}"
        raise InputError(f"the tracker {name} ({entries[name].value}) is {found!r}; expected {expected}")
    return found


def chosen(text: str | None) -> tuple[str, ...]:
    """The names after --track, each once; none for None and "none"."""
    names = tuple(dict.fromkeys(listed(text or "")))
    return () if names == (NONE,) else names


def require(text: str | None) -> tuple[str, ...]:
    """As `chosen`; raises InputError for a name that is none, and for a tracker that is not installed."""
    names = chosen(text)
    for name in names:
        kind = find(name)
        missing = [package for package in kind.NEEDS if not is_installed(package)]
        if missing:
            how = f"pip install '{kind.INSTALL}'" if kind.INSTALL else f"install {', '.join(missing)}"
            raise InputError(f"--track {name} needs {', '.join(missing)}, which is not installed: {how}")
    return names


def is_installed(package: str) -> bool:
    """Whether it can be imported; a folder of that name, as some trackers leave, is no package."""
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin is not None
