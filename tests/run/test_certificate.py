"""The inductive certificate finds methods whose predictions depend on the batch, and no others."""

import pytest
import torch
import toys
from runs import execute, run_until, spec_of

from cl_bench.cli import main
from cl_bench.records.store import Store
from cl_bench.run.certificate import certify

TASKS = [[2, 0], [1, 3, 4], [5, 6]]


PROJECTION = torch.randn(3 * 16 * 16, 7, generator=torch.Generator().manual_seed(0))


def alone(batch):
    return batch.images.flatten(1) @ PROJECTION


def voting(batch):
    return alone(batch).mean(0, keepdim=True).expand(len(batch), -1)


def neighbour(batch):
    return alone(batch).roll(1, dims=0)


def test_a_method_that_judges_each_image_by_itself_is_inductive():
    found = certify(alone, toys.stream(TASKS), 3)
    assert (
        found.inductive
        and found.images == 42
        and found.right_alone == found.right_in_batches == found.right_when_shuffled
    )
    assert "none is predicted otherwise" in found.sentence()


@pytest.mark.parametrize("predict", [voting, neighbour])
def test_one_that_looks_at_the_others_is_not(predict):
    found = certify(predict, toys.stream(TASKS), 3)
    assert not found.inductive and 0 < found.changed_in_batches <= 42
    assert f"{found.changed_in_batches} are predicted otherwise" in found.sentence()


def test_the_counts_are_those_of_a_task_oracle_by_hand():
    """A method names class 2 when given more than one image: in batches all 42, of which 6 are of it."""

    def greedy(images):
        scores = torch.zeros(len(images), 7)
        scores[:, 0 if len(images) > 1 else 6] = 1.0
        return scores

    found = certify(greedy, toys.stream(TASKS), 3)
    assert (found.images, found.changed_in_batches, found.changed_when_shuffled) == (42, 42, 42)
    assert (found.right_alone, found.right_in_batches, found.right_when_shuffled) == (6, 6, 6)


def test_at_most_512_images_are_asked_in_runs_of_128_spread_over_the_stream():
    few, many = toys.images(2, 4, 0), toys.images(200, 4, 1)
    stream = toys.stream_of(toys.Sides(few, few, many), [[0, 1], [2, 3]])
    inputs, labels = stream.probe(2, 4, 128)
    assert (
        len(labels) == 512
        and labels[:128].max() == 0
        and labels[-128:].min() == 3
        and sorted(set(labels)) == [0, 1, 2, 3]
    )
    assert inputs(torch.arange(3).numpy()).shape == (3, 3, 16, 16)
    assert len(stream.probe(1, 4, 128)[1]) == 400


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    root = tmp_path_factory.mktemp("certificate")
    toys.write_folder(root / "data", classes=4, test_per_class=12)
    weights = toys.write_weights(root / "w.safetensors")
    settings = {
        "passes": 4,
        "batch": 8,
        "learning_rate": 0.02,
        "top_k": 1,
        "pool_size": 40,
        "layers": 2,
        "batchwise_train": False,
    }
    return {
        "dataset": f"folder:{root / 'data'}", "backbone": "test_vit", "weights": str(weights),
        "image_size": 32, "splits": "2", "set": settings,
    }  # fmt: skip


def test_a_run_ends_with_its_certificate_and_says_what_it_found(base, tmp_path):
    said = []
    honest = execute(spec_of(base, "l2p"), tmp_path, said)
    assert (
        honest.certificate.inductive
        and honest.certificate.images == 48
        and said[-1].startswith("inductive: of 48 test images")
    )
    leaky = execute(
        spec_of(base, "l2p[batchwise_eval=on,layers=1,carry=accumulate,head=prompt]"), tmp_path, said
    )
    assert leaky.certificate.changed_in_batches > 0 and said[-1].startswith("NOT inductive")


def test_a_run_stopped_between_its_last_task_and_its_certificate_makes_it_when_repeated(
    base, tmp_path, monkeypatch
):
    spec = spec_of(base, "l2p")
    with monkeypatch.context() as patched:
        patched.setattr(
            "cl_bench.run.learning.certify", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            execute(spec, tmp_path)
    assert (Store(tmp_path).load(spec).status, len(Store(tmp_path).load(spec).tasks)) == ("running", 2)
    whole = execute(spec, tmp_path)
    assert whole.status == "done" and whole.certificate == execute(spec, tmp_path / "other").certificate


@pytest.mark.slow
def test_certify_makes_it_anew_and_names_runs_by_id_or_folder(base, tmp_path, capsys):
    spec = spec_of(base, "l2p")
    record = execute(spec, tmp_path)
    store = Store(tmp_path)
    store.save(record.model_copy(update={"certificate": None}))
    for name in (spec.run_id(), spec.run_id()[:6], str(store.folder(spec))):
        with pytest.raises(SystemExit) as ended:
            main(["certify", name, "--results", str(tmp_path), "--device", "cpu"])
        assert ended.value.code == 0 and "inductive: of 48 test images" in capsys.readouterr().out
        assert store.load(spec).certificate == record.certificate


@pytest.mark.slow
def test_certify_moves_nothing_and_names_what_is_damaged_file_by_file(base, tmp_path, capsys):
    spec = spec_of(base, "l2p")
    record, store = execute(spec, tmp_path), Store(tmp_path)
    folder = store.folder(spec)
    predictions, checkpoint = folder / "predictions.npz", next(folder.glob("checkpoint-*"))
    for damaged, code in (([predictions], 0), ([predictions, checkpoint], 1), ([checkpoint], 1)):
        whole = {path: path.read_bytes() for path in (predictions, checkpoint)}
        for path in damaged:
            path.write_bytes(whole[path][:-9])
        names = sorted(path.name for path in (tmp_path / "runs").rglob("*"))
        with pytest.raises(SystemExit) as ended:
            main(["certify", spec.run_id(), "--results", str(tmp_path), "--device", "cpu"])
        told = capsys.readouterr()
        assert ended.value.code in (code, None) and all(path.name in told.out + told.err for path in damaged)
        now = store.load(spec).model_copy(update={"certificate_seconds": record.certificate_seconds})
        assert sorted(path.name for path in (tmp_path / "runs").rglob("*")) == names and now == record
        assert all(path.name not in told.out + told.err for path in whole if path not in damaged)
        for path in damaged:
            path.write_bytes(whole[path])
    (folder / "record.json").write_text("{}")
    with pytest.raises(SystemExit) as ended:
        main(["certify", spec.run_id(), "--results", str(tmp_path), "--device", "cpu"])
    assert ended.value.code == 2 and "record.json is truncated" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "runs").rglob("*")) == names


def test_certify_refuses_unknown_and_unfinished_runs(base, tmp_path, capsys):
    spec = spec_of(base, "l2p")
    run_until(spec, tmp_path, task=1)
    for name, message in (("0123", "no run is called '0123'"), (spec.run_id(), "is not finished")):
        with pytest.raises(SystemExit) as ended:
            main(["certify", name, "--results", str(tmp_path), "--device", "cpu"])
        assert ended.value.code == 2 and message in capsys.readouterr().err
