"""Tables as LaTeX that pdflatex compiles, whatever characters they hold; those it cannot print are named."""

import re
from collections.abc import Sequence

from cl_bench.report.table import Cell, Table, heading
from cl_bench.text.latex import escape, unprintable

PACKAGES = ("[margin=2.5cm]{geometry}", "[utf8]{inputenc}", "{amssymb}", "{booktabs}", "{adjustbox}")
MOST_NAMED = 8


def document(tables: Sequence[Table]) -> str:
    """A LaTeX document with one booktabs table each; the table environments can be pasted by themselves."""
    head = [r"\documentclass{article}", *(rf"\usepackage{package}" for package in PACKAGES)]
    return "\n".join([*head, r"\begin{document}", *map(environment, tables), r"\end{document}", ""])


def environment(table: Table) -> str:
    """The table environment; wider tables are shrunk to the line.

    Needs booktabs and adjustbox, and amssymb for check marks.
    """
    words = len(table.word_heads)
    numbers = sum(len(found) for _, found in table.groups) + table.counted
    body = []
    for line in table.lines:
        body += [r"\midrule"] if line.rule and body else []
        first, *rest = map(escape, table.words(line))
        parts = [_guarded(first), *rest, *map(_cell, line.cells), *table.count(line)]
        if line.quiet:
            parts = [rf"{{\footnotesize {part}}}" if part else part for part in parts]
        body.append(" & ".join(parts) + r" \\")
    lines = [r"\begin{table}[t]", r"\centering", r"\small", f"\\caption{{{escape(_caption(table))}}}"]
    lines += [r"\begin{adjustbox}{max width=\linewidth}"]
    lines += [r"\begin{tabular}{@{}" + "l" * words + "c" * numbers + r"@{}}", r"\toprule"]
    lines += [*_head(table, words), r"\midrule", *body, r"\bottomrule"]
    lines += [r"\end{tabular}", r"\end{adjustbox}", r"\par\smallskip"]
    notes = rf"{{\footnotesize\raggedright {escape(' '.join(table.notes))}}}"
    return "\n".join([*lines, rf"\parbox{{\linewidth}}{notes}", r"\end{table}"])


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
    """A line that names the characters of a table that pdflatex cannot print; none where it prints all."""
    texts = [_caption(table), *table.labels, *(title for title, _ in table.groups), *table.notes]
    for line in table.lines:
        texts += [*table.words(line), *(found.text for found in line.cells)]
    lost = unprintable(texts)
    if not lost:
        return []
    named = [f"{one} ({' '.join(f'U+{ord(part):04X}' for part in one)})" for one in lost[:MOST_NAMED]]
    more = f" and {len(lost) - MOST_NAMED} more" if len(lost) > MOST_NAMED else ""
    instead = 'in it stand the nearest ASCII letters, or "?": give other titles'
    return [f"{file}: pdflatex cannot print {', '.join(named)}{more}; {instead}"]
