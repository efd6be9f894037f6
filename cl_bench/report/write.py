"""Writes a report: for every benchmark a folder with table.md, table.tex and the figures."""

from collections.abc import Iterable
from pathlib import Path

from cl_bench.errors import InputError
from cl_bench.record import RunRecord
from cl_bench.report import tables
from cl_bench.report.select import Conventions, group
from cl_bench.store import write_atomically


def write(records: Iterable[RunRecord], out: Path, conventions: Conventions) -> tuple[str, list[Path]]:
    """The Markdown of all tables, and the paths of everything written under `out`. Raises InputError when nothing can be shown or written."""
    benchmarks = group(records)
    if not benchmarks:
        raise InputError("there are no runs to report; `cl-bench run` makes some")
    text, paths = [], []
    try:
        for benchmark in benchmarks:
            folder = out / benchmark.slug
            folder.mkdir(parents=True, exist_ok=True)
            text.append(tables.markdown(benchmark, conventions))
            write_atomically(folder / "table.md", text[-1].encode())
            write_atomically(folder / "table.tex", tables.latex([benchmark], conventions).encode())
            paths += [folder / "table.md", folder / "table.tex"]
            if benchmark.finished_rows:
                from cl_bench.report import plots  # matplotlib takes a second to import

                paths += plots.accuracy(benchmark, conventions, folder) + plots.tradeoff(benchmark, conventions, folder)
    except OSError as error:
        raise InputError(f"cannot write the report to {out}: {error.strerror or error}; choose another folder with --out") from error
    return "\n".join(text), paths
