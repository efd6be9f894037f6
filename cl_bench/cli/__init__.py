"""The command line: one module for each group of commands."""


def program():
    """The program with all its commands, in the order of the help."""
    from cl_bench.cli import run  # noqa: F401, I001 - its commands come first
    from cl_bench.cli import bench, exchange, process, results  # noqa: F401 - register theirs
    from cl_bench.cli.app import app

    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, see `cl_bench.cli.app.start`."""
    program()
    from cl_bench.cli.app import start

    start(arguments)
