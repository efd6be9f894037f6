"""What stands behind the colon of a data set's name: a path or name, and options behind a question mark."""

import os
import re
from collections.abc import Mapping

from cl_bench.config import unknown
from cl_bench.errors import InputError


def path_and_options(
    argument: str, source: str, known: Mapping[str, str | None]
) -> tuple[str, dict[str, str]]:
    """ "PATH?nested&names=FILE" -> "PATH" and the options; a folder's name may hold a question mark too.

    `known` says of every option what its value is, such as "FILE"; None: it has none, and is "". Raises
    InputError.
    """
    path, text, options = argument, "", {}
    if "?" in argument and not os.path.isdir(os.path.expanduser(argument)):
        begun = re.search(rf"\?(?=({'|'.join(map(re.escape, known))})(=|&|$))", argument)
        place = begun.start() if begun else argument.rindex("?")
        path, text = argument[:place], argument[place + 1 :]
    for part in filter(None, text.split("&")):
        key, equals, value = part.partition("=")
        if key not in known:
            raise unknown(f"option of data set {source}", key, known)
        expected = known[key]
        if bool(value) != bool(expected) or bool(equals) != bool(expected):
            problem = f"{part!r} is not usable; expected {key}={expected}"
            raise InputError(
                f"{source}:{argument}: {problem if expected else f'write {key} without a value'}"
            )
        options[key] = value
    return path, options


def argument_of(path: str, options: Mapping[str, str]) -> str:
    """The argument that stands for a path and its options."""
    parts = [f"{key}={value}" if value else key for key, value in options.items()]
    return path + ("?" if parts else "") + "&".join(parts)
