"""Several processes that share a run's batches come to the result of one, up to rounding."""

import multiprocessing
import os
import threading

import numpy as np
import pytest
import runs
import torch
import toys
from torch import distributed as dist

from cl_bench.devices import places
from cl_bench.errors import InputError, Stopped
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.records.store import Store
from cl_bench.run import checkpoints, runner
from cl_bench.run.learning import Conditions
from cl_bench.training import distributed
from cl_bench.training.distributed import ProcessGroup
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer


def learned(spec, root, helpers=(), **terms):
    store, said = Store(root), []
    record = runner.run(spec, store, Conditions(helpers=helpers, **terms), said.append, lambda progress: None)
    return (
        record,
        checkpoints.load_tensors(next(store.folder(spec).glob("checkpoint-*")).read_bytes()),
        said,
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["vpt-nsp2", "vpt-pgp", "ease[dropout=0.0]", "aper[dropout=0.0]"])
def test_two_processes_learn_what_one_learns(toy_request, method, tmp_path):
    methods = f"{method},seq"  # which has all of the options that are set
    spec = make_plan(Request(**{**toy_request, "methods": methods, "splits": "2"})).specs[0]
    alone, own, _ = learned(spec, tmp_path / "alone")
    both, shared, _ = learned(spec, tmp_path / "both", ("cpu",))
    assert own.keys() == shared.keys()
    for name, value in own.items():
        assert torch.allclose(
            shared[name].double(),
            value.double(),
            rtol=1e-3,
            atol=1e-3 * float(value.double().abs().max() or 1),
        ), name
    assert any(
        not torch.equal(shared[name], own[name]) for name in own
    )  # the batches were shared: other sums, other last bits
    for one, other in zip(alone.tasks, both.tasks, strict=True):
        assert other.images_seen == one.images_seen and other.pass_losses == pytest.approx(
            one.pass_losses, rel=1e-3
        )
    assert alone.status == both.status == "done"
    assert both.environments[0]["devices"] == 2 and "devices" not in alone.environments[0]


@pytest.mark.slow
def test_a_shared_run_is_resumed_where_it_was_stopped(toy_request, tmp_path):
    [spec] = make_plan(Request(**{**toy_request, "methods": "nsp2", "splits": "2"})).specs
    whole, tensors, _ = learned(spec, tmp_path / "whole", ("cpu",))
    with pytest.raises(Stopped):
        learned(spec, tmp_path / "parts", ("cpu",), pause_after=0.0)
    record, resumed, said = learned(spec, tmp_path / "parts", ("cpu",))
    assert any("resuming after task 1" in line for line in said) and record.correct == whole.correct
    assert all(torch.equal(resumed[name], tensors[name]) for name in tensors)


def test_what_several_devices_cannot_share_is_refused(toy_request, tmp_path):
    [spec] = make_plan(
        Request(**{**toy_request, "methods": "nsp2", "splits": "2", "set": {**runs.QUICK, "batch": 2}})
    ).specs
    with pytest.raises(InputError, match="a batch of 2 images cannot be shared by 3 devices"):
        learned(spec, tmp_path, ("cpu", "cpu"))
    assert not dist.is_initialized()


def test_a_batch_is_cut_into_parts_that_differ_by_one_image_at_most():
    parts = [ProcessGroup(rank, 3).share(np.arange(8)).tolist() for rank in range(3)]
    assert parts == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert ProcessGroup().share(np.arange(3)).tolist() == [0, 1, 2]


def test_gpus_are_grouped_for_runs_and_what_does_not_fit_is_said():
    four = [f"cuda:{index}" for index in range(4)]
    assert [place.device for place in places(four, 10, gpus_per_run=2)] == ["cuda:0,cuda:1", "cuda:2,cuda:3"]
    assert [place.device for place in places(four, 10, gpus_per_run=3)] == ["cuda:0,cuda:1,cuda:2"]
    for found, settings, message in (
        (["cpu"], {}, "no usable GPU"),
        (four[:1], {}, "cuda:0 alone"),
        (four, {"per_gpu": 2}, "exclude each other"),
    ):
        with pytest.raises(InputError, match=message):
            places(found, 10, gpus_per_run=2, **settings)


@pytest.mark.slow
def test_a_process_that_ends_early_ends_the_run_with_a_reason(monkeypatch, tmp_path):
    with (
        pytest.raises(distributed.RunFailed, match="a process of this run ended with code 7"),
        distributed.process_group(("cpu", "cpu"), 1, _ends) as found,
    ):
        found.all_reduce_sum([torch.ones(1)])


@pytest.mark.parametrize(
    ("codes", "over", "expected"), [((0, 3), False, [3]), ((0, 0), False, []), ((0, 3), True, [])]
)
def test_where_nothing_interrupts_a_sum_the_process_ends_with_the_helper_that_failed(
    codes, over, expected, capsys
):
    context, event, ended = multiprocessing.get_context("spawn"), threading.Event(), []
    helpers = [context.Process(target=os._exit, args=(code,)) for code in codes]
    for helper in helpers:
        helper.start()
    if over:
        event.set()
    distributed.end_with(helpers, event, ended.append)
    assert ended == expected and ("ended with code 3" in capsys.readouterr().err) == bool(expected)


def test_no_part_is_learned_where_a_process_has_no_share_of_a_batch():
    class Elsewhere(distributed.ProcessGroup):
        def share(self, chosen):
            return chosen[:0]

    weight = torch.nn.Parameter(torch.zeros(1))
    trainer = Trainer(0, micro_batch=4, group=Elsewhere())
    trainer.fit(
        toys.stream([[0, 1]]).task(0),
        Phase(lambda batch: 1 / 0, lambda: torch.optim.SGD([weight], lr=1.0), 8, 1),
    )
    assert trainer.pass_losses == [0.0]


def _ends(found, device):
    os._exit(7)
