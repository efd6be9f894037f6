"""Standard output and error that show every text as far as they can."""

import codecs
import sys
from collections.abc import Iterable
from contextlib import suppress

import typer

from cl_bench.escape import visible


def prepare() -> None:
    """What an encoding lacks is shown as an escape such as \\xb2, and never stops a command. A file or pipe in ASCII, which is what a
    locale without an encoding says, gets UTF-8, as every file that is written."""
    for stream in (sys.stdout, sys.stderr):
        if not hasattr(stream, "reconfigure"):  # closed, or replaced by whoever calls
            continue
        with suppress(ValueError, OSError):
            plain = codecs.lookup(stream.encoding).name == "ascii" and not stream.isatty()
            stream.reconfigure(encoding="utf-8" if plain else None, errors="backslashreplace")


def say(text: str, err: bool = False) -> None:
    """Print text, on standard error if so asked, in which no name moves the cursor or turns the writing."""
    typer.echo(visible(text), err=err)


def say_lines(lines: Iterable[str]) -> None:
    """Print each in one line, whatever names stand in it."""
    typer.echo("\n".join(visible(line, kept="\t") for line in lines))
