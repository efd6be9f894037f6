"""The command that makes one run of a request by itself, for whoever wants to repeat a number in a table."""

import shlex

from cl_bench import plugin_folders
from cl_bench.experiment import method_text
from cl_bench.request import Request, format_option

CARRIED = ("order", "init_seed", "data_seed", "backbone", "weights", "image_size", "limit", "validation", "preset", "augment")


def single_run(request: Request, method: str, options: dict, splits: int, seed: int, settings: dict, plugins: bool = False) -> str:
    """`cl-bench run` with one method, number of tasks and seed; `settings` are those of --set that mean something to the method, `plugins` says
    whether the user's own files are needed."""
    chosen = {"methods": method_text(method, {key: [value] for key, value in options.items()}), "dataset": request.dataset, "splits": splits}
    chosen |= {"seeds": f"{seed},"} | {name: getattr(request, name) for name in CARRIED if getattr(request, name) is not None}
    words = [word for name, value in chosen.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words += ["--losses"] if request.losses else []
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={format_option(value)}")]
    words += [word for folder in plugin_folders.asked() if plugins for word in ("--plugins", str(folder))]
    return shlex.join(["cl-bench", "run", *words])
