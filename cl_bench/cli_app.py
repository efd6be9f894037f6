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


def show(report) -> None:
    """Print a report's tables (as Markdown where nobody is looking), what is missing, and where everything was written."""
    if sys.stdout.isatty():
        from rich.console import Console

        from cl_bench.report import terminal

        for table in report.tables:
            terminal.show(table, Console())
    else:
        typer.echo(report.text)
    for warning in report.warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo("written: " + ", ".join(map(str, report.paths)))


def exit_with(message: str, code: int) -> None:
    """Print one line of error and leave with the code."""
    typer.echo(f"error: {message}", err=True)
    sys.exit(code)
