"""Commands that train. They parse and print, and decide nothing; heavy imports happen inside them."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cl_bench.cli import options as opt
from cl_bench.cli.app import app, planned, remark, require_all, require_readable, show, warn
from cl_bench.cli.grouped import Grouped
from cl_bench.errors import InputError, RunFailed
from cl_bench.text import output

Optional = typer.Option


def _name_failures(outcomes) -> None:
    from cl_bench.records.spec import name

    failed = [outcome for outcome in outcomes if outcome.failure]
    for outcome in failed:
        output.say(f"{outcome.state}: {name(outcome.spec)}: {outcome.failure}", err=True)
    if failed:
        how = "the same command continues them from their last finished task"
        begun = [outcome for outcome in failed if outcome.trained]
        unread = (
            f"{len(failed) - len(begun)} of {len(outcomes)} runs could not be read and were not started; "
            if len(begun) < len(failed)
            else ""
        )
        raise RunFailed(
            f"{unread}{f'{len(begun)} of {len(outcomes)} runs did not finish; ' if begun else ''}{how}"
        )


def _written(outcomes: list, store, out: Path, accuracy, forgetting):
    """The report of what there is of these runs, written below `out` and printed."""
    from cl_bench.report.figures import workers

    workers.prepare()
    from cl_bench.records.metrics import Conventions
    from cl_bench.records.store import LeftOut
    from cl_bench.report import write

    left_out = [
        LeftOut(store.folder(each.spec) / "record.json", "unreadable", each.failure, each.spec)
        for each in outcomes
        if each.failure and not each.trained
    ]
    records = [outcome.record for outcome in outcomes if outcome.record]
    report = write.of_records(records, store, out, Conventions(accuracy, forgetting), left_out)
    show(report, strict=False)
    return report


@app.command(cls=Grouped)
@opt.takes_request
def run(
    request, devices: opt.Devices = "auto", jobs: opt.Jobs = None, per_gpu: opt.PerGpu = 1,
    gpus_per_run: opt.GpusPerRun = 1, time_limit: opt.TimeLimit = None,
    retry: opt.Retry = True, share: opt.Share = True, threads: opt.Threads = None,
    compiled: opt.Compile = None, scheduler: opt.Scheduler = None,
    quiet: opt.Quiet = False, verbose: opt.Verbose = False,
    dry_run: Annotated[bool, Optional("--dry-run", help="as `cl-bench plan`")] = False,
    results: opt.Results = Path("results"), out: opt.Out = Path("reports"),
    accuracy: opt.Accuracy = "task_mean", forgetting: opt.Forgetting = "chaudhry",
) -> None:  # fmt: skip
    """Train methods on a class-incremental stream and print the table.

    Repeating the command continues what was interrupted.
    """
    from cl_bench import devices as places
    from cl_bench import splits
    from cl_bench.launch.warm_processes import Starter
    from cl_bench.notation import parse_seeds
    from cl_bench.plan.request import count_methods, parse_duration
    from cl_bench.plugins.groups import expanded
    from cl_bench.trackers import named

    if dry_run:
        return plan_(request, devices, jobs, per_gpu, threads, share, results, gpus_per_run)
    level = opt.level(quiet, verbose)
    limit = None if time_limit is None else parse_duration(time_limit)
    expected = 0  # at most
    for single in request.each:
        methods = count_methods(expanded(single.methods).methods)
        expected += methods * len(splits.listed(single.splits)) * len(parse_seeds(single.seeds))
    with Starter() as starter:
        if scheduler is None:
            starter.prepare(threads or places.share(jobs or expected))
        from rich.console import Console

        from cl_bench.launch import orchestrator
        from cl_bench.records.asked import lacking
        from cl_bench.records.store import Store

        plan, store = planned(request, devices, results, starter.call, True), Store(results)
        warn(plan.warnings) if quiet else remark(plan)
        terms = (devices, jobs, per_gpu, gpus_per_run, threads, limit, compiled, retry, share, scheduler)
        launch = orchestrator.LaunchOptions(*terms, named.chosen(request.track), level)
        outcomes = orchestrator.execute(plan.specs, store, launch, Console(stderr=True), starter, plan.sizes)
    if all(outcome.record and not outcome.trained for outcome in outcomes):
        output.say("nothing to train: every run of this command is finished", err=True)
    records = [outcome.record for outcome in outcomes if outcome.record]
    warn(lacking(records, request.measured))
    report = _written(outcomes, store, out, accuracy, forgetting) if records else None
    _name_failures(outcomes)
    if report:
        require_all(report.left_out)


@app.command("plan", cls=Grouped)
@opt.takes_request
def plan_command(
    request, devices: opt.Devices = "auto", jobs: opt.Jobs = None, per_gpu: opt.PerGpu = 1,
    threads: opt.Threads = None, share: opt.Share = True, results: opt.Results = Path("results"),
    gpus_per_run: opt.GpusPerRun = 1,
    probe: Annotated[
        bool, Optional("--probe", help="time ten steps of methods that have not run here")
    ] = False,
    declared: Annotated[
        bool, Optional("--declared", help="without data and weights, by the numbers that data sets declare")
    ] = False,
    speed: Annotated[
        float | None,
        Optional(min=1, help="forward-equivalents a second, taken for granted where none was measured"),
    ] = None,
    json: opt.Json = False,
) -> None:  # fmt: skip
    """Print the runs that `run` with the same options makes, which are finished, and what each costs."""
    if probe and declared:
        raise InputError("--probe needs the data, and --declared does without; leave out one of them")
    if probe and gpus_per_run > 1:
        raise InputError("--probe times one device, not several for each run; leave out --gpus-per-run")
    taken = (probe, declared, speed)
    plan_(request, devices, jobs, per_gpu, threads, share, results, gpus_per_run, json, *taken)


def plan_(
    request,
    devices: str,
    jobs: int | None,
    per_gpu: int,
    threads: int | None,
    share: bool,
    results: Path,
    gpus_per_run: int,
    json: bool = False,
    probe: bool = False,
    declared: bool = False,
    speed: float | None = None,
) -> None:
    """The body of `plan` and of `run --dry-run`."""
    from cl_bench import devices as places
    from cl_bench.plan.forecast import Assumed, forecast
    from cl_bench.records import states
    from cl_bench.records.store import Store

    plan = planned(request, devices, results, counted=declared)
    where = places.places(places.devices(devices), len(plan.specs), jobs, per_gpu, threads, gpus_per_run)
    found = states.of_plan(plan.specs, Store(results))

    def probed(specs: list):
        from cl_bench import environment
        from cl_bench.launch import warm_processes
        from cl_bench.profiling.probe import measure

        if not specs:
            return {}
        device = where[0].device
        compiled, aside = environment.compiles(None, device), partial(output.say, err=True)
        return warm_processes.called(measure, where[0].threads, specs, device, compiled, aside)

    probing, assumed = probed if probe else None, Assumed(declared, speed)
    made = forecast(plan.specs, Store(results), where, share, found, probing, assumed)
    output.say_json(made.values) if json else output.say_lines(made.lines)
    remark(plan)
    require_readable(found)


@app.command(cls=Grouped)
@opt.takes_request
def tune(
    request,
    grid: Annotated[
        Path, Optional(help="YAML file that maps options to values to try, such as eta: [0.9, 0.97]")
    ],
    devices: opt.Devices = "auto",
    jobs: opt.Jobs = None,
    per_gpu: opt.PerGpu = 1,
    results: opt.Results = Path("results"),
    out: Annotated[Path, Optional(help="file for the chosen values")] = Path("tuned.yaml"),
    accuracy: opt.Accuracy = "task_mean",
) -> None:
    """Try a grid of settings on a held-out quarter of the training images, and write the best for `run`."""
    from rich.console import Console

    from cl_bench.files import write_atomically
    from cl_bench.launch import orchestrator
    from cl_bench.plan import tune as search
    from cl_bench.records.metrics import Conventions
    from cl_bench.records.store import Store
    from cl_bench.trackers import named

    tried, conventions = search.read_grid(grid), Conventions(accuracy)
    request = search.with_grid(request, tried)
    plan = planned(request, devices, results, sized=True)
    remark(plan)
    launch = orchestrator.LaunchOptions(devices, jobs, per_gpu, track=named.chosen(request.track))
    outcomes = orchestrator.execute(
        plan.specs, Store(results), launch, Console(stderr=True), sizes=plan.sizes
    )
    _name_failures(outcomes)
    found = search.points(plan.specs, [outcome.record for outcome in outcomes if outcome.record], tried)
    chosen = search.choose(found, conventions)
    output.say(f"**{plan.specs[0].benchmark_name()}**\n\n{search.table(found, chosen, tried, conventions)}\n")
    for line in search.at_the_edge(chosen, tried):
        output.say(f"warning: {line}", err=True)
    try:
        write_atomically(out, search.settings_file(request, plan.specs, chosen, tried, conventions).encode())
    except OSError as error:
        raise InputError(
            f"cannot write {out}: {error.strerror or error}; choose another file with --out"
        ) from error
    output.say(f"written: {out}")


@app.command(cls=Grouped)
@opt.takes_request
def check(request, device: opt.Device = "auto", results: opt.Results = Path("results")) -> None:
    """Say what `run` with the same options would do, and what is wrong with it, without training."""
    from cl_bench import devices as places
    from cl_bench.plan import check
    from cl_bench.records import states
    from cl_bench.records.store import Store

    plan = planned(request, device, results)
    found = states.of_plan(plan.specs, Store(results))
    output.say_lines(check.plan_lines(plan, Store(results), places.devices(device), found))
    require_readable(found)
