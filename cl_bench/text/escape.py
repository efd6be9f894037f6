"""Text that others chose (names, titles, messages) made safe for a terminal, Markdown, CSV or YAML comments.

LaTeX has `cl_bench.text.latex`, and HTML the templates' own escaping after `visible`.
"""

import re
import unicodedata

# what turns the direction of the text after it, or ends a line for some programs and not for others
UNSEEN = set("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
FORMULA = "=+-@＝＋－＠"  # begin a formula in spreadsheets


def visible(text: str, kept: str = "\n\t") -> str:
    """The text with what is not seen as escapes such as \\x1b, but for the characters `kept`.

    Not seen are control characters, halves of characters and marks of direction.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one in kept else _visible(one) for one in text)


def _visible(character: str) -> str:
    hidden = character in UNSEEN or unicodedata.category(character) in ("Cc", "Cs")
    return character.encode("unicode_escape").decode() if hidden else character


def one_line(text: str) -> str:
    """As `visible`, with every run of white space one space, and none at the ends.

    Spaces inside at which no line may break stay.
    """
    return visible(re.sub(r"[^\S\u00a0\u202f]+", " ", text).strip(" \u00a0\u202f"))


def markdown(text: str, bracketed: bool = False, begins_line: bool = False) -> str:
    """One line in which Markdown finds neither markup nor HTML, nor the end of a table's cell.

    It is to stand between brackets if it is `bracketed`, at the beginning of a line if it `begins_line`.
    """
    text = re.sub(r"([\\`*~$|])", r"\\\1", one_line(text))
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)
    text = re.sub(r"([\[\]])" if bracketed else r"(\])(?=[(\[])", r"\\\1", text)  # else a link
    if begins_line:  # else a heading, a list, a quotation, a box to tick, the address of a link
        text = re.sub(r"^([#>+\-=\[])", r"\\\1", re.sub(r"^(\d+)(?=[.)](?:\s|$))", r"\1\\", text))
    return text.replace("&", "&amp;").replace("<", "&lt;") if re.search(r"[<&]", text) else text


def csv_field(value):
    """The value; text that a spreadsheet would take for a formula has an apostrophe before it."""
    if not isinstance(value, str):
        return value
    value = visible(value)
    return f"'{value}" if value[:1] in ("\t", "\n") or value.lstrip()[:1] in tuple(FORMULA) else value
