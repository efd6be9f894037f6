"""Standard output and error that show every text as far as they can."""

import codecs
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress

import typer

from cl_bench.text.escape import visible


def prepare() -> None:
    """What an encoding lacks is shown as an escape such as \\xb2, and never stops a command.

    A file or pipe in ASCII, which is what a locale without an encoding says, gets UTF-8, as every file that
    is written.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever calls
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end
        stream = getattr(sys, name)
        if not hasattr(stream, "reconfigure"):  # replaced by whoever calls
            continue
        with suppress(ValueError, OSError):
            plain = codecs.lookup(stream.encoding).name == "ascii" and not stream.isatty()
            stream.reconfigure(encoding="utf-8" if plain else None, errors="backslashreplace")


class Unwritable(Exception):
    """Standard output cannot be written, and why."""


def say(text: str, err: bool = False) -> None:
    """Print text, on standard error if so asked, in which no name moves the cursor or turns the writing.

    Raises Unwritable; nobody needs to listen to standard error.
    """
    _print(visible(text), err)


def say_lines(lines: Iterable[str]) -> None:
    """Print each in one line, whatever names stand in it. Raises Unwritable."""
    _print("\n".join(visible(line, kept="\t") for line in lines))


def say_json(values) -> None:
    """Print JSON, in which nothing is escaped but what JSON itself escapes. Raises Unwritable."""
    _print(json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False))


def _print(text: str, err: bool = False) -> None:
    try:
        typer.echo(text, err=err)
    except BrokenPipeError:
        raise
    except OSError as error:
        if not err:
            raise Unwritable(error.strerror or str(error)) from error


def finish(code: int | str) -> int | str:
    """The exit code after all output is written.

    What cannot be written is told in one line, but for a reader that has gone.
    """
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        _give_up(sys.stdout)
        if not code and not isinstance(error, BrokenPipeError):
            say(f"error: cannot write the output: {getattr(error, 'strerror', None) or error}", err=True)
        code = code or 1
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        _give_up(sys.stderr)
    return code


def _give_up(stream) -> None:
    """Let what is left of a stream vanish: the interpreter flushes it once more."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
