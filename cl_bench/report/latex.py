"""Tables as LaTeX that pdflatex compiles, whatever characters names and titles hold; those that it cannot print are named."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from cl_bench.report.table import Cell, Table, heading
from cl_bench.text.escape import one_line

PACKAGES = ("[utf8]{inputenc}", "{amssymb}", "{booktabs}", "{adjustbox}")
MOST_NAMED = 8


def document(tables: Sequence[Table]) -> str:
    """A LaTeX document with one booktabs table each; the table environments can be pasted by themselves."""
    head = [
        r"\documentclass{article}",
        r"\usepackage[margin=2.5cm]{geometry}",
        *(f"\\usepackage{package}" for package in PACKAGES),
    ]
    return "\n".join([*head, r"\begin{document}", *map(environment, tables), r"\end{document}", ""])


def environment(table: Table) -> str:
    """The table environment; wider tables are shrunk to the line. Needs booktabs and adjustbox, and amssymb for check marks."""
    words = len(table.word_heads)
    numbers = sum(len(found) for _, found in table.groups) + table.counted
    body = []
    for line in table.lines:
        body += [r"\midrule"] if line.rule and body else []
        cells = [_cell(found) for found in line.cells]
        first, *rest = map(escape, table.words(line))
        parts = [_guarded(first), *rest, *cells, *table.count(line)]
        body.append(
            " & ".join(rf"{{\footnotesize {part}}}" if line.quiet and part else part for part in parts)
            + r" \\"
        )
    notes = rf"\parbox{{\linewidth}}{{\footnotesize\raggedright {escape(' '.join(table.notes))}}}"
    return "\n".join([
        r"\begin{table}[t]", r"\centering", r"\small", f"\\caption{{{escape(_caption(table))}}}", r"\begin{adjustbox}{max width=\linewidth}",
        r"\begin{tabular}{@{}" + "l" * words + "c" * numbers + r"@{}}", r"\toprule", *_head(table, words), r"\midrule", *body, r"\bottomrule",
        r"\end{tabular}", r"\end{adjustbox}", r"\par\smallskip", notes, r"\end{table}",
    ])  # fmt: skip


def _caption(table: Table) -> str:
    return re.sub(r"^Table \d+: ", "", table.title)  # LaTeX numbers tables itself


def _guarded(first: str) -> str:
    """The first cell of a line; after a line break a bracket or star would be read as its argument."""
    return f"{{}}{first}" if first.startswith(("[", "*")) else first


def _head(table: Table, words: int) -> list[str]:
    own = [*map(escape, table.word_heads)]
    metrics = [escape(heading(metric)) for _, found in table.groups for metric in found]
    own[0] = _guarded(own[0])
    last = " & ".join([*own, *metrics, *(["$n$"] if table.counted else [])]) + r" \\"
    if len(table.groups) == 1 and not table.groups[0][0]:
        return [last]
    spans, rules, start = [""] * words, [], words + 1
    for title, found in table.groups:
        spans.append(rf"\multicolumn{{{len(found)}}}{{c}}{{{escape(title)}}}")
        rules.append(rf"\cmidrule(lr){{{start}-{start + len(found) - 1}}}")
        start += len(found)
    return [" & ".join(spans) + r" \\", " ".join(rules), last]


def _cell(found: Cell) -> str:
    text = f"$-${escape(found.text[1:])}" if found.text.startswith("-") else escape(found.text)
    text = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}[found.rank] % text
    return text + (rf"\textsuperscript{{{found.marks}}}" if found.marks else "")


def warning(table: Table, file: str) -> list[str]:
    """A line that names the characters of a table that pdflatex cannot print, none where it prints them all."""
    texts = [_caption(table), *table.labels, *(title for title, _ in table.groups), *table.notes]
    texts += [word for line in table.lines for word in table.words(line)]
    lost = dict.fromkeys(
        character for text in texts for character, _, printed in _characters(text) if not printed
    )
    if not lost:
        return []
    named = [
        f"{character} ({' '.join(f'U+{ord(part):04X}' for part in character)})"
        for character in list(lost)[:MOST_NAMED]
    ]
    more = f" and {len(lost) - MOST_NAMED} more" if len(lost) > MOST_NAMED else ""
    return [
        f'{file}: pdflatex cannot print {", ".join(named)}{more}; in it stand the nearest ASCII letters, or "?": give other titles'
    ]


def escape(text: str) -> str:
    """One line of text as LaTeX; a character that pdflatex does not know becomes its nearest ASCII letters or "?"."""
    return "".join(found for _, found, _ in _characters(text))


def _characters(text: str) -> Iterator[tuple[str, str, bool]]:
    """(character with its accents, LaTeX, whether that shows the character)."""
    text = unicodedata.normalize("NFC", one_line(text))
    for match in CLUSTER.finditer(text):
        character = match[0]
        found = _standard(character)
        if found is None:
            found = "".join(SPECIAL.get(part, part) for part in _ascii(character))
            yield character, found or ("?" if _is_seen(character) else ""), not _is_seen(character)
        else:
            joins = text[match.end() : match.end() + 1]
            yield character, f"{found}{{}}" if character + joins in LIGATURES else found, True


def _standard(character: str) -> str | None:
    """What every LaTeX prints it by, None where there is no such thing."""
    if character in SPECIAL:
        return SPECIAL[character]
    if character.isascii():
        return character
    letter, *marks = unicodedata.normalize("NFD", character)
    if len(marks) == 1 and marks[0] in ACCENTS and letter.isascii() and letter.isalpha():
        accent = ACCENTS[marks[0]]
        return (
            rf"\{accent}{{\{letter}}}"
            if letter in "ij" and accent not in BELOW
            else rf"\{accent}{{{letter}}}"
        )
    if len(character) > 1:  # other accents, or several
        return None
    kind, *codes = unicodedata.decomposition(character).split() or [""]
    inner = (
        "".join(chr(int(code, 16)) for code in codes).replace("−", "-")
        if kind in ("<super>", "<sub>")
        else ""
    )
    if inner and inner.isascii() and inner.isprintable():
        inner = "".join(SPECIAL.get(part, part) for part in inner)
        return (
            rf"\textsuperscript{{{inner}}}"
            if kind == "<super>"
            else f"$_{inner}$"
            if len(inner) == 1
            else f"$_{{{inner}}}$"
        )
    return " " if unicodedata.category(character) == "Zs" else None


def _ascii(character: str) -> str:
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()


def _is_seen(character: str) -> bool:
    """Whether it shows by itself: joiners and choices of a variant do not."""
    return any(unicodedata.category(part) != "Cf" and not 0xFE00 <= ord(part) <= 0xFE0F for part in character)


CLUSTER = re.compile(
    "[^\u0300-\u036f][\u0300-\u036f]*|[\u0300-\u036f]+", re.DOTALL
)  # a character with the accents that follow it
LIGATURES = {"--", "''", "``", ",,", "?`", "!`"}  # two characters that a font makes one of
ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".", "\u0308": '"', "\u030a": "r",
    "\u030b": "H", "\u030c": "v", "\u0323": "d", "\u0327": "c", "\u0331": "b",
}  # fmt: skip
BELOW = "dcb"  # under an i, whose dot stays
GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta", "ι": "iota", "κ": "kappa",
    "λ": "lambda", "μ": "mu", "µ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "ς": "varsigma", "σ": "sigma", "τ": "tau", "υ": "upsilon",
    "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma",
    "Υ": "Upsilon", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
MATHS = {
    "±": "pm", "∓": "mp", "×": "times", "÷": "div", "·": "cdot", "∘": "circ", "¬": "neg", "≥": "geq", "≤": "leq", "≈": "approx",
    "≠": "neq", "≡": "equiv", "∼": "sim", "≪": "ll", "≫": "gg", "«": "ll", "»": "gg", "∞": "infty", "∝": "propto", "√": "surd", "∂": "partial",
    "∇": "nabla", "∑": "sum", "∏": "prod", "∫": "int", "∈": "in", "∉": "notin", "⊂": "subset", "⊆": "subseteq", "∪": "cup", "∩": "cap",
    "∅": "emptyset", "∀": "forall", "∃": "exists", "∧": "wedge", "∨": "vee", "⊕": "oplus", "⊗": "otimes", "⊥": "perp", "↑": "uparrow",
    "↓": "downarrow", "←": "leftarrow", "→": "to", "↔": "leftrightarrow", "⇐": "Leftarrow", "⇒": "Rightarrow", "⇔": "Leftrightarrow",
    "↦": "mapsto", "†": "dagger", "‡": "ddagger", "✓": "checkmark", "✔": "checkmark", "★": "bigstar", "⋆": "star", "■": "blacksquare",
    "□": "square", "▲": "blacktriangle", "▼": "blacktriangledown", "●": "bullet", "○": "circ", "′": "prime", "ℓ": "ell", "ℝ": "mathbb{R}",
    "ℕ": "mathbb{N}", "ℤ": "mathbb{Z}",
}  # fmt: skip
SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "–": "--", "—": "---", "‒": "--", "―": "---",
    "‐": "-", "‑": "-", "−": "$-$", "…": "...", "§": r"\S{}", "¶": r"\P{}", "©": r"\copyright{}", "®": r"\textregistered{}",
    "™": r"\texttrademark{}", "£": r"\pounds{}", "¥": r"\yen{}", "•": r"\textbullet{}", "“": "``", "”": "''", "„": ",,", "‘": "`", "’": "'",
    "‚": ",", "‹": "$<$", "›": "$>$", "¡": r"\textexclamdown{}", "¿": r"\textquestiondown{}", "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}",
    "œ": r"\oe{}", "Œ": r"\OE{}", "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}", "ȷ": r"\j{}", "¼": r"$\frac{1}{4}$",
    "½": r"$\frac{1}{2}$", "¾": r"$\frac{3}{4}$", "\u00a0": "~", "\u202f": "~", "\u00ad": r"\-",
    **{character: rf"$\{name}$" for character, name in (GREEK | MATHS).items()},
    "°": r"$^\circ$",
}  # fmt: skip
