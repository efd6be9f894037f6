"""Where the command line starts: the commands register, in the order of the help."""

from cl_bench.cli import run  # noqa: F401, I001
from cl_bench.cli import bench, exchange, process, results  # noqa: F401
from cl_bench.cli.app import app, main

__all__ = ["app", "main"]
