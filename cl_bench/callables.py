"""Packages that can be called: `cl_bench.run(...)`, though `cl_bench.run` is the package of a run."""

import sys
from importlib import import_module
from types import ModuleType


def make_callable(package: str, target: str) -> None:
    """Let calling a package call `target`, "package.module:function", which is imported then."""
    module, _, function = target.partition(":")

    class Callable(ModuleType):
        def __call__(self, *arguments, **options):
            return getattr(import_module(module), function)(*arguments, **options)

    sys.modules[package].__class__ = Callable
