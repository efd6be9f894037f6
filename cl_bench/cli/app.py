"""The command-line program that the commands register with."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from cl_bench import __version__
from cl_bench.cli import last_resort
from cl_bench.errors import InputError, RunFailed
from cl_bench.launch.calls import here
from cl_bench.plugins import search_path
from cl_bench.text import output
from cl_bench.text.escape import one_line

app = typer.Typer(
    name="cl-bench",
    help=__import__("cl_bench").__doc__,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        output.say(f"cl-bench {__version__}")
        raise typer.Exit


@app.callback()
def _before_every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="print it and leave")
    ] = False,
) -> None:
    """Options that stand before a command."""


def planned(request, devices: str, results: Path, call=here, sized: bool = False, counted: bool = False):
    """The plan of a request, in the precision of these devices where it names none; `call` carries it out.

    Says on standard error that this is bf16, which methods of a group do not fit, and which of the runs are
    there under another version or in the other precision.
    """
    plan = call("cl_bench.plan.plan:plan_for", request, devices, results, sized, counted)
    if "precision" not in request.set and plan.precision == "bf16":
        output.say(
            "precision: bf16 in the frozen network, for the device's matrix units "
            "(--set precision=fp32 for full precision)",
            err=True,
        )
    for line in plan.left_out:
        output.say(f"left out: {line}", err=True)
    warn(plan.hints)
    return plan


def remark(plan) -> None:
    """Say on standard error what the data of a plan is, and what deserves a look."""
    for line in plan.remarks:
        output.say(line, err=True)
    warn(plan.warnings)


FIRST = 10  # files that cannot be read are named before the rest is counted


def counted(count: int, noun: str) -> str:
    """Such as "1 run" or "2 runs"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def were(count: int) -> str:
    """The verb to so many things."""
    return "was" if count == 1 else "were"


def warn(lines: Iterable[str], most: int | None = None) -> None:
    """A warning on standard error for each line, or for at most so many and for how many more there are."""
    lines = list(lines)
    for line in lines[:most]:
        output.say(f"warning: {line}", err=True)
    if most is not None and len(lines) > most:
        output.say(f"warning: and {len(lines) - most} more like these", err=True)


def show_listing(listing, json: bool) -> None:
    """Print a `status.Listing`. Raises RunFailed where the state of a run could not be read."""
    output.say_json({"runs": listing.runs}) if json else output.say_lines(listing.lines)
    if listing.unreadable:
        raise RunFailed(f"{counted(listing.unreadable, 'run')} could not be read")


def require_readable(states) -> None:
    """Raises RunFailed where the state of a plan's run could not be read, which a line each says before."""
    unreadable = [state.reason for state in states.values() if state.name == "unreadable"]
    warn(unreadable, FIRST)
    if unreadable:
        them = "them" if len(unreadable) > 1 else "it"
        raise RunFailed(
            f"{counted(len(unreadable), 'run')} could not be read; `cl-bench run` would not start {them}"
        )


def show(report, strict: bool = True) -> None:
    """Print a report's tables (as Markdown where nobody is looking), what is missing, and where it all is.

    Raises RunFailed where its numbers lack what could not be read or believed, if `strict`.
    """
    if sys.stdout.isatty():
        from rich.console import Console

        from cl_bench.report import terminal

        for table in report.tables:
            terminal.show(table, Console())
    else:
        output.say(report.text)
    warn(report.warnings)
    warn((f"left out: {found.reason}" for found in report.left_out), FIRST)
    output.say_lines(f"written: {path}" for path in report.paths)
    if strict:
        require_all(report.left_out)


def require_all(left_out) -> None:
    """Raises RunFailed where numbers lack runs: a copy of a run that is there lacks nowhere."""
    lacking = [found for found in left_out if found.lacking]
    if lacking:
        them = "them" if len(lacking) > 1 else "it"
        raise RunFailed(
            f"{counted(len(lacking), 'file')} could not be read or believed, "
            f"and the numbers above lack {them}"
        )


def exit_with(message: str, code: int) -> None:
    """Print one line of error and leave with the code."""
    output.say(f"error: {one_line(message)}", err=True)
    sys.exit(code)


# what shells report for a command stopped with Ctrl-C; some versions of typer return it, others raise
STOPPED = 130

UsageError: Any = typer.BadParameter.__base__  # which typer itself does not name


def start(arguments: list[str] | None = None) -> None:
    """Run the command line and exit.

    The code is 0 when done, 1 when a run failed or nobody reads the output, 2 when the input cannot be used,
    70 for a fault of this program, 130 when the user stopped it.
    """
    output.prepare()
    code: int | str | None
    try:
        code = _carry_out(sys.argv[1:] if arguments is None else arguments)
    except SystemExit as leaving:
        code = leaving.code
    sys.exit(output.finish(code or 0))


def _carry_out(arguments: list[str]) -> int | None:
    """The exit code. Every failure is one line."""
    try:
        search_path.use()
        code = app(args=arguments or ["--help"], standalone_mode=False, prog_name="cl-bench")
    except UsageError as error:
        exit_with(error.format_message(), 2)
    except InputError as error:
        exit_with(str(error), 2)
    except RunFailed as error:
        exit_with(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        code = STOPPED
    except output.Unwritable as error:
        exit_with(f"cannot write the output: {error}", 1)
    except BrokenPipeError:  # such as `cl-bench ls backbones | head`
        return 1
    except Exception as error:  # the last resort: whatever it is, it is one line
        refused = last_resort.refused_path(error)
        exit_with(*((refused, 2) if refused else (last_resort.describe(error, arguments), last_resort.CODE)))
    if code == STOPPED:
        exit_with("stopped; finished tasks are kept, the same command continues", STOPPED)
    return code
