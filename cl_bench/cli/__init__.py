"""The command line: one module for each group of commands."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, see `cl_bench.cli.run.main`."""
    from cl_bench.cli.app import main as run

    run(arguments)
