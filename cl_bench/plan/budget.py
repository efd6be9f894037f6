"""Runs that keep no more than so many bytes, of everything that a method keeps besides the backbone."""

from collections.abc import Sequence

from pydantic import ByteSize, TypeAdapter, ValidationError

from cl_bench.console import size
from cl_bench.errors import InputError
from cl_bench.plan.cost import costs
from cl_bench.plan.resolve import Opened
from cl_bench.records.spec import RunSpec


def read(text: str) -> int:
    """ "20MB" -> 20,000,000; "20MiB" is a little more. Raises InputError."""
    try:
        found = int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        found = 0
    if found < 1:
        raise InputError(f"--memory-budget {text!r}: expected a size in bytes, such as 20MB or 1.5GB")
    return found


def within(specs: Sequence[RunSpec], budget: int, grouped: frozenset[str], opened: Opened) -> list[RunSpec]:
    """The runs whose parameters, statistics, prototypes and images after the last task fit into the budget.

    Methods that groups brought and that do not fit are left out; raises InputError for one that was named.
    """
    found, kept = [], {run: cost.stored_bytes for run, cost in costs(specs).items()}
    for spec in specs:
        stored = kept[spec.run_id()]
        if stored <= budget:
            found.append(spec)
            continue
        more = f"keeps {size(stored)} after the last task, and --memory-budget allows {size(budget)}"
        opened.refuse(spec, grouped, more, "give a larger one, or smaller options")
    return found
