"""The command line: parses and prints, decides nothing; heavy imports happen inside the commands that need them."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from cl_bench import options as opt
from cl_bench.errors import InputError, RunFailed

app = typer.Typer(
    name="cl-bench",
    help=__import__("cl_bench").__doc__,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

STOPPED = 130  # what shells report for a command stopped with Ctrl-C; some versions of typer return it, others raise
UsageError = typer.BadParameter.__base__
Optional = typer.Option


def _write_report(records, out, accuracy, forgetting) -> None:
    from cl_bench.report.select import Conventions
    from cl_bench.report.write import write

    text, paths = write(records, out, Conventions(accuracy, forgetting))
    typer.echo(text)
    typer.echo("written: " + ", ".join(map(str, paths)))


def _name_failures(outcomes) -> None:
    from cl_bench import orchestrator

    failed = [outcome for outcome in outcomes if outcome.failure]
    for outcome in failed:
        typer.echo(f"failed: {orchestrator.name(outcome.spec)}: {outcome.failure}", err=True)
    if failed:
        raise RunFailed(f"{len(failed)} of {len(outcomes)} runs failed; the same command continues them from their last finished task")


@app.command()
@opt.takes_request
def run(
    request, device: opt.Device = "auto", jobs: opt.Jobs = None, results: opt.Results = Path("results"), out: opt.Out = Path("reports"),
    accuracy: opt.Accuracy = "task_mean", forgetting: opt.Forgetting = "chaudhry",
) -> None:  # fmt: skip
    """Train methods on a class-incremental stream and print the table. Repeating the command continues what was interrupted."""
    from rich.console import Console

    from cl_bench import orchestrator
    from cl_bench.plan import make_plan
    from cl_bench.store import Store

    console = Console(stderr=True)
    plan = make_plan(request)
    for warning in plan.warnings:
        typer.echo(f"warning: {warning}", err=True)
    outcomes = orchestrator.execute(plan.specs, Store(results), device, jobs, console)
    if not any(outcome.trained for outcome in outcomes):
        typer.echo("nothing to train: every run of this command is finished", err=True)
    records = [outcome.record for outcome in outcomes if outcome.record]
    if records:
        _write_report(records, out, accuracy, forgetting)
    _name_failures(outcomes)


@app.command()
@opt.takes_request
def tune(
    request,
    grid: Annotated[Path, Optional(help="YAML file that maps options to values to try, such as eta: [0.9, 0.97]")],
    device: opt.Device = "auto",
    jobs: opt.Jobs = None,
    results: opt.Results = Path("results"),
    out: Annotated[Path, Optional(help="file for the chosen values")] = Path("tuned.yaml"),
    accuracy: opt.Accuracy = "task_mean",
) -> None:
    """Try a grid of settings on held-out training images (a quarter), print the table and write the best for `run --config`."""
    from rich.console import Console

    from cl_bench import orchestrator
    from cl_bench import tune as search
    from cl_bench.plan import make_plan
    from cl_bench.report.select import Conventions
    from cl_bench.store import Store, write_atomically

    tried, conventions = search.read_grid(grid), Conventions(accuracy)
    request = search.with_grid(request, tried)
    plan = make_plan(request)
    outcomes = orchestrator.execute(plan.specs, Store(results), device, jobs, Console(stderr=True))
    _name_failures(outcomes)
    found = search.points(plan.specs, [outcome.record for outcome in outcomes], tried)
    chosen = search.choose(found, conventions)
    typer.echo(f"**{plan.specs[0].benchmark_name()}**\n\n{search.table(found, chosen, tried, conventions)}\n")
    for line in search.at_the_edge(chosen, tried):
        typer.echo(f"warning: {line}", err=True)
    try:
        write_atomically(out, search.settings_file(request, plan.specs, chosen, tried, conventions).encode())
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}; choose another file with --out") from error
    typer.echo(f"written: {out}")


@app.command("run-one")
def run_one(
    spec: Annotated[Path, typer.Argument(help="spec.json of a run, as `cl-bench run` writes it")],
    device: opt.Device = "cpu",
    threads: Annotated[int, Optional(min=1, help="processor threads")] = 1,
    results: opt.Results = Path("results"),
) -> None:
    """Run one specification in this process; `run` starts one of these per run."""
    from cl_bench import orchestrator, runner
    from cl_bench.progress import ProgressFile
    from cl_bench.store import Store, read_spec

    resolved = read_spec(spec)
    store = Store(results)
    device = orchestrator.devices(device)[0]
    progress = ProgressFile(store.folder(resolved) / "progress.json", resolved)
    runner.run(resolved, store, device, threads, typer.echo, progress)


@app.command()
def certify(
    run: Annotated[str, typer.Argument(help="run id or the beginning of one, see `cl-bench ls runs`, or the run's folder")],
    device: opt.Device = "auto",
    results: opt.Results = Path("results"),
) -> None:
    """Ask a finished run whether its predictions depend on the batch: images alone, in batches, in shuffled batches. `run` does so by itself."""
    from cl_bench import orchestrator, runner
    from cl_bench.decode import cores
    from cl_bench.store import Store

    store = Store(results)
    spec = store.find(run)
    runner.recertify(spec, store, orchestrator.devices(device)[0], cores(), typer.echo)


@app.command()
@opt.takes_request
def check(request, device: opt.Device = "auto", results: opt.Results = Path("results")) -> None:
    """Say what `run` with the same options would do, and what is wrong with it, without training."""
    from cl_bench import inspect, orchestrator
    from cl_bench.plan import make_plan
    from cl_bench.store import Store

    plan = make_plan(request)
    places = orchestrator.devices(device)
    typer.echo("\n".join(inspect.plan_lines(plan, Store(results), places)))


@app.command()
def report(
    results: opt.Results = Path("results"),
    out: opt.Out = Path("reports"),
    accuracy: opt.Accuracy = "task_mean",
    forgetting: opt.Forgetting = "chaudhry",
) -> None:
    """Write tables and plots of every run in the results folder."""
    from cl_bench.record import RunRecord
    from cl_bench.store import Store

    if not results.is_dir():
        raise InputError(f"there is no results folder {results}; `cl-bench run` makes one, --results names another")
    records = []
    for found in Store(results).records():
        if isinstance(found, RunRecord):
            records.append(found)
        else:
            typer.echo(f"warning: left out: {found[1]}", err=True)
    _write_report(records, out, accuracy, forgetting)


@app.command()
def prepare(
    dataset: Annotated[str, typer.Argument(help="such as cifar100; see `cl-bench ls datasets`")],
    root: Annotated[
        Path | None, Optional(help="folder for its files, or where they are already (default: $CL_BENCH_DATA or the user's data folder)")
    ] = None,
) -> None:
    """Download, verify and unpack a data set; what is there already is verified and used. Nothing of yours is moved or deleted."""
    from cl_bench import registry

    plugin = registry.find("datasets", dataset)
    make = getattr(plugin.load(), "PREPARE", None)
    if make is None:
        typer.echo(f"{plugin.name} needs no preparation")
    else:
        make(root, typer.echo)


@app.command("ls")
def list_things(
    what: Annotated[Literal["methods", "datasets", "backbones", "runs"], typer.Argument(help="methods, datasets, backbones or runs")],
    results: opt.Results = Path("results"),
) -> None:
    """List methods, data sets, backbones or the runs in the results folder."""
    from cl_bench import inspect

    typer.echo("\n".join(inspect.LISTS[what](results)))


@app.command()
def info(
    benchmark: Annotated[str | None, typer.Argument(help="such as glyphs/10")] = None,
    method: Annotated[str | None, typer.Argument(help="such as vpt-nsp2")] = None,
    preset: opt.Preset = None,
) -> None:
    """Print versions and folders or, for a benchmark and a method, every setting with where it comes from."""
    from cl_bench import inspect

    if (benchmark is None) != (method is None):
        raise InputError("info takes a benchmark and a method, such as `cl-bench info glyphs/10 vpt-nsp2`, or neither")
    typer.echo("\n".join(inspect.system_lines() if benchmark is None else inspect.setting_lines(benchmark, method, preset)))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a run failed, 2 the input cannot be used, 130 stopped by the user."""
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        code = app(args=arguments or ["--help"], standalone_mode=False, prog_name="cl-bench")
    except UsageError as error:
        _exit(" ".join(error.format_message().split()), 2)
    except InputError as error:
        _exit(str(error), 2)
    except RunFailed as error:
        _exit(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        code = STOPPED
    except BrokenPipeError:  # such as `cl-bench ls backbones | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    if code == STOPPED:
        _exit("stopped; finished tasks are kept, the same command continues", STOPPED)
    sys.exit(code or 0)


def _exit(message: str, code: int) -> None:
    typer.echo(f"error: {message}", err=True)
    sys.exit(code)
