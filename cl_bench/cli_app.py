"""The command-line program that the commands register with."""

import sys

import typer

app = typer.Typer(
    name="cl-bench",
    help=__import__("cl_bench").__doc__,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def write_report(records, out, accuracy, forgetting) -> None:
    """Print the tables and say where they and the plots are."""
    from cl_bench.report.select import Conventions
    from cl_bench.report.write import write

    text, paths = write(records, out, Conventions(accuracy, forgetting))
    typer.echo(text)
    typer.echo("written: " + ", ".join(map(str, paths)))


def exit_with(message: str, code: int) -> None:
    """Print one line of error and leave with the code."""
    typer.echo(f"error: {message}", err=True)
    sys.exit(code)
