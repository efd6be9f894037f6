"""The report as one HTML file: sortable tables, figures, and the runs behind every number."""

import base64
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from cl_bench.records import metrics
from cl_bench.records.metrics import Conventions
from cl_bench.records.spec import RunSpec
from cl_bench.report.render import DIFFERENCE_NOTES
from cl_bench.report.rows import Row
from cl_bench.report.table import DIFFERENCE_HEADS, Cell, Table
from cl_bench.text.escape import visible

TEMPLATE = "page.html.j2"


def render(
    title: str,
    parts: Sequence[tuple[Table, Sequence[tuple[str, Path]]]],
    pictures: Sequence[tuple[str, Path]],
    conventions: Conventions,
) -> str:
    """The page; `parts` are tables, each with (title, PNG file) of its figures, `pictures` stand below."""
    blocks = {"trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(autoescape=True, finalize=_shown, undefined=StrictUndefined, **blocks)
    template = environment.from_string((files("cl_bench.report") / TEMPLATE).read_text(encoding="utf-8"))
    behind = Behind(conventions)
    sections = [
        {
            "table": table,
            "lines": _lines(table, behind),
            "differences": [found.words for found in table.differences],
            "figures": _figures(found),
        }
        for table, found in parts
    ]
    return template.render(
        title=title,
        sections=sections,
        figures=_figures(pictures),
        behind=behind.rows,
        difference_heads=DIFFERENCE_HEADS,
        difference_notes=DIFFERENCE_NOTES,
    )


def _shown(value):
    """What goes into the page, before it is escaped as HTML."""
    return visible(value) if type(value) is str else value


def _lines(table: Table, behind: "Behind") -> list[dict]:
    """The lines of a table; published numbers are inside the cells they belong to, which sorting moves."""
    found: list[dict] = []
    for line in table.lines:
        if line.quiet and found:
            for own, theirs in zip(found[-1]["cells"], line.cells, strict=True):
                own["published"] = theirs
            continue
        cells = [_cell(cell, behind) for cell in line.cells]
        found.append({"words": table.words(line), "rule": line.rule, "cells": cells})
        if table.counted:
            [found[-1]["count"]] = table.count(line)
    return found


def _cell(cell: Cell, behind: "Behind") -> dict:
    link = "" if cell.row is None else behind.link(cell.row)
    return {
        "cell": cell,
        "link": link,
        "sort": "" if cell.value is None else f"{cell.value:.10f}",
        "published": None,
    }


class Behind:
    """What stands behind the cells: a section for every row of runs, told once."""

    def __init__(self, conventions: Conventions):
        self._conventions = conventions
        self.rows: dict[str, dict] = {}

    def link(self, row: Row) -> str:
        """The name of a row's section."""
        made = f"{row.display}-{row.spec.benchmark}" if row.imported else row.spec.family_id()
        name = f"runs-{made}"
        if name not in self.rows:
            self.rows[name] = _behind(row, self._conventions)
        return name


def _behind(row: Row, conventions: Conventions) -> dict:
    """What made a row's numbers: settings its runs share, then each run's command, environment, result."""
    if row.imported:
        shared, place = {"imported": row.spec.model_dump(mode="json")}, row.spec.benchmark
    else:
        seeded = {"order_seed", "init_seed", "data_seed", "task_classes", "command", "losses", "diagnose"}
        values = row.spec.model_dump(mode="json")
        shared = {key: value for key, value in values.items() if key not in seeded}
        place = row.benchmark
    runs = [_run(row, record, conventions) for record in row.records]
    return {"title": f"{row.title} on {place}", "shared": _json(shared), "runs": runs}


def _run(row: Row, record, conventions: Conventions) -> dict:
    found = {"seed": record.spec.seed_name(), "status": record.status}
    for metric in ("accuracy", "forgetting"):
        value = row.value(record, metric, conventions) if record.status == "done" else None
        found[metric] = "–" if value is None else metrics.percent(value)
    if hasattr(record.spec, "run_id"):
        run_id = record.spec.run_id()
        found |= {
            "id": run_id,
            "command": _command(record.spec),
            "environments": _json(record.environments),
            "order": _order(record.spec.task_classes),
        }
    return found


def _command(spec: RunSpec) -> str:
    """The command that makes this run anywhere."""
    if not spec.command:
        return f"cl-bench run-one spec.json  (run {spec.run_id()}, made before commands were recorded)"
    named = "precision=" in spec.command  # older ones rely on what was then every machine's default
    return spec.command if named else f"{spec.command} --set precision={spec.precision}"


def _order(tasks) -> str:
    return " | ".join(" ".join(map(str, classes)) for classes in tasks)


def _json(value) -> str:
    return _indented(json.dumps(value, ensure_ascii=False))


@cache  # most runs share their environment
def _indented(text: str) -> str:
    return json.dumps(json.loads(text), indent=1, ensure_ascii=False)


def _figures(pictures: Sequence[tuple[str, Path]]) -> list[dict]:
    """Pictures and their numbers as data inside the page."""
    return [
        {
            "title": title,
            "png": _data(path, "image/png"),
            "csv": _data(path.with_name(f"{path.name.removesuffix('.png')}.csv"), "text/csv"),
            "name": f"{path.name.removesuffix('.png')}.csv",
        }
        for title, path in pictures
    ]


def _data(path: Path, kind: str) -> Markup:
    return Markup(f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}")
