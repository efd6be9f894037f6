"""Tables as Markdown and as LaTeX, and the table of everything that was run on one benchmark."""

import re
import unicodedata
from collections.abc import Sequence

from cl_bench.report import notes
from cl_bench.report.select import Benchmark, Conventions
from cl_bench.report.table import COLUMNS, Cell, Line, Table, cell, heading, rank


def of_benchmark(benchmark: Benchmark, conventions: Conventions) -> Table:
    """All rows of a benchmark with all metrics and the number of seeds."""
    lines = [Line(row.title, [cell(row, metric, conventions) for metric in COLUMNS], bound=row.joint) for row in benchmark.rows]
    for before, line in zip(lines, lines[1:], strict=False):
        line.rule = line.bound and not before.bound
    rank(lines)
    found = notes.of_table([benchmark.rows], conventions, list(COLUMNS))
    if benchmark.shared_options:
        found.insert(3, f"All rows: {', '.join(benchmark.shared_options)}.")
    title = f"{benchmark.name} — backbone {benchmark.backbone}; percent"
    return Table(benchmark.slug, title, [("", list(COLUMNS))], lines, found, counted=True)


def markdown(table: Table) -> str:
    """One Markdown table with title and footnotes, best value of a column bold, second underlined; then the differences to a baseline."""
    name, dash, rest = table.title.partition(" — ")
    aligned = "|:--" * (len(table.labels) + table.method_column) + "|--:" * (sum(len(found) for _, found in table.groups) + table.counted) + "|"
    lines = [f"**{name}**{dash}{rest}", "", _markdown_row(table.heads), aligned]
    for line in table.lines:
        words = [f"<small>{word}</small>" if line.quiet and word else _plain(word) for word in table.words(line)]
        lines.append(_markdown_row([*words, *(_markdown_cell(found, line.quiet) for found in line.cells), *_count(table, line)]))
    lines += ["", *(f"- {_plain(note)}" for note in table.notes)]
    if table.differences:
        lines += ["", f"Differences to {table.baseline} in percentage points:", "", *_markdown_differences(table)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text in which Markdown finds no HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;") if re.search(r"[<&]", text) else text


def _markdown_row(words: Sequence[str]) -> str:
    return "| " + " | ".join(word.replace("|", "\\|").replace("\n", " ") for word in words) + " |"


def _markdown_cell(found: Cell, quiet: bool) -> str:
    text = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}[found.rank].format(found.text)
    text = f"<small>{text}</small>" if quiet and found.text != Cell().text else text
    return text + (f"<sup>{found.marks}</sup>" if found.marks else "")


def _count(table: Table, line: Line) -> list[str]:
    return [str(len(line.cells[0].row.finished))] if table.counted else []


def _markdown_differences(table: Table) -> list[str]:
    rows = [_markdown_row(DIFFERENCES), "|:--|:--|:--" + "|--:" * (len(DIFFERENCES) - 3) + "|"]
    return [
        *rows,
        *(_markdown_row(list(map(_plain, difference_words(table, i)))) for i in range(len(table.differences))),
        "",
        *(f"- {note}" for note in DIFFERENCE_NOTES),
    ]


DIFFERENCES = ("Row", "Benchmark", "Metric", "Difference", "95 % interval", "p (Holm)")
DIFFERENCE_NOTES = (
    "Pairs of runs with the same class order and seeds. p: two-sided permutation test over the pairs, exact up to 20, Holm-adjusted over the table; "
    "with fewer than six pairs no outcome could be significant, and a table of several tests needs more.",
    "95 % interval: bootstrap over the test images, the same ones for both rows; it speaks about these images, not about other seeds.",
)


def difference_words(table: Table, index: int) -> list[str]:
    """A line of the table of differences."""
    found = table.differences[index]
    return [found.row, found.column, found.metric, f"{found.mean:+.2f} (n = {found.pairs})", found.span, found.verdict]


