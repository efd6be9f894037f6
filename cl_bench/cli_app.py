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


def planned(request, devices: str, scheduler: str | None = None):
    """The plan of a request for these devices; says on standard error which precision they stand for where none was asked for."""
    from cl_bench import environment, places
    from cl_bench.plan import make_plan

    precision = "fp32" if scheduler else environment.usual_precision(places.devices(devices))
    plan = make_plan(request, precision)
    if "precision" not in request.set and scheduler:
        typer.echo("precision: fp32, since the workers' devices are not known yet; choose with --set precision=bf16 or fp32", err=True)
    elif "precision" not in request.set and precision == "bf16":
        typer.echo("precision: bf16 in the frozen network, for the device's matrix units (--set precision=fp32 for full precision)", err=True)
    return plan


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
