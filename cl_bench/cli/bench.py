"""The command that measures speed. It parses and prints, and decides nothing."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cl_bench.cli import options as opt
from cl_bench.cli.app import app
from cl_bench.cli.grouped import Grouped
from cl_bench.text import output

Optional = typer.Option


@app.command(cls=Grouped)
@opt.takes_request
def bench(
    request, device: opt.Device = "auto",
    threads: Annotated[int, Optional(min=1, help="processor threads")] = 1,
    pairs: Annotated[int, Optional(min=1, help="measurements, of which the median counts")] = 7,
    compiled: opt.Compile = None,
    random_weights: Annotated[
        bool,
        Optional("--random-weights", help="for --backbone without its weights, on which no speed depends"),
    ] = False,
    json: Annotated[Path | None, Optional("--json", help="file for the numbers")] = None,
) -> None:  # fmt: skip
    """Measure images per second of a method in training, statistics and evaluation.

    The bare network in the same process is what it is held against.
    """
    from cl_bench import devices
    from cl_bench.errors import InputError
    from cl_bench.launch import warm_processes
    from cl_bench.profiling import throughput as measuring

    found = warm_processes.called(
        measuring.measure,
        threads,
        request,
        devices.devices(device)[0],
        threads,
        pairs,
        random_weights,
        compiled,
        partial(output.say, err=True),
    )
    output.say(found.text())
    if json is not None:
        try:
            json.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {json}: {error.strerror}") from error
