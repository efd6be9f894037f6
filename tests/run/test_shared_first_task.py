"""Runs that share their first task: every record is, bit for bit, that of a run by itself."""

import pytest
import runs
import toys

from cl_bench import environment
from cl_bench.plugins import registry
from cl_bench.records import first_task_files
from cl_bench.records.store import Store
from cl_bench.run import shared_first_task
from cl_bench.run.learning import Conditions

TASKS = [[2, 0], [1, 3, 4], [5, 6]]
SHARING = sorted(
    name for name in registry.plugins("methods") if "TRUNK" in registry.method_class(name).__dict__
)


def keys(*specs):
    return [shared_first_task.key(spec, environment.machine("cpu", 1)) for spec in specs]


@pytest.mark.slow
@pytest.mark.parametrize(
    "methods",
    [
        "seq,nsp2,nsp2[eta=0.5]",
        pytest.param("seq,nsp2,pgp,nsp2[eta=0.5],nsp2[b1=off]", marks=pytest.mark.faults),
    ],
)
def test_variants_share_one_training_and_their_records_are_those_of_runs_alone(
    toy_request, tmp_path, methods
):
    from cl_bench.plan.plan import make_plan
    from cl_bench.plan.request import Request

    specs = make_plan(Request(**{**toy_request, "methods": methods})).specs
    assert len(set(keys(*specs))) == 1
    trained = []
    for spec in specs:
        counted = []
        together = runs.execute(
            spec,
            tmp_path / "shared",
            progress=lambda p, counted=counted: counted.append(p.task) if p.learned == p.task else None,
            share_first_task=True,
        )
        alone = runs.execute(spec, tmp_path / "alone")
        assert together.outcome() == alone.outcome()
        trained.append(0 in counted)
        assert together.tasks[0].first_task_of == (
            None if trained[-1] and len(trained) == 1 else specs[0].run_id()
        )
        assert alone.tasks[0].first_task_of is None
    assert trained == [True] + [False] * (len(specs) - 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARING)
def test_every_method_that_shares_goes_on_from_the_stored_task_as_from_its_own(name, tmp_path):
    """The first task is trained by the family's first method here, the rest by the method itself."""
    kind = registry.method_class(name)
    first = next(
        other for other in SHARING if registry.method_class(other).__dict__["TRUNK"] is kind.__dict__["TRUNK"]
    )

    def learned(method, trunk):
        stream = toys.stream(TASKS)
        for index in range(stream.num_tasks):
            trainer = toys.learn(
                method, stream, index + 1, index, **({"first_task": trunk} if trunk and index == 0 else {})
            )[0]
            if index == 0:
                seen, losses, said = trainer.images_seen, list(trainer.pass_losses), method.diagnostics()
        return method.state(), seen, losses, said

    passes = {"passes": 3}
    alone = learned(toys.method(name, 3, **passes), None)
    learned(toys.method(first, 3, **passes), shared_first_task.StoredFirstTask(tmp_path, "a"))
    trunk = shared_first_task.StoredFirstTask(tmp_path, "b")
    shared = learned(toys.method(name, 3, **passes), trunk)
    assert trunk.trained_by == "a" and trunk.borrowed_seconds > 0
    assert shared[1:] == alone[1:]
    assert (
        all((shared[0][key] == alone[0][key]).all() for key in alone[0])
        and shared[0].keys() == alone[0].keys()
    )


def test_whatever_decides_the_first_task_is_in_its_key(toy_request, monkeypatch):
    def spec(methods="nsp2", **changes):
        return runs.spec_of(toy_request, methods, **changes)

    base = keys(spec())[0]
    for other in (spec("nsp2[eta=0.1,b2=off]"), spec("seq"), spec("pgp[energy=0.9]")):
        assert keys(other)[0] == base
    changes = [
        {"methods": "nsp2[prompts=5]"},
        {"init_seed": 3},
        {"data_seed": 3},
        {"order": "7"},
        {"splits": "2"},
        {"limit": 40},
        {"validation": 0.3},
    ]
    changes += [
        {"set": {**runs.QUICK, "passes": 5}},
        {"set": {**runs.QUICK, "crop_scale": 0.5}},
        {"set": {**runs.QUICK, "precision": "bf16"}},
    ]
    changes += [{"methods": "pgp[pgp_wd=before]"}]
    found = keys(*(spec(**{"methods": "nsp2", **change}) for change in changes))
    assert len({base, *found}) == len(changes) + 1
    assert shared_first_task.key(spec(), environment.machine("cpu", 2)) != base
    monkeypatch.setattr(registry.method_class("vpt-nsp2"), "version", 9)
    assert keys(spec())[0] != base


def test_a_method_that_inherits_from_one_that_shares_does_not_share():
    class Changed(registry.method_class("vpt-nsp2")):
        pass

    assert (
        Changed.trunk(Changed.Config()) is None and registry.method_class("coda-prompt").trunk(None) is None
    )


def test_a_damaged_first_task_is_trained_again(toy_request, tmp_path):
    spec = runs.spec_of(toy_request, "seq")
    alone = runs.execute(spec, tmp_path / "alone")
    runs.execute(runs.spec_of(toy_request), tmp_path / "shared", share_first_task=True)
    [stored] = (tmp_path / "shared" / "first-tasks").glob("*/trained.safetensors")
    stored.write_bytes(stored.read_bytes()[:-3] + b"abc")
    record = runs.execute(spec, tmp_path / "shared", share_first_task=True)
    assert record.outcome() == alone.outcome() and record.tasks[0].first_task_of is None
    assert (
        first_task_files.is_stored(Store(tmp_path / "shared"), keys(spec)[0])
        and Conditions().share_first_task is False
    )
