"""Commands about what there is: data, settings, and the runs in a results folder.

They parse and print, and decide nothing.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from cl_bench.cli import options as opt
from cl_bench.cli.app import FIRST, app, counted, planned, show, show_listing, warn, were
from cl_bench.cli.grouped import Grouped
from cl_bench.errors import InputError, RunFailed
from cl_bench.text import output

Optional = typer.Option


@app.command()
def certify(
    run: Annotated[
        str,
        typer.Argument(help="run id or the beginning of one, see `cl-bench ls runs`, or the run's folder"),
    ],
    device: opt.Device = "auto",
    results: opt.Results = Path("results"),
    plugins: opt.Plugins = None,
) -> None:
    """Ask a finished run whether its predictions depend on the batch, as `run` does by itself.

    Images come alone, in batches, and in shuffled batches.
    """
    from cl_bench import devices as places
    from cl_bench.records.store import Store
    from cl_bench.run.recertify import recertify

    store = Store(results)
    spec = store.found_spec(run)
    recertify(spec, store, places.devices(device)[0], len(places.cores()), output.say)


@app.command(cls=Grouped)
@opt.takes_request
def status(
    request, devices: opt.Devices = "auto", results: opt.Results = Path("results"), json: opt.Json = False
) -> None:
    """Say which runs are finished, running, stopped, failed or missing.

    Those of the experiment given, or all in the results folder.
    """
    from cl_bench.plan.request import Request
    from cl_bench.records import status as reported
    from cl_bench.records.store import Store

    store = Store(results)
    if request == Request():
        return show_listing(reported.of_folder(store), json)
    show_listing(reported.of_plan(planned(request, devices, results).specs, store), json)


@app.command()
def clean(
    runs: Annotated[list[str] | None, typer.Argument(help="run ids or beginnings of them")] = None,
    failed: Annotated[bool, Optional("--failed", help="all failed runs without a finished task")] = False,
    damaged: Annotated[
        bool, Optional("--damaged", help="damaged records, and what was set aside from them")
    ] = False,
    first_tasks: Annotated[
        bool, Optional("--first-tasks", help="stored first tasks; runs keep what they took from them")
    ] = False,
    features: Annotated[
        bool, Optional("--features", help="kept features of frozen networks; they are computed again")
    ] = False,
    yes: Annotated[bool, Optional("--yes", help="do not ask")] = False,
    results: opt.Results = Path("results"),
) -> None:
    """Remove runs, or what is left of them, after asking.

    Nothing else is touched, nor anything that cannot be read.
    """
    from cl_bench.console import size
    from cl_bench.records import clean as cleaning
    from cl_bench.records.store import Store

    if not (runs or failed or damaged or first_tasks or features):
        raise InputError("name runs, or give --failed, --damaged, --first-tasks or --features")
    store = Store(results)
    choice = cleaning.choose(store, runs or [], failed, damaged, first_tasks)
    if features:
        from cl_bench.data import feature_store

        feature_store.offer(choice)
    warn(f"kept: {line}" for line in choice.kept)
    warn(choice.unreadable, FIRST)
    found = list(choice.unwanted.values())
    for item in found:
        output.say(f"{item.path}  {item.what}, {size(item.size_bytes)}")
    if not found:
        output.say("nothing to remove")
    elif yes or typer.confirm(f"remove these {len(found)} folders?"):
        cleaning.remove(store, found)
        output.say(f"{len(found)} folders removed")
    if choice.unreadable:
        raise RunFailed(
            f"{counted(len(choice.unreadable), 'run')} could not be read "
            f"and {were(len(choice.unreadable))} not removed"
        )


@app.command()
def report(
    layout: Annotated[
        Path | None, typer.Argument(help="TOML file of tables and figures, such as reports/nsp2-paper.toml")
    ] = None,
    results: opt.Results = Path("results"),
    out: opt.Out = Path("reports"),
    accuracy: Annotated[
        opt.AccuracyName | None,
        Optional(help="definition of average accuracy (default: the file's, or task_mean)"),
    ] = None,
    forgetting: Annotated[
        opt.ForgettingName | None,
        Optional(help="definition of forgetting (default: the file's, or chaudhry)"),
    ] = None,
    plugins: opt.Plugins = None,
) -> None:
    """Write the tables and figures that a file asks for or, without one, of every benchmark in the folder."""
    from cl_bench.report.figures import workers

    workers.prepare()
    from cl_bench.records.metrics import Conventions
    from cl_bench.records.store import Store
    from cl_bench.report import write

    store = Store(results)
    if layout is not None:
        return show(write.of_layout(layout, store, out, accuracy, forgetting))
    show(write.of_folder(store, out, Conventions(accuracy or "task_mean", forgetting or "chaudhry")))


@app.command()
def prepare(
    dataset: Annotated[
        str,
        typer.Argument(help="such as cifar100 or torchvision:Food101; see `cl-bench ls datasets`"),
    ],
    root: Annotated[
        Path | None,
        Optional(
            help="folder for its files, or where they are already (default: $CL_BENCH_DATA or the "
            "user's data folder)"
        ),
    ] = None,
    plugins: opt.Plugins = None,
) -> None:
    """Download, verify and unpack a data set; what is there already is verified and used.

    Nothing of yours is moved or deleted.
    """
    from cl_bench.plugins import registry

    name, _, place = dataset.partition(":")
    plugin = registry.find("datasets", name)
    named = getattr(plugin.load(), "PREPARE_NAMED", None)  # of a data set whose argument is no folder
    if named is not None:
        return named(place, root, output.say)
    if place and root is not None:
        raise InputError(f"prepare {dataset} names a folder already; leave out --root")
    make = getattr(plugin.load(), "PREPARE", None)
    if make is None:
        output.say(f"{plugin.name} needs no preparation")
    else:
        make(Path(place) if place else root, output.say)


@app.command("ls")
def list_things(
    what: Annotated[
        Literal["methods", "datasets", "backbones", "runs"],
        typer.Argument(help="methods, datasets, backbones or runs"),
    ],
    details: Annotated[bool, Optional("--details", help="of methods: all that their files say")] = False,
    results: opt.Results = Path("results"),
    json: opt.Json = False,
    plugins: opt.Plugins = None,
) -> None:
    """List methods, data sets, backbones or the runs in the results folder."""
    if what == "methods":
        from cl_bench.cli import method_list

        if json:
            return output.say_json({"methods": method_list.values()})
        return output.say_lines(method_list.lines(details))
    if details:
        raise InputError(f"--details is for methods; leave it out of `cl-bench ls {what}`")
    if what == "runs":
        from cl_bench.records import status as reported
        from cl_bench.records.store import Store

        return show_listing(reported.of_folder(Store(results)), json)
    from cl_bench.cli import listing

    if json:
        return output.say_json({what: listing.VALUES[what]()})
    output.say_lines(listing.LISTS[what]())


@app.command()
def new(
    kind: Annotated[Literal["method", "dataset"], typer.Argument(help="method or dataset")],
    name: Annotated[str, typer.Argument(help="lower-case words with hyphens, such as my-method")],
    folder: Annotated[
        Path, Optional("--in", help="folder whose methods/, datasets/ and tests/ it is")
    ] = Path(),
) -> None:
    """Start a method or a data set of your own: a plugin that runs, and its test, which passes."""
    from cl_bench.plugins import scaffold

    plugin, test = scaffold.start("methods" if kind == "method" else "datasets", name, folder)
    output.say_lines(f"written: {path}" for path in (plugin, test))
    output.say(f"try it: python -m pytest {test}")


@app.command()
def info(
    benchmark: Annotated[str | None, typer.Argument(help="such as glyphs/10")] = None,
    method: Annotated[str | None, typer.Argument(help="such as vpt-nsp2")] = None,
    preset: opt.Preset = None,
    plugins: opt.Plugins = None,
) -> None:
    """Print versions and folders or, for a benchmark and a method, every setting with where it comes from."""

    if (benchmark is None) != (method is None):
        raise InputError(
            "info takes a benchmark and a method, such as `cl-bench info glyphs/10 vpt-nsp2`, or neither"
        )
    from cl_bench.cli import listing

    if benchmark is None or method is None:
        return output.say_lines(listing.system_lines())
    output.say_lines(listing.setting_lines(benchmark, method, preset))
