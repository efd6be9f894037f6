"""Compiled kernels compute what plain ones do, serve all blocks, and are given up with a word if need be."""

import pytest
import runs
import torch
import toys
from torch._dynamo.utils import counters

from cl_bench import environment
from cl_bench.nn import kernel
from cl_bench.nn.prompts import DeepPrompts
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.records.store import Store
from cl_bench.run import assemble, runner
from cl_bench.run.learning import Conditions


@pytest.fixture(autouse=True)
def _plain_again():
    yield
    kernel.plain_all()
    torch._dynamo.reset()


def outcome(trunk, images, grad):
    prompts = DeepPrompts(4, 3, trunk.width, torch.Generator().manual_seed(1))
    with torch.enable_grad() if grad else torch.inference_mode():
        features = trunk.features(images, prompts)
        if grad:
            features.square().sum().backward()
    return features.detach(), prompts.P.grad if grad else torch.zeros(1)


@pytest.mark.slow
def test_compiled_blocks_share_their_graphs_and_leave_features_and_gradients_as_they_are(monkeypatch):
    trunk, said = toys.backbone(depth=4), []
    cases = [
        (torch.randn(count, 3, 16, 16), grad)
        for count, grad in ((8, True), (5, True), (6, True), (8, False), (3, False))
    ]
    plain = [outcome(trunk, images, grad) for images, grad in cases]
    kernel.compile_all(said.append, {8}, backend="aot_eager")
    counters.clear()
    for (images, grad), expected in zip(cases, plain, strict=True):
        for found, value in zip(outcome(trunk, images, grad), expected, strict=True):
            assert torch.allclose(found, value, atol=1e-5)
    # two kernels; the first block, whose input has no gradient, and the last, which computes one token, have
    # others; other batches run plainly
    graphs = counters["stats"]["unique_graphs"]
    assert 0 < graphs <= 2 * 3 + 2 * 2 and not said
    monkeypatch.setattr(kernel, "RARE", 0)
    found = outcome(trunk, cases[1][0], True)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(found, plain[1], strict=True))
    assert (
        graphs < counters["stats"]["unique_graphs"] <= graphs + 2 * 3
    )  # one that is not rare has graphs of its own


def test_calls_that_are_not_counted_leave_a_rare_batch_plain(monkeypatch):
    trunk, images, compiled = toys.backbone(depth=2), torch.randn(3, 3, 16, 16), []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph

    monkeypatch.setattr(kernel, "RARE", 5)
    kernel.compile_all(print, {8}, backend=backend)
    for _ in range(9):
        with kernel.uncounted():
            outcome(trunk, images, False)
    outcome(trunk, images, False)
    assert not compiled
    for _ in range(9):
        outcome(trunk, images, False)
    assert compiled


def test_what_cannot_be_compiled_runs_plainly_and_says_so_once():
    def fails(graph, inputs):
        raise RuntimeError("no compiler here")

    trunk, said = toys.backbone(depth=2), []
    images = torch.randn(3, 3, 16, 16)
    expected = outcome(trunk, images, False)[0]
    kernel.compile_all(said.append, {3}, backend=fails)
    assert torch.equal(outcome(trunk, images, False)[0], expected) and torch.equal(
        outcome(trunk, images, False)[0], expected
    )
    given_up = [each for each in kernel.Kernel.known if each.run is each.plain]  # those that the pass called
    assert len(said) == len(given_up) >= 2
    assert all(
        line.startswith("warning: torch.compile cannot be used here, the run goes on without it (")
        and "no compiler here" in line
        for line in said
    )


def test_a_processor_without_bf16_is_told_of(toy_request, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "has_bf16", lambda: False)
    said = []
    for number, precision in enumerate(("fp32", "bf16")):
        settings = {**runs.QUICK, "passes": 1, "precision": precision}
        [spec] = make_plan(Request(**{**toy_request, "methods": "seq", "splits": "2", "set": settings})).specs
        runner.run(spec, Store(tmp_path), Conditions(), said.append, lambda progress: None)
        assert any("has no bf16 arithmetic" in line for line in said) == bool(number)


@pytest.mark.parametrize(
    ("device", "asked", "compiled"), [("cpu", None, False), ("cpu", True, True), ("cpu", False, False)]
)
def test_a_run_compiles_where_it_is_asked_to(toy_request, tmp_path, monkeypatch, device, asked, compiled):
    called = []
    monkeypatch.setattr(assemble, "compile_all", lambda say, sizes: called.append(sizes))
    [spec] = make_plan(
        Request(**{**toy_request, "methods": "seq", "splits": "2", "set": {**runs.QUICK, "passes": 1}})
    ).specs
    runner.run(
        spec, Store(tmp_path), Conditions(device, compiled=asked), lambda line: None, lambda progress: None
    )
    assert called == [{8, 256, 100}] * compiled  # training, evaluation, statistics
