"""Reports of one table over `glyphs/3`, from runs made by hand."""

import json

from made import results

from cl_bench.report import write


def small(tmp_path, records, rows='["seq", "nsp2"]', columns='["glyphs/3"]', extra="", head="", **options):
    """The Markdown of a one-table report, and its warnings."""
    records = [
        found.model_copy(update={"spec": found.spec.model_copy(update={"dataset": "glyphs"})})
        for found in records
    ]
    path = tmp_path / "report.toml"
    path.write_text(
        f'title = "T"\n{head}\n[[table]]\nname = "t"\ntitle = "t"\n'
        f"columns = {columns}\nrows = {rows}\n{extra}\n",
        encoding="utf-8",
    )
    report = write.of_layout(
        path,
        results(tmp_path / "results", records),
        tmp_path / "out",
        options.get("accuracy"),
        options.get("forgetting"),
    )
    return report.text, report.warnings


def line_of(text, title):
    [found] = [line for line in text.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def asking(*metrics):
    """The line of a table that asks for these columns."""
    return f"metrics = {json.dumps(list(metrics))}"
