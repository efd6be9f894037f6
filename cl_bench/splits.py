"""How classes are cut into tasks, as it is written: "10", "B50-Inc10", or the sizes "50-10-20-20".

Behind any of them "-online" says that every training image is shown once.
"""

import re
from collections.abc import Sequence

from cl_bench.config import whole_number
from cl_bench.errors import InputError

BASE = re.compile(r"b([0-9]{1,6})-inc([0-9]{1,6})", re.IGNORECASE)  # a first task of its own size, and steps
SIZES = re.compile(r"[0-9]{1,6}(?:-[0-9]{1,6})+")
ONLINE = "-online"


def is_split(text: str) -> bool:
    """Whether it says how classes are cut: a number of tasks from 1, a first task and steps, or sizes."""
    text = offline(text)
    return bool(whole_number(text) or BASE.fullmatch(text) or SIZES.fullmatch(text))


def is_online(split: str) -> bool:
    """Whether every training image is shown once."""
    return split.lower().endswith(ONLINE)


def offline(split: str) -> str:
    """The split of classes alone."""
    return split[: -len(ONLINE)] if is_online(split) else split


def online(split: str) -> str:
    """The same with every training image shown once."""
    return offline(split) + ONLINE


def listed(text: str) -> list[str]:
    """ "10,B50-Inc10" -> these two, each once. Raises InputError."""
    parts = [part.strip() for part in str(text).split(",")]
    for part in parts:
        if not is_split(part) and whole_number(offline(part)) is None:
            expected = "numbers of tasks, such as 10 or 10,20, B50-Inc10, or sizes, such as 50-10-40"
            raise InputError(f"--splits {text!r}: expected {expected}")
    return list(dict.fromkeys(parts))


def sizes(split: str, classes: int) -> list[int]:
    """The number of classes of each task. Raises InputError where they are not those that there are."""
    split = offline(split)
    if found := BASE.fullmatch(split):
        base, step = map(int, found.groups())
        rest = classes - base
        if step < 1 or rest < 0 or rest % step:
            raise InputError(
                f"--splits {split} does not fit {classes} classes: {max(0, rest)} behind the first task "
                f"are no multiple of {step}; choose another first task or step"
            )
        return [base] * (base > 0) + [step] * (rest // step)
    if SIZES.fullmatch(split):
        written = [int(part) for part in split.split("-")]
        if 0 in written or sum(written) != classes:
            wrong = f"--splits {split} has {sum(written)} classes, or a task without any"
            raise InputError(f"{wrong}; expected sizes whose sum is {classes}")
        return written
    tasks = int(split)
    if tasks < 1 or classes % tasks:
        divisors = ", ".join(str(n) for n in range(1, classes + 1) if classes % n == 0)
        raise InputError(f"--splits {tasks} does not divide the {classes} classes; choose one of {divisors}")
    return [classes // tasks] * tasks


def name(sizes: Sequence[int]) -> str:
    """The shortest way to write these sizes, which is that of benchmarks' names."""
    first, *later = sizes
    if set(later) <= {first}:
        return str(len(sizes))
    return f"B{first}-Inc{later[0]}" if len(set(later)) == 1 else "-".join(map(str, sizes))


def of_options(base: int | None, increment: int | None, tasks: str | None) -> str | None:
    """--base and --increment, or --tasks, as a split; None where none is given. Raises InputError."""
    if base is None and increment is None and tasks is None:
        return None
    if tasks is not None and (base is not None or increment is not None):
        raise InputError("give --tasks, or --base and --increment, not both")
    if tasks is None:
        if increment is None:
            raise InputError("--base needs --increment, the classes of every later task")
        return f"B{base or 0}-Inc{increment}"
    parts = [part.strip() for part in tasks.split(",")]
    if not all(map(whole_number, parts)):
        raise InputError(f"--tasks {tasks!r}: expected the classes of each task, such as 50,10,40")
    if len(parts) < 2:
        raise InputError(f"--tasks {tasks!r} is one task; give --splits 1")
    return "-".join(parts)
