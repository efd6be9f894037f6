"""Images that are evaluated and were learned are counted once, recorded, and told under every table."""

import shutil

import made
import runs
import toys

from cl_bench.plugins import registry
from cl_bench.records.metrics import Conventions
from cl_bench.report import build, render
from cl_bench.report.grouping import group
from cl_bench.run.duplicates import duplicates


def request(tmp_path, twins=3):
    root = toys.write_folder(tmp_path / "data")
    for number in range(twins):
        shutil.copy(
            root / "train" / "class_1" / f"{6 + number:03d}.png",
            root / "test" / "class_2" / f"twin_{number}.png",
        )
    return {
        "dataset": f"folder:{root}", "backbone": "test_vit",
        "weights": str(toys.write_weights(tmp_path / "w.safetensors")), "image_size": 32, "splits": "2",
        "set": {**runs.QUICK, "passes": 1},
    }  # fmt: skip


def footnotes(records):
    [benchmark] = group(records)
    return [
        line
        for line in render.markdown(build.of_benchmark(benchmark, Conventions())).splitlines()
        if "pixel for pixel" in line
    ]


def test_a_record_counts_them_and_the_table_says_so(tmp_path):
    spec = runs.spec_of(request(tmp_path), "seq")
    record = runs.execute(spec, tmp_path / "results")
    assert record.duplicates == 3
    assert footnotes([record]) == [
        "- folder:data/2: 3 of 19 evaluation images are pixel for pixel training images too."
    ]


def test_those_of_held_out_and_left_out_images_do_not_count(tmp_path):
    base = request(tmp_path)
    for changes, expected in (({"validation": 0.5}, 0), ({"limit": 4}, None)):
        spec = runs.spec_of(base, "seq", **changes)
        found = duplicates(spec, registry.source_class("folder")(spec.dataset_argument))
        assert (
            found == expected if expected is not None else found <= 1
        )  # at most one image of class 1 is learned


def test_a_table_without_duplicates_or_of_older_records_says_nothing():
    record = made.record("vpt-seq", made.triangle(3, 0))
    assert record.duplicates is None and footnotes([record]) == []
    assert footnotes([record.model_copy(update={"duplicates": 0})]) == []


def test_runs_that_hold_out_other_images_name_every_count():
    records = [
        made.record("vpt-seq", made.triangle(3, seed), seed=seed).model_copy(update={"duplicates": count})
        for seed, count in ((1, 2), (2, 5), (3, 2))
    ]
    assert footnotes(records) == [
        "- toy/3: 2 of 300 or 5 of 300 evaluation images are pixel for pixel training images too."
    ]
