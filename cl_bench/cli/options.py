"""Options that several commands share."""

import functools
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from cl_bench.cli.grouped import complete_datasets, complete_methods, complete_trackers

Methods = Annotated[
    str | None,
    Option(
        help='such as "nsp2,pgp" or "nsp2[b1=on,b2=off,eta=0.9|1]"; a | list is a grid',
        autocompletion=complete_methods,
    ),
]
Benchmarks = Annotated[
    str | None, Option(help="instead of --dataset and --splits: cifar100/10,cifar100/20,imagenet-r/10")
]
Dataset = Annotated[
    str | None,
    Option(
        help="glyphs (default), folder:PATH, ...; see `cl-bench ls datasets`",
        autocompletion=complete_datasets,
    ),
]
Splits = Annotated[
    str | None,
    Option(help="number of equal tasks, or several: 10,20 (default 10); also B50-Inc10, or sizes: 50-10-40"),
]
Base = Annotated[int | None, Option(min=0, help="classes of the first task, with --increment: B50-Inc10")]
Increment = Annotated[int | None, Option(min=1, help="classes of every other task")]
Tasks = Annotated[str | None, Option(help="classes of each task, instead of --splits: 50,10,40")]
Online = Annotated[
    bool | None,
    Option("--online", help="show every training image once; methods that look again are refused"),
]
Seeds = Annotated[
    str | None, Option(help="how many (3: 2024 to 2026), or which, with a comma: 2024,2031 (default 1)")
]
Order = Annotated[
    str | None,
    Option(
        help="class order of every run: a seed, nsp2:SEED, pilot:SEED, natural, a file of classes in order, "
        "or positions:FILE with each class's place (default: the run's seed)"
    ),
]
InitSeed = Annotated[int | None, Option(help="initialization of every run, instead of the run's seed")]
DataSeed = Annotated[
    int | None, Option(help="shuffling and augmentation of every run, instead of the run's seed")
]
BackboneName = Annotated[
    str | None,
    Option(
        "--backbone",
        help="full timm tag, or several; or timm name with --weights (default: the data set's own)",
    ),
]
Weights = Annotated[str | None, Option(help="local .safetensors or .pth file with timm's parameter names")]
ImageSize = Annotated[int | None, Option(help="pixels; default: the checkpoint's own")]
Limit = Annotated[
    int | None, Option(min=1, help="a trial: at most N training images in all, evenly over classes")
]
Validation = Annotated[
    float | None,
    Option(help="hold out this fraction of the training images and evaluate on it, not on the test set"),
]
Preset = Annotated[
    str | None,
    Option(
        help="settings of a published paper, such as nsp2-paper, or none (default: the method's own paper's)"
    ),
]
AsPublished = Annotated[
    bool | None,
    Option(
        "--as-published",
        help="every method as its published code, known faults included; l2p[as_published] for one row",
    ),
]
Losses = Annotated[
    bool | None,
    Option(
        "--losses",
        help="after every task also measure the training losses of tasks 1 and 2, for the figure of losses",
    ),
]
Diagnose = Annotated[
    bool | None,
    Option("--diagnose", help="measure what each task does to old images; what is learned stays the same"),
]
Set = Annotated[
    list[str] | None,
    Option(
        "--set",
        help="KEY=VALUE for every method that has it (`cl-bench info` lists them); also augment, crop_scale, "
        "precision; repeatable",
    ),
]
Augmenter = Annotated[
    Literal["batched", "torchvision"] | None,
    Option(
        "--augmenter",
        help="what carries out the augmentation that --set augment=... names: batches on the device "
        "(default), or torchvision and Pillow, image by image",
    ),
]
Track = Annotated[
    str | None,
    Option(
        help="send losses, accuracies and settings of each run to tensorboard, wandb, mlflow, or another "
        "package's tracker; several with commas",
        autocompletion=complete_trackers,
    ),
]
Verify = Annotated[
    bool | None,
    Option("--verify", help="read every file of the data set again, whatever its time stamps say"),
]
Yes = Annotated[bool | None, Option("--yes", help="more than 10,000 runs")]
Experiment = Annotated[
    Path | None,
    Argument(
        help="YAML file with the options below, lists of methods, benchmarks and backbones, set: and grid:; "
        "the command line wins"
    ),
]
Device = Annotated[
    str,
    Option(
        help="auto, cpu, cuda or cuda:N; for run-one also several, such as cuda:0,cuda:1, which share batches"
    ),
]
Devices = Annotated[
    str, Option("--devices", "--device", help="auto, cpu, cuda, cuda:N, or several: cuda:0,cuda:2")
]
PerGpu = Annotated[int, Option(min=1, help="runs at a time on each GPU")]
GpusPerRun = Annotated[
    int, Option(min=1, help="GPUs that share every batch of a run, for one run in less time")
]
Compile = Annotated[
    bool | None, Option("--compile/--no-compile", help="torch.compile the frozen network (default: on GPUs)")
]
Threads = Annotated[
    int | None,
    Option(min=1, max=4096, help="processor threads of each run (default: its share of the cores)"),
]
Scheduler = Annotated[
    str | None, Option(help="address of a Dask scheduler, such as tcp://host:8786: runs go to its workers")
]
TimeLimit = Annotated[
    str | None, Option(help="of one run, such as 90m, 2h30m or 3600 (seconds); it can be continued")
]
Retry = Annotated[
    bool, Option("--retry/--no-retry", help="after out-of-memory, once with smaller steps of the same batch")
]
Share = Annotated[
    bool,
    Option(
        "--share/--no-share",
        help="train a first task once for all runs that differ only in what happens later",
    ),
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="no progress: warnings, failures and the table alone")]
Verbose = Annotated[bool, Option("--verbose", "-v", help="a line for every pass where there is no terminal")]
Json = Annotated[bool, Option("--json", help="print JSON")]
Jobs = Annotated[int | None, Option(min=1, help="runs at a time (default: one per core or GPU)")]
Results = Annotated[Path, Option(help="folder of run records")]
Out = Annotated[Path, Option(help="folder for tables and plots")]
AccuracyName = Literal["task_mean", "sample"]
ForgettingName = Literal["chaudhry", "max_including_last", "diagonal"]
Accuracy = Annotated[AccuracyName, Option(help="definition of average accuracy")]
Forgetting = Annotated[ForgettingName, Option(help="definition of forgetting")]


