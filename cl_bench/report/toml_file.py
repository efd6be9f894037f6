"""TOML files whose mistakes are told with file, line and field, those of meaning like those of form."""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from cl_bench.config import Strict, unknown
from cl_bench.errors import InputError
from cl_bench.text import user_text

Place = tuple[str | int, ...]
"""The keys and the places in arrays that lead to a value, such as ("table", 0, "rows", 2, "select")."""
MOST_SHOWN = 60  # characters of a value in a message


class Placed(Strict):
    """A part of a file, which knows where it stands."""

    at: str = Field("", exclude=True, repr=False)


@dataclass(frozen=True)
class TomlFile:
    """The values of a file, and the line (from 1) of every key and of every item of an array."""

    path: Path
    values: dict[str, Any]
    lines: Mapping[Place, int]

    def where(self, place: Place) -> str:
        """Such as "report.toml, line 12, table 'main', row 3, select".

        What is not in the file stands where it would have to be.
        """
        known = next((place[:end] for end in range(len(place), 0, -1) if place[:end] in self.lines), ())
        words = [str(self.path), f"line {self.lines.get(known, 1)}"]
        for end, (key, after) in enumerate(zip(place, (*place, None)[1:], strict=True), 1):
            if isinstance(after, int) and isinstance(key, str):
                words.append(f"{str(key).removesuffix('s')} {self._name(place[: end + 1])}")
            elif isinstance(key, str):
                words.append(key)
        return ", ".join(words)

    def _name(self, place: Place) -> str:
        """What an item of an array calls itself, or its number."""
        found = self.values
        for key in place:
            found = found[key]
        known = [found.get(key) for key in ("name", "label")] if isinstance(found, dict) else []
        names = [name for name in known if isinstance(name, str)]
        return repr(names[0]) if names else str(place[-1] + 1)

    def error(self, place: Place, reason: str) -> InputError:
        """What is wrong with the value at this place."""
        return InputError(f"{self.where(place)}: {reason}")

    def tables(self, values: Mapping, key: str, above: Place = ()) -> list[tuple[Place, dict]]:
        """Place and values of every table of an array of tables, none where the key is missing.

        Raises InputError for anything else.
        """
        found, place = values.get(key, []), (*above, key)
        if not isinstance(found, list) or not all(isinstance(part, dict) for part in found):
            header = ".".join(str(part) for part in place if isinstance(part, str))
            raise self.error(place, f"expected an array of tables, each under [[{header}]]")
        return [((*place, number), part) for number, part in enumerate(found)]

    def build(self, model: type[Strict], values: Mapping, place: Place) -> Strict:
        """`model` of these values, which stand at this place.

        Raises InputError naming the first key or value that cannot be used.
        """
        known = set(model.model_fields) - {"at"}
        for key in values:
            if key not in known:
                raise unknown("key", key, known, self.where((*place, key)))
        own = {"at": self.where(place)} if issubclass(model, Placed) else {}
        try:
            return model.model_validate({**values, **own})
        except ValidationError as error:
            first = error.errors()[0]
            loc = (*place, first["loc"][0])
            if first["type"] == "missing":
                raise self.error(loc, "it is missing") from None
            shown = repr(first["input"])
            shown = shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}..."
            raise self.error(loc, f"{shown} is not usable: {first['msg']}") from None


def read(path: Path, what: str) -> TomlFile:
    """The file; messages call it `what`.

    Raises InputError with the line where it is no TOML, or the reason why it cannot be read.
    """
    try:
        data = user_text.read_bytes(path, f"the {what} ")
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: the {what} is not in UTF-8; save it as UTF-8") from error
    try:
        return TomlFile(path, tomllib.loads(text), _Scan(text).lines)
    except RecursionError as error:
        raise InputError(f"cannot read the {what} {path}: it is nested too deeply") from error
    except ValueError as error:
        reason, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)
        number = line[1] if line else text.count("\n") + 1
        raise InputError(f"{path}, line {number}: the {what} is not TOML: {reason}") from error


TOKENS = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}'  # strings of several lines
    r'|"(?:\\.|[^"\\])*"|\'[^\']*\''  # strings of one
    r'|\#[^\n]*|\n|[\[\]{}=,.]|[^\s\[\]{}=,.#"\']+',
    re.DOTALL,
)


class _Scan:
    """Where keys stand in a text that is known to be TOML, whose standard reader keeps no lines."""

    def __init__(self, text: str):
        self.lines: dict[Place, int] = {}
        self._tokens = [
            (match[0], match.start()) for match in TOKENS.finditer(text) if not match[0].startswith("#")
        ]
        self._starts, self._next = [0, *(match.end() for match in re.finditer("\n", text))], 0
        self._text, self._counts = text, {}
        self._document()

    def _line(self) -> int:
        return bisect_right(self._starts, self._tokens[self._next][1])

    def _peek(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1][0]

    def _note(self, place: Place, line: int) -> None:
        for end in range(1, len(place) + 1):
            self.lines.setdefault(place[:end], line)

    def _document(self) -> None:
        above: Place = ()
        while self._peek():
            if self._peek() == "\n":
                self._take()
            elif self._peek() == "[":
                above = self._header()
            else:
                self._pair(above)

    def _header(self) -> Place:
        line, start = self._line(), self._tokens[self._next][1]
        repeated = self._text.startswith("[[", start)
        for _ in range(1 + repeated):
            self._take()
        *outer, last = self._keys("]")
        if repeated:
            self._take()
        place: Place = ()
        for key in outer:
            place = (*place, key)
            if place in self._counts:  # the last table of an array of tables
                place = (*place, self._counts[place])
        place = (*place, last)
        if repeated:
            self._counts[place] = self._counts.get(place, -1) + 1
            place = (*place, self._counts[place])
        self._note(place, line)
        return place

    def _keys(self, end: str) -> list[str]:
        """The parts of a dotted key, and the token after it."""
        found = []
        while (token := self._take()) != end:
            if token != ".":
                found.append(tomllib.loads(f"x = {token}")["x"] if token[0] in "\"'" else token)
        return found

    def _pair(self, above: Place) -> None:
        line = self._line()
        place = (*above, *self._keys("="))
        self._note(place, line)
        self._value(place)

    def _value(self, place: Place) -> None:
        opening = self._take()
        if opening == "[":
            for number in self._items("]"):
                self._note((*place, number), self._line())
                self._value((*place, number))
        elif opening == "{":
            for _ in self._items("}"):
                self._pair(place)
        else:  # numbers and times are several tokens
            while self._peek() and self._peek() not in ("\n", ",", "]", "}"):
                self._take()

    def _items(self, end: str) -> Iterator[int]:
        """Counts what stands between commas, up to the end of an array or a table in one line."""
        number = 0
        while True:
            while self._peek() in ("\n", ","):
                self._take()
            if self._peek() == end:
                self._take()
                return
            yield number
            number += 1
