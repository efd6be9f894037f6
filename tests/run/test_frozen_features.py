"""Features of the frozen network outlive a run: other runs, methods and seeds take them, and count them."""

import shutil
from functools import partialmethod

import pytest
import torch
from filelock import FileLock
from runs import execute, plan, spec_of
from safetensors import safe_open
from safetensors.torch import save_file

from cl_bench.cli import main
from cl_bench.data.feature_store import LOCK, features_folder
from cl_bench.nn.backbone import Backbone, EditedBackbone
from cl_bench.run import assemble


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def passed(monkeypatch):
    """Images that went through settled networks for their features, those of the certificate too."""
    counts = []

    def counted(self, images, normed=True, *, whole):
        counts.append(len(images))
        return whole(self, images, normed)

    for kind in (Backbone, EditedBackbone):
        monkeypatch.setattr(kind, "frozen_features", partialmethod(counted, whole=kind.frozen_features))
    return counts


@pytest.fixture
def request_(toy_request):
    """Four tasks of toy images, every setting as it is."""
    return {**toy_request, "set": {}}


def images_of(spec):
    stream = assemble.build_stream(spec, assemble.open_source(spec), torch.device("cpu"))
    return sum(len(stream.task(index)) for index in range(stream.num_tasks)) + sum(stream.test_sizes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"seeds": "7,"}, {"splits": "2"}, {"methods": "l2p", "set": {"passes": 1, "augment": "none"}}],
    ids=str,
)
def test_seeds_splits_and_methods_share_them_and_results_are_those_without(
    request_, tmp_path, passed, changes, monkeypatch
):
    execute(spec_of(request_, "simplecil"), tmp_path / "first")
    passed.clear()
    again = plan(request_, **{"methods": "simplecil", **changes}).specs[0]
    shared = execute(again, tmp_path / "shared")
    certificate = sum(passed)
    passed.clear()
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path / "empty"))
    assert execute(again, tmp_path / "alone").outcome() == shared.outcome()
    assert sum(passed) == images_of(again) + certificate


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"set": {"normalisation": "imagenet"}}, {"validation": 0.5}, {"limit": 16}], ids=str
)
def test_images_that_enter_otherwise_or_are_others_share_nothing(request_, tmp_path, passed, changes):
    other = spec_of(request_, "simplecil", **changes)
    execute(other, tmp_path / "alone")
    alone = sum(passed)
    shutil.rmtree(features_folder())
    execute(spec_of(request_, "simplecil"), tmp_path / "one")
    passed.clear()
    execute(other, tmp_path / "other")
    assert sum(passed) == alone


def test_seconds_are_those_that_computing_them_took(request_, tmp_path):
    spec = spec_of(request_, "simplecil")
    execute(spec, tmp_path / "one")
    for path in features_folder().glob("*/*.safetensors"):
        with safe_open(path, "pt") as file:
            features, facts = file.get_tensor("features"), file.metadata()
        save_file({"features": features}, path, {**facts, "seconds": "1000"})

    record = execute(spec, tmp_path / "again")
    for task in record.tasks:
        classes = len(task.classes)
        assert 999 * classes < task.learn_seconds < 1001 * classes
        assert 999 * classes < task.evaluate_seconds < 1001 * classes


def test_clean_removes_them_but_not_from_a_run_that_computes_some(request_, tmp_path, capsys):
    execute(spec_of(request_, "simplecil"), tmp_path / "one")
    kept = list(features_folder().iterdir())
    assert len(kept) == 2  # training and test images

    def clean():
        with pytest.raises(SystemExit):
            main(["clean", "--features", "--yes", "--results", str(tmp_path / "one")])
        return capsys.readouterr()

    with FileLock(kept[0] / LOCK):
        said = clean()
        assert "is in use by a run" in said.err and "1 folders removed" in said.out
    assert list(features_folder().iterdir()) == kept[:1]
    clean()
    assert not list(features_folder().iterdir())


def test_what_the_first_task_adapted_is_shared_by_runs_that_share_it_and_by_no_others(
    request_, tmp_path, passed
):
    small, counts = {"bottleneck": 4, "passes": 1, "projection": 16}, []
    for more in ({"ridge": 1.0}, {"ridge": 2.0}, {"learning_rate": 0.3}):
        spec = spec_of(request_, "ranpac", set={**small, **more})
        passed.clear()
        execute(spec, tmp_path / "results", share_first_task=True)
        counts.append(sum(passed))
    assert counts == [counts[0], counts[0] - images_of(spec), counts[0]]


def test_without_adapters_a_network_is_the_backbone_and_shares_its_features(request_, tmp_path, passed):
    execute(spec_of(request_, "simplecil"), tmp_path / "one")
    spec = spec_of(request_, "ranpac[first_task=off,projection=16]")
    passed.clear()
    execute(spec, tmp_path / "two")
    with_cache = sum(passed)
    shutil.rmtree(features_folder())
    passed.clear()
    execute(spec, tmp_path / "three")
    assert sum(passed) == with_cache + images_of(spec)
