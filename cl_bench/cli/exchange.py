"""Commands that bring results together, take them elsewhere, and hold them against each other.

They parse and print, and decide nothing.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from cl_bench.cli import options as opt
from cl_bench.cli.app import FIRST, app, counted, require_all, warn, were
from cl_bench.errors import InputError, RunFailed
from cl_bench.text import output

Optional = typer.Option


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="results folder, or method such as nsp2@1 (version 1)")],
    b: Annotated[str, typer.Argument(help="results folder, or method such as nsp2@2")],
    results: opt.Results = Path("results"),
    accuracy: opt.Accuracy = "task_mean",
    json: opt.Json = False,
    plugins: opt.Plugins = None,
) -> None:
    """Print what B is better or worse by than A, run by run of the same class order and seeds.

    The exit code is 1 if B is significantly worse.
    """
    from cl_bench.records.metrics import Conventions
    from cl_bench.report.versus import versus

    found = versus(a, b, results, Conventions(accuracy))
    warn(found.warnings)
    warn((f"left out: {each.reason}" for each in found.left_out), FIRST)
    output.say_json(found.values()) if json else output.say(found.markdown())
    if found.worse:
        raise RunFailed(f"significantly worse: {'; '.join(found.worse)}")
    require_all(found.left_out)


@app.command()
def merge(
    target: Annotated[Path, typer.Argument(help="results folder that receives the runs")],
    sources: Annotated[
        list[Path], typer.Argument(help="results folders they come from, which stay as they are")
    ],
    compact: Annotated[
        bool,
        Optional(
            "--compact", help="finished runs only, and of each what reports need: no checkpoints, no logs"
        ),
    ] = False,
) -> None:
    """Bring the runs of several results folders together.

    Different results of one run are an error, and nothing is replaced; what only one copy of a run has is
    added, such as its certificate or diagnosis.
    """
    from cl_bench.records.merge import merge as bring_together
    from cl_bench.records.store import Store

    done = bring_together(Store(target), [Store(source) for source in sources], compact)
    warn(done.warnings)
    warn(done.lacking, FIRST)
    for line in done.added:
        output.say(line)
    there = f"{done.kept} were there already"
    there += f", {len(done.added)} of which lacked something that was added" if done.added else ""
    output.say(f"{done.copied} runs copied to {target}, {there}")
    if done.lacking:
        raise RunFailed(
            f"{counted(len(done.lacking), 'run')} {were(len(done.lacking))} not copied or completed; "
            "the folders stay as they are"
        )


@app.command()
def export(
    kind: Annotated[Literal["csv", "parquet"], Optional("--format", help="csv or parquet")] = "csv",
    what: Annotated[
        Literal["runs", "matrix", "diagnosis"],
        Optional(help="a line per run, per entry of its accuracy matrix, or per quantity of --diagnose"),
    ] = "runs",
    results: opt.Results = Path("results"),
    out: Annotated[Path | None, Optional(help="file (default: runs.csv, matrix.parquet, ...)")] = None,
) -> None:
    """Write the runs of a results folder as one flat table."""
    from cl_bench.records import export as exporting
    from cl_bench.records import states
    from cl_bench.records.store import Store
    from cl_bench.report.write import read_records

    store = Store(results)
    records, left_out = read_records(store)
    lacking = [found for found in left_out if found.lacking]
    if what == "matrix":
        lines = exporting.matrix_lines(records)
    elif what == "diagnosis":
        lines = exporting.diagnosis_lines(records)
        if records and not lines:
            raise InputError(f"no run in {results} has learned a second task with `cl-bench run --diagnose`")
    else:
        lines = exporting.run_lines(records, lacking, states.running(store, records))
    warn(
        (f"{'without numbers' if what == 'runs' else 'left out'}: {found.reason}" for found in lacking), FIRST
    )
    path = out or Path(f"{what}.{kind}")
    exporting.write(lines, path, kind)
    output.say(f"written: {path} ({counted(len(records), 'run')})")
    require_all(left_out)


@app.command("import")
def import_(
    matrix: Annotated[
        Path,
        typer.Argument(
            help="CSV file: after each task a line of accuracies on the tasks so far; or, with --from, a log"
        ),
    ],
    name: Annotated[str, Optional(help="the method's name in tables")],
    benchmark: Annotated[str, Optional(help="such as cifar100/10")],
    source: Annotated[str, Optional(help="where the numbers come from; stands under every table")],
    suite: Annotated[
        str | None,
        Optional("--from", help="whose log it is: pilot (and PyCIL), mammoth, nsp2, coda, avalanche"),
    ] = None,
    seed: Annotated[
        str, Optional(help="tells several matrices of one name apart; of a log that names seeds, one of them")
    ] = "–",
    backbone: Annotated[str | None, Optional(help="its checkpoint, as far as known")] = None,
    test_sizes: Annotated[
        str | None, Optional(help="test images of each task, such as 1000,1000; needed for --accuracy sample")
    ] = None,
    percent: Annotated[bool, Optional("--percent", help="the accuracies are percentages")] = False,
    results: opt.Results = Path("results"),
) -> None:
    """Put an accuracy matrix, or another suite's log, beside your runs; tables mark it as imported."""
    from cl_bench.records import imported, logs, matrix_file, suites

    sizes = None if test_sizes is None else imported.parse_sizes(test_sizes)
    called, tasks, classes = imported.checked_benchmark(benchmark)
    spec = imported.described(display=name, benchmark=called, seed=seed, source=source, backbone=backbone)
    if suite is None:
        found = matrix_file.read(matrix, tasks)
        records, remarks = [imported.from_file(found, spec, sizes, percent)], found.remarks
    else:
        if percent:
            raise InputError("--percent is for CSV files; what a log's numbers are is known of its suite")
        read = logs.read(suites.read(suite, matrix), spec, tasks, classes, sizes)
        records, remarks = read.records, read.told
    for remark in remarks:
        output.say(f"{matrix}: {remark}", err=True)
    for record in records:
        for doubt in imported.doubts(record):
            output.say(f"warning: {matrix}: {doubt}", err=True)
    for record, path in zip(records, logs.save(records, results), strict=True):
        output.say(f"written: {path} ({len(record.tasks)} tasks)")
