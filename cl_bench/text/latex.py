"""Text as LaTeX that pdflatex prints, with the nearest ASCII letters of what it cannot."""

import re
import unicodedata
from collections.abc import Iterable, Iterator

from cl_bench.text.escape import one_line


def escape(text: str) -> str:
    """One line of text as LaTeX; what pdflatex does not know becomes its nearest ASCII letters or "?"."""
    return "".join(found for _, found, _ in _characters(text))


def unprintable(texts: Iterable[str]) -> list[str]:
    """The characters, with their accents, of which `escape` shows only the nearest letters, each once."""
    found = {character: printed for text in texts for character, _, printed in _characters(text)}
    return [character for character, printed in found.items() if not printed]


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
    letter, *marks = list(unicodedata.normalize("NFD", character))
    if len(marks) == 1 and marks[0] in ACCENTS and letter.isascii() and letter.isalpha():
        accent = ACCENTS[marks[0]]
        dotless = letter in "ij" and accent not in BELOW
        return rf"\{accent}{{\{letter}}}" if dotless else rf"\{accent}{{{letter}}}"
    if len(character) > 1:  # other accents, or several
        return None
    kind, *codes = unicodedata.decomposition(character).split() or [""]
    scripts = ("<super>", "<sub>")
    inner = "".join(chr(int(code, 16)) for code in codes).replace("−", "-") if kind in scripts else ""
    if inner and inner.isascii() and inner.isprintable():
        shown = "".join(SPECIAL.get(part, part) for part in inner)
        if kind == "<super>":
            return rf"\textsuperscript{{{shown}}}"
        return f"$_{shown}$" if len(shown) == 1 else f"$_{{{shown}}}$"
    return " " if unicodedata.category(character) == "Zs" else None


def _ascii(character: str) -> str:
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()


def _is_seen(character: str) -> bool:
    """Whether it shows by itself: joiners and choices of a variant do not."""
    return any(unicodedata.category(part) != "Cf" and not 0xFE00 <= ord(part) <= 0xFE0F for part in character)


# a character with the accents that follow it
CLUSTER = re.compile("[^\u0300-\u036f][\u0300-\u036f]*|[\u0300-\u036f]+", re.DOTALL)
LIGATURES = {"--", "''", "``", ",,", "?`", "!`"}  # two characters that a font makes one of
ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0323": "d", "\u0327": "c", "\u0331": "b",
}  # fmt: skip
BELOW = "dcb"  # under an i, whose dot stays
GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta",
    "θ": "theta", "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "µ": "mu", "ν": "nu", "ξ": "xi",
    "π": "pi", "ρ": "rho", "ς": "varsigma", "σ": "sigma", "τ": "tau", "υ": "upsilon", "φ": "phi", "χ": "chi",
    "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi",
    "Σ": "Sigma", "Υ": "Upsilon", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
MATHS = {
    "±": "pm", "∓": "mp", "×": "times", "÷": "div", "·": "cdot", "∘": "circ", "¬": "neg", "≥": "geq",
    "≤": "leq", "≈": "approx", "≠": "neq", "≡": "equiv", "∼": "sim", "≪": "ll", "≫": "gg", "«": "ll",
    "»": "gg", "∞": "infty", "∝": "propto", "√": "surd", "∂": "partial", "∇": "nabla", "∑": "sum",
    "∏": "prod", "∫": "int", "∈": "in", "∉": "notin", "⊂": "subset", "⊆": "subseteq", "∪": "cup", "∩": "cap",
    "∅": "emptyset", "∀": "forall", "∃": "exists", "∧": "wedge", "∨": "vee", "⊕": "oplus", "⊗": "otimes",
    "⊥": "perp", "↑": "uparrow", "↓": "downarrow", "←": "leftarrow", "→": "to", "↔": "leftrightarrow",
    "⇐": "Leftarrow", "⇒": "Rightarrow", "⇔": "Leftrightarrow", "↦": "mapsto", "†": "dagger", "‡": "ddagger",
    "✓": "checkmark", "✔": "checkmark", "★": "bigstar", "⋆": "star", "■": "blacksquare", "□": "square",
    "▲": "blacktriangle", "▼": "blacktriangledown", "●": "bullet", "○": "circ", "′": "prime", "ℓ": "ell",
    "ℝ": "mathbb{R}", "ℕ": "mathbb{N}", "ℤ": "mathbb{Z}",
}  # fmt: skip
SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "–": "--", "—": "---", "‒": "--", "―": "---", "‐": "-",
    "‑": "-", "−": "$-$", "…": "...", "§": r"\S{}", "¶": r"\P{}", "©": r"\copyright{}",
    "®": r"\textregistered{}", "™": r"\texttrademark{}", "£": r"\pounds{}", "¥": r"\yen{}",
    "•": r"\textbullet{}", "“": "``", "”": "''", "„": ",,", "‘": "`", "’": "'", "‚": ",", "‹": "$<$",
    "›": "$>$", "¡": r"\textexclamdown{}", "¿": r"\textquestiondown{}", "ß": r"\ss{}", "æ": r"\ae{}",
    "Æ": r"\AE{}", "œ": r"\oe{}", "Œ": r"\OE{}", "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}",
    "ı": r"\i{}", "ȷ": r"\j{}", "¼": r"$\frac{1}{4}$", "½": r"$\frac{1}{2}$", "¾": r"$\frac{3}{4}$",
    "\u00a0": "~", "\u202f": "~", "\u00ad": r"\-",
    **{character: rf"$\{name}$" for character, name in (GREEK | MATHS).items()},
    "°": r"$^\circ$",
}  # fmt: skip
