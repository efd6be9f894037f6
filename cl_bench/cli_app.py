"""The command-line program that the commands register with."""

import sys
from contextlib import suppress
from pathlib import Path

import typer

from cl_bench import output
from cl_bench.escape import one_line

app = typer.Typer(
    name="cl-bench",
    help=__import__("cl_bench").__doc__,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def planned(request, devices: str, results: Path):
    """The plan of a request, in the precision of these devices where it names none. Says on standard error that this is bf16, and which of the runs
    are begun in the other one."""
    from cl_bench import environment, places
    from cl_bench.plan import in_precision, make_plan
    from cl_bench.store import Store

    precision = environment.usual_precision(places.devices(devices))
    plan = make_plan(request, precision)
    if "precision" in request.set:
        return plan
    if precision == "bf16":
        output.say("precision: bf16 in the frozen network, for the device's matrix units (--set precision=fp32 for full precision)", err=True)
    other = "fp32" if precision == "bf16" else "bf16"
    store = Store(results)
    begun = sum(store.holds(in_precision(spec, other)) and not store.holds(spec) for spec in plan.specs)
    if begun:
        counted = f"{begun} of these runs {'is' if begun == 1 else 'are'} there in {other}"
        output.say(f"warning: {counted}, which is another run than in {precision}; --set precision={other} goes on with them", err=True)
    return plan


def remark(plan) -> None:
    """Say on standard error what the data of a plan is, and what deserves a look."""
    for line in [*plan.remarks, *(f"warning: {warning}" for warning in plan.warnings)]:
        output.say(line, err=True)


def show(report) -> None:
    """Print a report's tables (as Markdown where nobody is looking), what is missing, and where everything was written."""
    if sys.stdout.isatty():
        from rich.console import Console

        from cl_bench.report import terminal

        for table in report.tables:
            terminal.show(table, Console())
    else:
        output.say(report.text)
    for warning in report.warnings:
        output.say(f"warning: {warning}", err=True)
    output.say("written: " + ", ".join(map(str, report.paths)))


def exit_with(message: str, code: int) -> None:
    """Print one line of error and leave with the code."""
    with suppress(OSError):  # nobody listens
        output.say(f"error: {one_line(message)}", err=True)
    sys.exit(code)
