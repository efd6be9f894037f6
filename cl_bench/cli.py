"""The command line: parses and prints, decides nothing; heavy imports happen inside the commands that need them."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

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

Methods = Annotated[str | None, Optional(help='such as "nsp2,pgp" or "nsp2[b1=on,b2=off,eta=0.9|1]"; a | list is a grid')]
Dataset = Annotated[str | None, Optional(help="glyphs (default), folder:PATH, ...; see `cl-bench ls datasets`")]
Splits = Annotated[str | None, Optional(help="number of tasks, or several: 10,20 (default 10)")]
Seeds = Annotated[str | None, Optional(help="how many (3: 2024 to 2026), or which, with a comma: 2024,2031 (default 1)")]
Order = Annotated[str | None, Optional(help="class order of every run: a seed, nsp2:SEED, natural, or a file (default: the run's seed)")]
InitSeed = Annotated[int | None, Optional(help="initialisation of every run, instead of the run's seed")]
DataSeed = Annotated[int | None, Optional(help="shuffling and augmentation of every run, instead of the run's seed")]
BackboneName = Annotated[str | None, Optional("--backbone", help="full timm tag, or timm name with --weights (default: the data set's own)")]
Weights = Annotated[str | None, Optional(help="local .safetensors or .pth file with timm's parameter names")]
ImageSize = Annotated[int | None, Optional(help="pixels; default: the checkpoint's own")]
Limit = Annotated[int | None, Optional(min=1, help="a trial: at most N training images in all, evenly over classes")]
Validation = Annotated[float | None, Optional(help="hold out this fraction of the training images and evaluate on it, not on the test set")]
Preset = Annotated[str | None, Optional(help="settings of a published paper, such as nsp2-paper, or none (default: the method's own paper's)")]
Set = Annotated[list[str] | None, Optional("--set", help="KEY=VALUE for every method that has it; also augment, crop_scale, precision; repeatable")]
Config = Annotated[Path | None, Optional(help="YAML file with the options above and set: {KEY: VALUE}; the command line wins")]
Device = Annotated[str, Optional(help="auto, cpu, cuda or cuda:N")]
Jobs = Annotated[int | None, Optional(min=1, help="runs at a time (default: one per core or GPU)")]
Results = Annotated[Path, Optional(help="folder of run records")]
Out = Annotated[Path, Optional(help="folder for tables and plots")]
Accuracy = Annotated[Literal["task_mean", "sample"], Optional(help="definition of average accuracy")]
Forgetting = Annotated[Literal["chaudhry", "max_including_last", "diagonal"], Optional(help="definition of forgetting")]


def _request(config: Path | None, settings: list[str] | None, **given):
    from cl_bench.plan import parse_settings, request_from

    return request_from({**given, "set": parse_settings(settings or [])}, config)


def _write_report(records, out, accuracy, forgetting) -> None:
    from cl_bench.report.select import Conventions
    from cl_bench.report.write import write

    text, paths = write(records, out, Conventions(accuracy, forgetting))
    typer.echo(text)
    typer.echo("written: " + ", ".join(map(str, paths)))


@app.command()
def run(
    methods: Methods = None, dataset: Dataset = None, splits: Splits = None, seeds: Seeds = None, order: Order = None,
    init_seed: InitSeed = None, data_seed: DataSeed = None, backbone: BackboneName = None, weights: Weights = None, image_size: ImageSize = None,
    limit: Limit = None, validation: Validation = None, preset: Preset = None, settings: Set = None, config: Config = None, device: Device = "auto",
    jobs: Jobs = None, results: Results = Path("results"), out: Out = Path("reports"), accuracy: Accuracy = "task_mean",
    forgetting: Forgetting = "chaudhry",
) -> None:  # fmt: skip
    """Train methods on a class-incremental stream and print the table. Repeating the command continues what was interrupted."""
    from rich.console import Console

    from cl_bench import orchestrator
    from cl_bench.plan import make_plan
    from cl_bench.record import Store

    console = Console(stderr=True)
    plan = make_plan(
        _request(
            config,
            settings,
            methods=methods,
            dataset=dataset,
            splits=splits,
            seeds=seeds,
            order=order,
            init_seed=init_seed,
            data_seed=data_seed,
            backbone=backbone,
            weights=weights,
            image_size=image_size,
            limit=limit,
            validation=validation,
            preset=preset,
        )  # fmt: skip
    )
    for warning in plan.warnings:
        typer.echo(f"warning: {warning}", err=True)
    outcomes = orchestrator.execute(plan.specs, Store(results), device, jobs, console)
    if not any(outcome.trained for outcome in outcomes):
        typer.echo("nothing to train: every run of this command is finished", err=True)
    records = [outcome.record for outcome in outcomes if outcome.record]
    if records:
        _write_report(records, out, accuracy, forgetting)
    failed = [outcome for outcome in outcomes if outcome.failure]
    for outcome in failed:
        typer.echo(f"failed: {orchestrator.name(outcome.spec)}: {outcome.failure}", err=True)
    if failed:
        raise RunFailed(f"{len(failed)} of {len(outcomes)} runs failed; the same command continues them from their last finished task")


@app.command("run-one")
def run_one(
    spec: Annotated[Path, typer.Argument(help="spec.json of a run, as `cl-bench run` writes it")],
    device: Device = "cpu",
    threads: Annotated[int, Optional(min=1, help="processor threads")] = 1,
    results: Results = Path("results"),
) -> None:
    """Run one specification in this process; `run` starts one of these per run."""
    from cl_bench import orchestrator, runner
    from cl_bench.progress import ProgressFile
    from cl_bench.record import Store

    resolved = runner.read_spec(spec)
    store = Store(results)
    device = orchestrator.devices(device)[0]
    progress = ProgressFile(store.folder(resolved) / "progress.json", resolved)
    runner.run(resolved, store, device, threads, typer.echo, progress)


@app.command()
def check(
    methods: Methods = None, dataset: Dataset = None, splits: Splits = None, seeds: Seeds = None, order: Order = None,
    init_seed: InitSeed = None, data_seed: DataSeed = None, backbone: BackboneName = None, weights: Weights = None, image_size: ImageSize = None,
    limit: Limit = None, validation: Validation = None, preset: Preset = None, settings: Set = None, config: Config = None, device: Device = "auto",
    results: Results = Path("results"),
) -> None:  # fmt: skip
    """Say what `run` with the same options would do, and what is wrong with it, without training."""
    from cl_bench import inspect, orchestrator
    from cl_bench.plan import make_plan
    from cl_bench.record import Store

    plan = make_plan(
        _request(
            config,
            settings,
            methods=methods,
            dataset=dataset,
            splits=splits,
            seeds=seeds,
            order=order,
            init_seed=init_seed,
            data_seed=data_seed,
            backbone=backbone,
            weights=weights,
            image_size=image_size,
            limit=limit,
            validation=validation,
            preset=preset,
        )  # fmt: skip
    )
    places = orchestrator.devices(device)
    typer.echo("\n".join(inspect.plan_lines(plan, Store(results), places)))


@app.command()
def report(
    results: Results = Path("results"), out: Out = Path("reports"), accuracy: Accuracy = "task_mean", forgetting: Forgetting = "chaudhry"
) -> None:
    """Write tables and plots of every run in the results folder."""
    from cl_bench.record import RunRecord, Store

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
    results: Results = Path("results"),
) -> None:
    """List methods, data sets, backbones or the runs in the results folder."""
    from cl_bench import inspect

    typer.echo("\n".join(inspect.LISTS[what](results)))


@app.command()
def info(
    benchmark: Annotated[str | None, typer.Argument(help="such as glyphs/10")] = None,
    method: Annotated[str | None, typer.Argument(help="such as vpt-nsp2")] = None,
    preset: Preset = None,
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
