"""A stream that shows every training image once: what it is called, who fits it, and that it is held to."""

import json

import numpy as np
import pytest
import torch
from runs import plan

from cl_bench.cli import listing
from cl_bench.errors import InputError, RunFailed
from cl_bench.run import assemble


@pytest.fixture
def plain(toy_request):
    return {**toy_request, "set": {}}


def test_it_is_a_benchmark_of_its_own_with_one_pass(plain):
    [once] = plan(plain, methods="seq", online=True).specs
    [usual] = plan(plain, methods="seq").specs
    assert once.online and once.split == "4-online" and once.benchmark_key().endswith("/4-online")
    assert once.options["passes"] == 1 and once.label == "vpt-seq"
    assert "every training image is shown once" in once.benchmark_name()
    assert once.benchmark_id() != usual.benchmark_id() and once.run_id() != usual.run_id()


def test_older_identities_say_nothing_of_it(plain):
    [usual] = plan(plain, methods="seq").specs
    assert "online" not in usual.identity()
    assert "online" not in json.dumps(usual.identity())


def test_a_benchmarks_name_asks_for_it_too(plain):
    named = {key: value for key, value in plain.items() if key not in ("dataset", "splits")}
    [spec] = plan(named, methods="seq", benchmarks=f"{plain['dataset']}/4-online").specs
    [asked] = plan(plain, methods="seq", online=True).specs
    assert spec.run_id() == asked.run_id()
    assert "--splits 4-online" in spec.command


def test_more_passes_are_refused(plain):
    with pytest.raises(InputError, match="passes=3: --online shows every training image once"):
        plan(plain, methods="seq[passes=3]", online=True)


@pytest.mark.parametrize(("method", "times"), [("nsp2", "2"), ("ranpac", "2"), ("pgp", "2")])
def test_a_method_that_looks_again_is_refused_by_name(plain, method, times):
    with pytest.raises(InputError, match=f"looks at an image {times} times in a task, and --online shows"):
        plan(plain, methods=method, online=True)


def test_and_left_out_of_a_group(plain):
    made = plan(plain, methods="paper,simplecil", online=True)
    fit = {spec.method for spec in made.specs}
    assert {"l2p", "dualprompt", "simplecil"} <= fit and "vpt-nsp2" not in fit
    assert any("vpt-nsp2" in line and "--online shows each once" in line for line in made.left_out)


def test_the_stream_holds_methods_to_it(plain):
    """Whatever a plan believed: a second look at any image, in any form, fails the run."""
    [spec] = plan(plain, methods="seq", online=True).specs
    stream = assemble.build_stream(spec, assemble.open_source(spec), torch.device("cpu"))
    task = stream.task(0)
    half = np.arange(len(task) // 2)
    task.augmented(half, 0)
    list(task.plain(4, np.arange(len(half), len(task))))
    with pytest.raises(RunFailed, match="an image of task 1 is asked for a second time"):
        task.augmented(half[:1], 1)
    with pytest.raises(RunFailed, match="second time"):
        list(task.plain(4))
    with pytest.raises(RunFailed, match="second time"):
        stream.task(1).augmented(np.array([0, 0]), np.array([0, 1]))
    again = stream.measured(0)
    assert sum(len(batch) for _ in range(2) for batch in again.plain(4)) == 2 * len(task)


def test_info_shows_the_settings_of_the_one_pass():
    lines = listing.setting_lines("glyphs/10-online", "seq", None)
    assert [line.split()[1] for line in lines if line.split()[0] == "passes"] == ["1"]
    assert any("every image is shown once" in line for line in lines)
