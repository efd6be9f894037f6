"""The order that people expect: numbers in texts by their size."""

import re

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


def natural(text: str) -> tuple:
    """A key to sort by, under which glyphs/20 stands before glyphs/100 and eta=0.9 before eta=0.97."""
    parts = _NUMBER.split(text.lower())
    return tuple((0, float(part), "") if place % 2 else (1, 0.0, part) for place, part in enumerate(parts))
