"""What one process asks of another: functions by name, so that the one that asks need not import them."""

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from cl_bench.plugins import search_path


@contextmanager
def quick_imports() -> Iterator[None]:
    """Look for no garbage in the body, where imports leave none: a quarter of their time goes into it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def here(function: str, *arguments) -> Any:
    """What a function, such as "cl_bench.devices:devices", returns in this process."""
    module, _, name = function.partition(":")
    with quick_imports():
        found = getattr(importlib.import_module(module), name)
    return found(*arguments)


def serve(channel: Connection, terminal: int) -> tuple[list[str], str] | None:
    """Answer the calls of another process until it assigns a run: the arguments, and the log.

    None when nobody is left to tell. `terminal` is where calls say what they say on standard error.
    """
    while True:
        try:
            kind, *message = channel.recv()
        except EOFError:
            return None
        if kind == "run":
            return tuple(message)
        function, arguments, folders = message
        with _said_on(terminal):
            answer = _answer(function, arguments, folders)
        channel.send_bytes(answer)


def _answer(function: str, arguments: Sequence, folders: Sequence[Path]) -> bytes:
    """What the call returned or raised, and which it was, ready to be sent.

    Raises SystemExit where the other process could not read it: that one calls the function itself.
    """
    try:
        search_path.use(folders)
        answer, raised = here(function, *arguments), False
    except Exception as error:
        error.add_note(f"in the process that plans:\n{traceback.format_exc()}")
        answer, raised = error, True
    try:
        content = bytes(ForkingPickler.dumps((answer, raised)))
        ForkingPickler.loads(content)
    except Exception as error:
        raise SystemExit(f"cannot send what {function} gave: {error}") from error
    return content


@contextmanager
def _said_on(terminal: int) -> Iterator[None]:
    """What the body says on standard error is said on the terminal."""
    own = os.dup(2)
    os.dup2(terminal, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(own, 2)
        os.close(own)
