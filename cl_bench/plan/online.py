"""Runs that are shown every training image once: methods that look at one again do not fit."""

from collections.abc import Sequence

from cl_bench.plan.cost import costs
from cl_bench.plan.resolve import Opened
from cl_bench.records.spec import RunSpec


def shown_once(specs: Sequence[RunSpec], grouped: frozenset[str], opened: Opened) -> list[RunSpec]:
    """The runs but for online ones whose images pass more than once through the network while they learn.

    Methods that groups brought and that do so are left out; raises InputError for one that was named.
    """
    passing = costs([spec for spec in specs if spec.online])
    found = []
    for spec in specs:
        cost = passing.get(spec.run_id())
        if cost is None or max(cost.looks) <= 1:
            found.append(spec)
            continue
        again = f"looks at an image {max(cost.looks):.3g} times in a task, and --online shows each once"
        advice = "leave out --online: passes=1 trains on each once, and passes for statistics come beside"
        opened.refuse(spec, grouped, again, advice)
    return found