def _use_plugins(folders: list[Path] | None) -> list[Path] | None:
    if folders:
        from cl_bench.plugins import search_path

        search_path.use(folders)
    return folders


Plugins = Annotated[
    list[Path] | None,
    Option(
        "--plugins",
        callback=_use_plugins,
        is_eager=True,
        help="folder with methods/ and datasets/ of your own, besides $CL_BENCH_PLUGINS",
    ),
]

MemoryBudget = Annotated[
    str | None,
    Option(help="refuse methods that keep more than this after the last task, the backbone left out: 20MB"),
]

REQUEST = {
    "methods": Methods, "benchmarks": Benchmarks, "dataset": Dataset, "splits": Splits,
    "base": Base, "increment": Increment, "tasks": Tasks, "online": Online, "seeds": Seeds,
    "order": Order, "init_seed": InitSeed, "data_seed": DataSeed, "backbone": BackboneName,
    "weights": Weights, "image_size": ImageSize, "limit": Limit, "validation": Validation,
    "memory_budget": MemoryBudget, "preset": Preset,
    "as_published": AsPublished, "losses": Losses, "diagnose": Diagnose, "settings": Set,
    "augmenter": Augmenter, "yes": Yes, "verify": Verify, "track": Track, "plugins": Plugins,
}  # fmt: skip


def level(quiet: bool, verbose: bool) -> int:
    """How much is said, see `cl_bench.launch.monitor`. Raises InputError."""
    if quiet and verbose:
        from cl_bench.errors import InputError

        raise InputError("give --quiet or --verbose, not both")
    return int(verbose) - int(quiet)


def takes_request(command: Callable) -> Callable:
    """Give a command, in place of its parameter `request`, the options that say what to run."""
    own = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for name, parameter in signature(command).parameters.items()
        if name != "request"
    ]
    shared = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in {"experiment": Experiment, **REQUEST}.items()
    ]

    @functools.wraps(command)
    def wrapped(**values):
        from cl_bench.plan.expand import require_known
        from cl_bench.plan.request import parse_settings, request_from

        experiment, given = values.pop("experiment"), {name: values.pop(name) for name in REQUEST}
        settings, _ = given.pop("settings"), given.pop("plugins")
        request = request_from({**given, "set": parse_settings(settings or [])}, experiment)
        require_known(request)
        return command(request, **values)

    vars(wrapped)["__signature__"] = Signature([*shared, *own])
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in [*shared, *own]}
    return wrapped
