"""Class orders: the published code's shuffle, the data set's own, or a file, and their cut into tasks."""

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cl_bench import splits
from cl_bench.config import whole_number
from cl_bench.errors import InputError
from cl_bench.text import user_text

SHUFFLED, PILOT, NATURAL, POSITIONS = "nsp2", "pilot", "natural", "positions"


def class_order(classes: int, seed: int) -> list[int]:
    """The published code's class order: PCG64(seed) shuffles 0..classes-1 as int64."""
    order = np.arange(classes, dtype=np.int64)
    np.random.Generator(np.random.PCG64(seed)).shuffle(order)
    return [int(c) for c in order]


def pilot_order(classes: int, seed: int) -> list[int]:
    """The class order of PyCIL and PILOT, and of code that came from them: numpy's older generator."""
    return np.random.RandomState(seed).permutation(classes).tolist()


def cut(order: Sequence[int], split: str) -> tuple[tuple[int, ...], ...]:
    """The order in tasks, see `cl_bench.splits`. Raises InputError where they do not take all classes."""
    ends = np.cumsum([0, *splits.sizes(split, len(order))]).tolist()
    return tuple(tuple(order[start:end]) for start, end in itertools.pairwise(ends))


def resolve(text: str | None, run_seed: int, class_names: Sequence[str]) -> tuple[str, int | None, list[int]]:
    """(kind, seed, order) of `--order`; None is the run's own seed.

    That is a seed, "nsp2:SEED", "pilot:SEED" or "natural"; a file with the classes in the order in which they
    are learned; or "positions:FILE", where line c has the place of class c in that order. The kind is "nsp2",
    "pilot", "natural" or "file:<digest of the order>"; the first two have a seed. Raises InputError.
    """
    written = text or f"{SHUFFLED}:{run_seed}"
    kind, _, number = written.partition(":")
    if whole_number(kind) is not None and not number:
        kind, number = SHUFFLED, kind
    seed = whole_number(number)
    if kind == SHUFFLED and seed is not None:
        return SHUFFLED, seed, class_order(len(class_names), seed)
    if kind == PILOT and seed is not None and seed < 2**32:
        return PILOT, seed, pilot_order(len(class_names), seed)
    if written == NATURAL:
        return NATURAL, None, list(range(len(class_names)))
    if kind == POSITIONS:
        places = _from_file(Path(number), [str(place) for place in range(len(class_names))])
        order = np.argsort(places).tolist()
    else:
        order = _from_file(Path(written), class_names)
    return f"file:{hashlib.sha256(repr(order).encode()).hexdigest()[:8]}", None, order


def _from_file(path: Path, class_names: Sequence[str]) -> list[int]:
    """One class a line, as its name or its number from 0; every class exactly once."""
    try:
        lines = [line.strip() for line in user_text.read(path).splitlines() if line.strip()]
    except InputError as error:
        expected = "a seed, nsp2:SEED, pilot:SEED, natural, or a file with one class a line"
        raise InputError(f"--order: {error}; expected {expected}") from error
    numbers = {user_text.composed(name): c for c, name in enumerate(class_names)}
    order = []
    for number, line in enumerate(lines, 1):
        c = numbers.get(user_text.composed(line), whole_number(line))
        if c is None or c >= len(class_names) or c in order:
            problem = "stands twice" if c in order else "is not a class"
            wrong = f"--order {path}, line {number}: {user_text.short(line)} {problem}"
            raise InputError(f"{wrong}; expected each of the {len(class_names)} classes once")
        order.append(c)
    if len(order) < len(class_names):
        missing = next(name for c, name in enumerate(class_names) if c not in order)
        named = f"{len(order)} of {len(class_names)} classes"
        raise InputError(f"--order {path} names {named}; {missing!r} is missing")
    return order
