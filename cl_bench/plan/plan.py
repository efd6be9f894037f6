"""From what a user asks for to the list of fully resolved runs, before any training."""

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from cl_bench import environment
from cl_bench.devices import devices
from cl_bench.errors import InputError
from cl_bench.plan import budget, online, versions
from cl_bench.plan.answer import Plan
from cl_bench.plan.cost import costs
from cl_bench.plan.expand import parts
from cl_bench.plan.request import Request
from cl_bench.plan.resolve import Opened, Resolver
from cl_bench.plugins import registry
from cl_bench.records.spec import Precision, RunSpec, Size
from cl_bench.records.store import Store
from cl_bench.text.escape import visible


def plan_for(request: Request, asked: str, results: Path, sized: bool = False, counted: bool = False) -> Plan:
    """The plan of a request in the precision that is usual on the devices asked for, with its hints.

    `sized` adds how much each of several runs is to do, for which data and networks are opened; `counted` is
    as of `make_plan`.
    Raises as `make_plan`, `devices` and `hints`.
    """
    plan = make_plan(request, environment.usual_precision(devices(asked)), counted)
    found = versions.hints(plan.specs, Store(results), any_precision="precision" not in request.set)
    sizes = {
        run: Size(sum(cost.forwards) + sum(cost.evaluating), sum(cost.images))
        for run, cost in costs(plan.specs if sized and len(plan.specs) > 1 else ()).items()
    }
    return replace(plan, hints=found, sizes=sizes)


def make_plan(request: Request, precision: Precision = "fp32", counted: bool = False) -> Plan:
    """Every run of benchmarks x backbones x splits x seeds x methods x grid.

    They are in `precision` unless the request sets another. With `counted` they are known by the numbers that
    data sets declare and the networks' shapes, and none of them is one that can be carried out. Raises
    InputError for the first thing that cannot run.
    """
    opened = Opened(counted)
    single = parts(request)
    specs = [spec for part in single for spec in Resolver(part, precision, opened).specs()]
    specs = online.shown_once(specs, single[0].grouped, opened)
    if request.memory_budget is not None:
        specs = budget.within(specs, budget.read(request.memory_budget), single[0].grouped, opened)
    absent = [*single[0].left_out, *opened.left_out()]
    if not specs:
        raise InputError(f"no method of the groups asked for can be run: {'; '.join(absent)}")
    unique = {spec.run_id(): spec for spec in specs}
    for spec in unique.values():
        _require_text(spec)
    remarks, warnings = [*opened.remarks, *_partly_diagnosed(unique.values())], list(opened.warnings)
    if len(unique) < len(specs):
        twice = f"{len(specs) - len(unique)} of {len(specs)} runs are asked for twice (equal settings)"
        warnings.append(f"{twice}; each runs once")
    return Plan(list(unique.values()), warnings, remarks, precision, left_out=absent)


def _partly_diagnosed(specs: Iterable[RunSpec]) -> list[str]:
    """A sentence about methods to be diagnosed that have no prompts in blocks, none where all have."""
    asked = dict.fromkeys(spec.method for spec in specs if spec.diagnose)
    found = [name for name in asked if getattr(registry.method_class(name), "layer_prompts", None) is None]
    measured = "--diagnose measures drift of features, scores and answers alone"
    return [f"{', '.join(found)}: without prompts that blocks share, {measured}"] if found else []


def _require_text(spec: RunSpec) -> None:
    """Raise InputError for the name of a file or folder that no record can hold: not all of it is UTF-8."""
    for name in filter(None, (spec.dataset_argument, spec.backbone.weights, *shlex.split(spec.command))):
        if not name.isprintable() and any("\ud800" <= character <= "\udfff" for character in name):
            advice = "rename it, or link to it under another name"
            raise InputError(f"{visible(name)}: the name is not in UTF-8; {advice}")
