"""A small run on toy images that several test files execute."""

import pytest

from cl_bench.errors import RunFailed
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.records.store import Store
from cl_bench.run import runner
from cl_bench.run.learning import Conditions

QUICK = {"passes": 4, "batch": 8, "epoch_mode": "plain", "temperature": 4.0}


def plan(base, /, **changes):
    return make_plan(Request(**{**base, **changes}))


def spec_of(base, methods="nsp2", **changes):
    return plan(base, methods=methods, **changes).specs[0]


def execute(spec, root, said=None, progress=lambda p: None, **terms):
    return runner.run(
        spec, Store(root), Conditions(**terms), (said if said is not None else []).append, progress
    )


def run_until(spec, root, task, pass_number=1, **terms):
    def progress(p):
        if p.task == task and p.done_passes == pass_number:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(spec, root, progress=progress, **terms)


def fail(spec, root, task):
    """Run until something in the method goes wrong in this task."""

    def progress(now):
        if now.task == task:
            raise ArithmeticError("a singular matrix")

    with pytest.raises(RunFailed, match="a singular matrix"):
        execute(spec, root, progress=progress)
