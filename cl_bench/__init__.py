"""cl-bench: one command compares continual-learning methods on frozen, pre-trained vision transformers."""

import os as _os
from importlib import import_module as _import_module
from pathlib import Path as _Path

__version__ = "0.1.0"

# In a checkout, `methods/` and `datasets/` lie beside this package; on this path they are cl_bench.methods
# and cl_bench.datasets, and never top-level import names (Hugging Face's `datasets` stays importable).
_checkout = _Path(__file__).resolve().parent.parent
if (_checkout / "methods").is_dir() and (_checkout / "pyproject.toml").is_file():
    __path__.append(str(_checkout))
OWN_FOLDERS = len(__path__)
# plugins of the user, for processes that a command has started, see `cl_bench.plugins.search_path`
__path__ += [folder for folder in _os.environ.get("CL_BENCH_PLUGINS", "").split(_os.pathsep) if folder]


def __getattr__(name: str):
    """`cl_bench.load`, `cl_bench.run` and `cl_bench.plan`, imported when they are asked for."""
    if name == "load":
        return _import_module("cl_bench.api").load
    if name in ("plan", "run"):
        return _import_module(f"cl_bench.{name}")
    raise AttributeError(f"module 'cl_bench' has no attribute {name!r}")
