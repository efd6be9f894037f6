"""Planning and running from Python, as `cl-bench plan` and `cl-bench run` do."""

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from cl_bench import devices as places
from cl_bench.api.names import NAMED, named
from cl_bench.api.runs import Runs
from cl_bench.errors import RunFailed
from cl_bench.launch import orchestrator
from cl_bench.launch.warm_processes import Starter
from cl_bench.plan.answer import Plan
from cl_bench.plan.request import Request, parse_duration, request_from
from cl_bench.records import states
from cl_bench.records.asked import lacking
from cl_bench.records.frames import frame
from cl_bench.records.store import Store
from cl_bench.trackers.named import require

COSTS = ("state", "forwards", "images", "trained_parameters", "stored_bytes", "prediction_passes")


def plan(
    methods: str | Sequence[str],
    benchmark: str | Sequence[str] = "glyphs/10",
    *,
    seeds: int | Sequence[int] = 1,
    results: str | Path = "results",
    devices: str = "auto",
    **options: Any,
) -> pd.DataFrame:
    """The runs that `run` with the same arguments makes, a row each: their names, and what they cost.

    `state` is "finished", "stopped", "failed", "missing", ...; `forwards` are forward passes of one image, or
    as much work; `images` pass through the network while learning; `stored_bytes` are kept after the last
    task. Raises InputError, as `run`.
    """
    from cl_bench.plan.cost import costs
    from cl_bench.plan.plan import plan_for

    made = plan_for(_request(methods, benchmark, seeds, options), devices, Path(results))
    _warn(made)
    found, names, lines = states.of_plan(made.specs, Store(Path(results))), named(made.specs), []
    for spec, cost in zip(made.specs, costs(made.specs).values(), strict=True):
        numbers = {
            "state": found[spec.run_id()].name,
            "forwards": sum(cost.forwards) + sum(cost.evaluating),
            "images": sum(cost.images),
            "trained_parameters": cost.parameters,
            "stored_bytes": cost.stored_bytes,
            "prediction_passes": cost.prediction_passes,
        }
        lines.append({**names[spec.run_id()], **numbers})
    return frame(lines, (*NAMED, *COSTS))


def run(
    methods: str | Sequence[str],
    benchmark: str | Sequence[str] = "glyphs/10",
    *,
    seeds: int | Sequence[int] = 1,
    results: str | Path = "results",
    devices: str = "auto",
    jobs: int | None = None,
    threads: int | None = None,
    time_limit: str | None = None,
    quiet: bool = False,
    track: str | Sequence[str] | None = None,
    **options: Any,
) -> Runs:
    """Train what is not finished yet, and return all runs asked for.

    `methods` is "nsp2,pgp", "nsp2[eta=0.9|1]" or a list; `seeds` says how many, or which. `options` are those
    of a YAML experiment: order, backbone, weights, image_size, limit, validation, preset, as_published, set,
    grid, ...; see `cl-bench run --help`. `track` names experiment trackers: "tensorboard,mlflow", or a list.
    Progress is shown on standard error unless `quiet`. Raises InputError for what cannot be used, RunFailed
    when a run failed (the others are finished, and kept).
    """
    request, store = _request(methods, benchmark, seeds, options), Store(Path(results))
    limit = None if time_limit is None else parse_duration(time_limit)
    trackers = require(track if track is None or isinstance(track, str) else ",".join(track))
    launch = orchestrator.LaunchOptions(devices, jobs, threads=threads, time_limit=limit, track=trackers)
    with Starter() as starter:
        starter.prepare(threads or places.share(jobs or 1))
        made = starter.call("cl_bench.plan.plan:plan_for", request, devices, store.root, True)
        _warn(made)
        console = Console(stderr=True, quiet=quiet)
        outcomes = orchestrator.execute(made.specs, store, launch, console, starter, made.sizes)
    failed = [outcome.failure for outcome in outcomes if outcome.failure]
    if failed:
        more = f", and {len(failed) - 1} more runs" if len(failed) > 1 else ""
        raise RunFailed(f"{failed[0]}{more}; the same call goes on with what is not finished")
    records = [outcome.record for outcome in outcomes if outcome.record]
    for line in lacking(records, request.measured):
        warnings.warn(line, stacklevel=2)
    return Runs(store, records)


def _request(
    methods: str | Sequence[str], benchmark: str | Sequence[str], seeds: int | Sequence[int], options: dict
) -> Request:
    """The request of these arguments. Raises InputError."""
    asked = {
        "methods": methods if isinstance(methods, str) else ",".join(methods),
        "benchmarks": benchmark if isinstance(benchmark, str) else ",".join(benchmark),
        "seeds": str(seeds) if isinstance(seeds, int) else ",".join(map(str, seeds)) + ",",
    }
    if "dataset" in options or "splits" in options or "tasks" in options or "increment" in options:
        del asked["benchmarks"]
    return request_from({**options, **asked}, None)


def _warn(made: Plan) -> None:
    """What the plan remarks, as Python's warnings, each once."""
    for line in (*made.left_out, *made.hints, *made.warnings):
        warnings.warn(line, stacklevel=3)
    for line in made.remarks:
        print(line, file=sys.stderr)
