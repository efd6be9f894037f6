"""The commands for Python: runs as pandas DataFrames, planning and running from a script or notebook."""

from cl_bench.api.runs import Runs, load

__all__ = ["Runs", "load"]
