"""The accuracy/forgetting table as Markdown and as a LaTeX document."""

from cl_bench import metrics
from cl_bench.report.select import Benchmark, Conventions, Row

COLUMNS = {"accuracy": ("Acc.", True), "forgetting": ("Forgetting", False), "incremental": ("Avg. inc. acc.", True), "transfer": ("BWT", True)}


def markdown(benchmark: Benchmark, conventions: Conventions) -> str:
    """One Markdown table with title and footnotes; best value of a column bold, second underlined, upper bounds left out of that."""
    head = ["Method", *(f"{title} {'↑' if high else '↓'}" for title, high in COLUMNS.values()), "n"]
    lines = [
        f"**{benchmark.name}** — backbone {benchmark.backbone}; percent",
        "",
        "| " + " | ".join(head) + " |",
        "|:--" + "|--:" * (len(head) - 1) + "|",
    ]
    marks = _marks(benchmark, conventions)
    style = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
    for i, row in enumerate(benchmark.rows):
        cells = [style[marks.get((i, metric), "")].format(cell(row, metric, conventions)) for metric in COLUMNS]
        lines.append("| " + " | ".join([row.title.replace("|", "\\|"), *cells, str(len(row.finished))]) + " |")
    return "\n".join([*lines, "", *footnotes(benchmark, conventions)]) + "\n"


def cell(row: Row, metric: str, conventions: Conventions) -> str:
    """Mean ± sample standard deviation in percent, "–" where there is no value."""
    values = row.values(metric, conventions)
    if not values:
        return "–"
    mean, spread = metrics.mean_and_spread(values)
    return f"{100 * mean:.2f}" + (f" ± {100 * spread:.2f}" if spread is not None else "")


def footnotes(benchmark: Benchmark, conventions: Conventions) -> list[str]:
    """What the numbers mean and what is missing, a line each."""
    seeds = sorted({seed for row in benchmark.rows for seed in row.seeds})
    notes = [
        f"Acc.: {metrics.ACCURACY_CONVENTIONS[conventions.accuracy]}, after the last task.",
        f"Forgetting: {metrics.FORGETTING_CONVENTIONS[conventions.forgetting]}.",
        "Mean ± sample standard deviation (n - 1) over n seeds" + (f" ({', '.join(seeds)})." if seeds else "."),
    ]
    if benchmark.shared_options:
        notes.append(f"All rows: {', '.join(benchmark.shared_options)}.")
    notes += _protocol_notes(benchmark)
    for row in benchmark.rows:
        for record in row.records:
            if record.status != "done":
                state = f"failed: {record.failure}" if record.status == "failed" else "not finished"
                notes.append(f"{row.title}, seed {record.spec.seed_name()}: {state} ({len(record.tasks)} tasks done), not in the table.")
        if row.finished and sorted(row.seeds) != seeds:
            notes.append(f"{row.title}: seeds {', '.join(row.seeds)} only.")
    return [f"- {note}" for note in notes]


def _protocol_notes(benchmark: Benchmark) -> list[str]:
    """What `as_published` rows do, whose predictions depend on the batch, and who was not asked."""
    notes = []
    for row in benchmark.rows:
        behaviour = row.records[0].spec.as_published
        if behaviour:
            notes.append(f"{row.title.removesuffix(' †')}: {', '.join(behaviour)}.")
    for row in benchmark.rows:
        found = row.certificates
        if any(not certificate.inductive for certificate in found):
            images = sum(c.images for c in found)
            shares = {
                "alone": sum(c.right_alone for c in found), f"in batches of {found[0].batch} in stream order": sum(c.right_in_batches for c in found),
                "in shuffled batches": sum(c.right_when_shuffled for c in found),
            }  # fmt: skip
            right = ", ".join(f"{100 * count / images:.1f} % {where}" for where, count in shares.items())
            changed = f"{sum(c.changed_in_batches for c in found)} in stream order, {sum(c.changed_when_shuffled for c in found)} shuffled"
            notes.append(
                f"† {row.title.removesuffix(' †')}: predictions depend on the batch. Of {images} test images so many are predicted otherwise "
                f"in a batch than alone: {changed}; right: {right}."
            )
    unasked = [row.title for row in benchmark.rows if len(row.certificates) < len(row.finished)]
    if unasked:
        notes.append(f"Without inductive certificate (cl-bench certify makes it): {', '.join(unasked)}.")
    return notes


def _marks(benchmark: Benchmark, conventions: Conventions) -> dict[tuple[int, str], str]:
    """ "best" and "second" per (row, column), by the printed mean; ties share a mark, and a column with one value has none."""
    marks = {}
    for metric, (_, high) in COLUMNS.items():
        means = {}
        for i, row in enumerate(benchmark.rows):
            values = row.values(metric, conventions)
            if values and not row.joint:
                means[i] = round(100 * metrics.mean_and_spread(values)[0], 2)
        ranked = sorted(set(means.values()), reverse=high)
        if len(ranked) > 1:
            for i, mean in means.items():
                if mean in ranked[:2]:
                    marks[i, metric] = "best" if mean == ranked[0] else "second"
    return marks


def latex(benchmarks: list[Benchmark], conventions: Conventions) -> str:
    """A LaTeX document with one booktabs table per benchmark; the table environments can be pasted by themselves."""
    packages = ["\\documentclass{article}", "\\usepackage[utf8]{inputenc}", "\\usepackage{booktabs}"]
    tables = [_latex_table(benchmark, conventions) for benchmark in benchmarks]
    return "\n".join([*packages, "\\begin{document}", *tables, "\\end{document}", ""])


def _latex_table(benchmark: Benchmark, conventions: Conventions) -> str:
    marks = _marks(benchmark, conventions)
    style = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}
    arrow = {True: r"$\uparrow$", False: r"$\downarrow$"}
    head = " & ".join(["Method", *(f"{title} {arrow[high]}" for title, high in COLUMNS.values()), "$n$"])
    body = []
    for i, row in enumerate(benchmark.rows):
        if row.joint and i and not benchmark.rows[i - 1].joint:
            body.append(r"\midrule")
        cells = [style[marks.get((i, metric), "")] % _latex_number(cell(row, metric, conventions)) for metric in COLUMNS]
        body.append(" & ".join([escape(row.title), *cells, str(len(row.finished))]) + r" \\")
    notes = " ".join(note.removeprefix("- ") for note in footnotes(benchmark, conventions))
    caption = escape(f"{benchmark.name}, backbone {benchmark.backbone}, percent. {notes}")
    return "\n".join([
        r"\begin{table}[t]", r"\centering", r"\small", f"\\caption{{{caption}}}",
        r"\begin{tabular}{@{}l" + "c" * (len(COLUMNS) + 1) + r"@{}}", r"\toprule", head + r" \\", r"\midrule", *body, r"\bottomrule",
        r"\end{tabular}", r"\end{table}",
    ])  # fmt: skip


def _latex_number(text: str) -> str:
    return f"$-${escape(text[1:])}" if text.startswith("-") else escape(text)


def escape(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    special = {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}", "²": r"\textsuperscript{2}", "±": r"$\pm$", "–": "--", "—": "---", "†": r"$\dagger$",
        "<": r"\textless{}", ">": r"\textgreater{}",
    }  # fmt: skip
    return "".join(special.get(character, character) for character in text)