PACKAGES = ("[utf8]{inputenc}", "{amssymb}", "{booktabs}", "{adjustbox}")


def latex(tables: Sequence[Table]) -> str:
    """A LaTeX document with one booktabs table each; the table environments can be pasted by themselves."""
    head = [r"\documentclass{article}", r"\usepackage[margin=2.5cm]{geometry}", *(f"\\usepackage{package}" for package in PACKAGES)]
    return "\n".join([*head, r"\begin{document}", *(latex_table(table) for table in tables), r"\end{document}", ""])


def latex_table(table: Table) -> str:
    """The table environment; wider tables are shrunk to the line. Needs booktabs and adjustbox, and amssymb for check marks."""
    words = len(table.labels) + table.method_column
    numbers = sum(len(found) for _, found in table.groups) + table.counted
    body = []
    for line in table.lines:
        body += [r"\midrule"] if line.rule and body else []
        cells = [_latex_cell(found) for found in line.cells]
        first, *rest = map(escape, table.words(line))
        parts = [_guarded(first), *rest, *cells, *_count(table, line)]
        body.append(" & ".join(rf"{{\footnotesize {part}}}" if line.quiet and part else part for part in parts) + r" \\")
    caption = escape(re.sub(r"^Table \d+: ", "", table.title))  # LaTeX numbers tables itself
    notes = rf"\parbox{{\linewidth}}{{\footnotesize\raggedright {escape(' '.join(table.notes))}}}"
    return "\n".join([
        r"\begin{table}[t]", r"\centering", r"\small", f"\\caption{{{caption}}}", r"\begin{adjustbox}{max width=\linewidth}",
        r"\begin{tabular}{@{}" + "l" * words + "c" * numbers + r"@{}}", r"\toprule", *_latex_head(table, words), r"\midrule", *body, r"\bottomrule",
        r"\end{tabular}", r"\end{adjustbox}", r"\par\smallskip", notes, r"\end{table}",
    ])  # fmt: skip


def _guarded(first: str) -> str:
    """The first cell of a line; after a line break a bracket or star would be read as its argument."""
    return f"{{}}{first}" if first.startswith(("[", "*")) else first


def _latex_head(table: Table, words: int) -> list[str]:
    own = [*(["Method"] if table.method_column else []), *map(escape, table.labels)]
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


def _latex_cell(found: Cell) -> str:
    text = f"$-${escape(found.text[1:])}" if found.text.startswith("-") else escape(found.text)
    text = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}[found.rank] % text
    return text + (rf"\textsuperscript{{{found.marks}}}" if found.marks else "")


GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "η": "eta", "θ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu",
    "ν": "nu", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega",
    "Δ": "Delta", "Σ": "Sigma", "Ω": "Omega",
}  # fmt: skip
SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "—": "---", "†": r"$\dagger$", "‡": r"$\ddagger$", "§": r"\S{}", "…": "...",
    "<": r"\textless{}", ">": r"\textgreater{}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "→": r"$\to$", "✓": r"$\checkmark$", "×": r"$\times$",
    "≥": r"$\geq$", "≤": r"$\leq$", "≈": r"$\approx$", "−": "$-$", "∞": r"$\infty$", "·": r"$\cdot$", "“": "``", "”": "''", "‘": "`", "’": "'",
    "«": r"$\ll$", "»": r"$\gg$",
    **{character: rf"$\{name}$" for character, name in GREEK.items()},
    **{character: rf"\textsuperscript{{{digit}}}" for digit, character in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{character: f"$_{digit}$" for digit, character in enumerate("₀₁₂₃₄₅₆₇₈₉")},
}  # fmt: skip


def escape(text: str) -> str:
    """Text with LaTeX's special characters escaped; a character that pdflatex does not know becomes its nearest ASCII ones or "?"."""
    return "".join(SPECIAL.get(character, character) if ord(character) < 256 or character in SPECIAL else _ascii(character) for character in text)


def _ascii(character: str) -> str:
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode() or "?"
