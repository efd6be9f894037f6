"""`python -m cl_bench` is the command line."""

from cl_bench.cli import main

main()
