"""A label and a benchmark of a DataFrame stand for runs whose mean may be taken, and for no others."""

import pandas as pd
import pytest
from made import BETTER, SEQ, TOY_VIT, record, results

import cl_bench
from cl_bench.api.names import NAMED, named
from cl_bench.config import Transform

HELD_OUT = "toy/3 (validation: 25% of the training images held out and evaluated on, not the test set)"
TRIAL = "toy/3 (trial: at most 6 training images)"
LOW, LOWER = [[10], [10, 10], [10, 10, 10]], [[15], [15, 15], [15, 15, 15]]


def loaded(tmp_path, *records):
    results(tmp_path / "r", records)
    return cl_bench.load(tmp_path / "r")


def names(*specs) -> list[tuple[str, str]]:
    """Label and benchmark of each."""
    found = named(specs)
    return [(found[spec.run_id()]["label"], found[spec.run_id()]["benchmark"]) for spec in specs]


def test_trials_and_held_out_images_are_benchmarks_of_their_own(tmp_path):
    runs = loaded(
        tmp_path,
        record("vpt-seq", SEQ, 1),
        record("vpt-seq", BETTER, 2),
        record("vpt-seq", LOW, 1, limit=6),
        record("vpt-seq", LOWER, 1, validation=0.25),
    )
    found = runs.metrics()
    assert tuple(found.columns[: len(NAMED)]) == NAMED
    means = found.groupby(["label", "benchmark"]).accuracy.mean()
    expected = {"toy/3": 0.65, TRIAL: 0.10, HELD_OUT: 0.15}  # of 0.6 and 0.7, and of one run each
    assert means.to_dict() == {("vpt-seq", name): pytest.approx(mean) for name, mean in expected.items()}
    assert found.groupby("family_id").size().tolist() and found.family_id.nunique() == 3
    assert found.groupby("benchmark").benchmark_id.nunique().tolist() == [1, 1, 1]


def test_other_backbones_image_sizes_weights_and_images_have_their_names(tmp_path):
    big = TOY_VIT.model_copy(update={"name": "big_vit", "image_size": 32})
    runs = loaded(
        tmp_path,
        record("vpt-seq", SEQ, 1),
        record("vpt-seq", BETTER, 1, backbone=big, weights_sha256="v"),
    )
    found = runs.metrics()
    assert set(zip(found.benchmark, found.backbone, found.image_size, strict=True)) == {
        ("toy/3 [big_vit]", "big_vit", 32),
        ("toy/3 [toy_vit]", "toy_vit", 16),
    }
    specs = [record("vpt-seq", SEQ, 1, weights_sha256=sha * 64).spec for sha in "ab"]
    specs.append(record("vpt-seq", SEQ, 1, weights_sha256="b" * 64, manifest_digest="c" * 64).spec)
    assert [name for _, name in names(*specs)] == [
        "toy/3 [weights aaaaaaaa, data m]",
        "toy/3 [weights bbbbbbbb, data m]",
        "toy/3 [weights bbbbbbbb, data cccccccc]",
    ]
    assert str(found.image_size.dtype) == "Int64"


def test_a_name_is_the_same_in_every_selection(tmp_path):
    big = TOY_VIT.model_copy(update={"image_size": 32})
    runs = loaded(tmp_path, record("vpt-seq", SEQ, 1), record("vpt-nsp2", SEQ, 1, backbone=big))
    assert runs.select("nsp2").metrics().benchmark.item() == "toy/3 [32 px]"
    assert runs.select("seq").metrics().benchmark.item() == "toy/3 [16 px]"


def test_configurations_of_one_label_name_the_settings_they_differ_in():
    specs = [record("vpt-seq", SEQ, 1, precision=precision).spec for precision in ("fp32", "bf16")]
    specs.append(record("vpt-seq", SEQ, 1, precision="bf16", transform=Transform(augment="crop")).spec)
    assert [label for label, _ in names(*specs)] == [
        "vpt-seq[augment=none,precision=fp32]",
        "vpt-seq[augment=none,precision=bf16]",
        "vpt-seq[augment=crop,precision=bf16]",
    ]
    assert names(specs[0], specs[0]) == [("vpt-seq", "toy/3")] * 2


def test_a_configuration_is_selected_by_its_label(tmp_path):
    runs = loaded(
        tmp_path,
        record("vpt-seq", SEQ, 1),
        record("vpt-seq", BETTER, 1, method_version=2),
        record("vpt-nsp2[eta=0.9]", SEQ, 1, options={"eta": 0.9}),
        record("vpt-nsp2[eta=0.9]", SEQ, 1, options={"eta": 0.9}, precision="bf16"),
    )
    found = runs.metrics()
    assert found.label.nunique() == 4
    for label, run_id in zip(found.label, found.run_id, strict=True):
        assert runs.select(label).metrics().run_id.tolist() == [run_id]


def test_configurations_that_no_setting_tells_apart_name_their_family():
    specs = [record("vpt-seq", SEQ, 1, plugins={"datasets": digest * 64}).spec for digest in "ab"]
    assert [label for label, _ in names(*specs)] == [
        f"vpt-seq[family={spec.family_id()[:8]}]" for spec in specs
    ]


def test_every_table_of_runs_has_the_names(tmp_path):
    runs = loaded(tmp_path, record("vpt-seq", SEQ, 1), record("vpt-seq", LOW, 1, limit=6))
    matrix = runs.matrix()
    assert tuple(matrix.columns[: len(NAMED)]) == tuple(runs.diagnosis().columns[: len(NAMED)]) == NAMED
    matrix["accuracy"] = matrix.correct / matrix.n
    last = matrix[matrix.after == 3].groupby(["label", "benchmark"]).accuracy.mean()
    assert isinstance(last, pd.Series) and last["vpt-seq", "toy/3"] == pytest.approx(0.6)
    assert last["vpt-seq", TRIAL] == pytest.approx(0.1)
