"""Where the command line starts: registers the commands, and turns every failure into one line and an exit code."""

import sys

import typer

from cl_bench import output, plugin_folders
from cl_bench.cli import bench, exchange, last_resort, process, results, run  # noqa: F401 - register their commands
from cl_bench.cli.app import app, exit_with
from cl_bench.errors import InputError, RunFailed

STOPPED = 130  # what shells report for a command stopped with Ctrl-C; some versions of typer return it, others raise

UsageError = typer.BadParameter.__base__


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a run failed or nobody reads the output, 2 the input cannot be used, 70 a fault of this program, 130
    stopped by the user."""
    output.prepare()
    try:
        code = _carry_out(sys.argv[1:] if arguments is None else arguments)
    except SystemExit as leaving:
        code = leaving.code
    sys.exit(output.finish(code or 0))


def _carry_out(arguments: list[str]) -> int | None:
    """The exit code. Every failure is one line."""
    try:
        plugin_folders.use()
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
