"""The line of every key of a TOML file, however it is written."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cl_bench.config import Strict
from cl_bench.errors import InputError
from cl_bench.report import toml_file

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(
    path
    for folder in ("reports", "results/published", "methods/presets", "datasets/glyphs_data")
    for path in (ROOT / folder).glob("*.toml")
)

TEXT = '''# a comment = 1
title = "a # b = [c]"  # not a comment
"quoted key" = 'x = 1'
long = """
[[not]]
a = "1" \\""" still
"""
literal = \'\'\'
'' = 2
\'\'\'
a.b.c = 1979-05-27 07:32:00

[[table]]
name = "one"
rows = [
  "seq", # [
  { select = "nsp2[eta=1,b1=on]", where = { eta = 0.9 } },

  [1.5, [2, 3]],
]
[table.extra]
x = 1
[[table.row]]
y = 1
[[table]]
[[table.row]]
[[ table . "row" ]]
y = { z = [], w = [[], [1]] }
'''
LINES = {
    ("title",): 2, ("quoted key",): 3, ("long",): 4, ("literal",): 8, ("a", "b", "c"): 11, ("table", 0): 13,
    ("table", 0, "rows", 0): 16, ("table", 0, "rows", 1, "select"): 17,
    ("table", 0, "rows", 1, "where", "eta"): 17, ("table", 0, "rows", 2, 1, 1): 19,
    ("table", 0, "extra", "x"): 22, ("table", 0, "row", 0, "y"): 24, ("table", 1): 25,
    ("table", 1, "row", 0): 26, ("table", 1, "row", 1, "y", "w", 1): 28,
}  # fmt: skip


def places(values, above=()):
    """Every place in a file's values."""
    for key, value in values.items() if isinstance(values, dict) else enumerate(values):
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from places(value, (*above, key))


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return toml_file.read(path, "test")


def test_every_key_and_item_is_found_in_its_line(tmp_path):
    found = written(tmp_path / "x.toml", TEXT)
    assert {place: found.lines[place] for place in LINES} == LINES
    assert set(found.lines) == set(places(found.values))
    again = written(tmp_path / "y.toml", "\ufeff" + TEXT.replace("\n", "\r\n"))
    assert again.lines == found.lines and again.values == found.values


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_files_of_this_project_are_found_whole_and_every_key_stands_in_its_line(path):
    found, lines = toml_file.read(path, "test"), path.read_text(encoding="utf-8").splitlines()
    assert set(found.lines) == set(places(found.values))
    for place, line in found.lines.items():
        key = next(part for part in reversed(place) if isinstance(part, str))
        if isinstance(place[-1], str):
            assert key in lines[line - 1]


word = st.text("abc_-", min_size=1, max_size=3)
scalar = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.text(max_size=8)
)
value = st.recursive(
    scalar,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(word, inner, max_size=3)),
    max_leaves=6,
)


def toml_of(found):
    if isinstance(found, dict):
        return "{" + ", ".join(f"{key} = {toml_of(item)}" for key, item in found.items()) + "}"
    if isinstance(found, list):
        return "[\n" + ",  # ]\n".join(map(toml_of, found)) + "\n]"
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, str):
        return (
            '"'
            + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in found)
            + '"'
        )
    return repr(found)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.dictionaries(word, value, max_size=3), st.lists(st.dictionaries(word, value, max_size=3), max_size=2)
)
def test_any_file_is_found_whole(tmp_path_factory, top, tables):
    text = "".join(f"{key} = {toml_of(item)}\n" for key, item in top.items())
    text += "".join(
        "[[the_tables]]\n" + "".join(f"{key} = {toml_of(item)}\n" for key, item in table.items())
        for table in tables
    )
    found = written(tmp_path_factory.getbasetemp() / "any.toml", text)
    assert set(found.lines) == set(places(tomllib.loads(text)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\nb = \n", "x.toml, line 2: the test is not TOML: "),
        ("a = 1\n\na = 2\n", "x.toml, line 3: the test is not TOML: Cannot overwrite a value"),
        ('a = "', "x.toml, line 1: the test is not TOML"),
        ("a = " + "[" * 100_000, "x.toml: it is nested too deeply"),
    ],
)
def test_what_is_no_toml_is_told_with_its_line(tmp_path, text, said):
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        written(tmp_path / "x.toml", text)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    (tmp_path / "x.toml").write_bytes("a = 1\nb = 'é'".encode("latin-1"))
    with pytest.raises(InputError, match=r"x.toml, line 2: the test is not in UTF-8"):
        toml_file.read(tmp_path / "x.toml", "test")
    with pytest.raises(InputError, match="cannot read the test .*none.toml: No such file"):
        toml_file.read(tmp_path / "none.toml", "test")


class Part(Strict):
    title: str
    count: int = 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("count = 1", "line 2, part 1, title: it is missing"),
        ("title = 'x'\ncuont = 1", "line 4, part 1, cuont: unknown key 'cuont'; did you mean 'count'?"),
        ("title = 'x'\n\ncount = '1'", "line 5, part 1, count: '1' is not usable: "),
        ("name = 'n'\ntitle = 2", "line 3, part 'n', name: unknown key"),
    ],
)
def test_a_value_that_cannot_be_used_is_told_with_file_line_and_field(tmp_path, text, said):
    file = written(tmp_path / "x.toml", f"\n[[parts]]\n{text}\n")
    [(place, values)] = file.tables(file.values, "parts")
    with pytest.raises(InputError, match=re.escape(f"{tmp_path / 'x.toml'}, {said}")):
        file.build(Part, values, place)


def test_a_table_where_an_array_of_tables_is_expected_is_told(tmp_path):
    file = written(tmp_path / "x.toml", "\n[part]\ntitle = 'x'\n")
    with pytest.raises(
        InputError, match=r"x.toml, line 2, part: expected an array of tables, each under \[\[part\]\]"
    ):
        file.tables(file.values, "part")
