"""From the command line's words to fully resolved runs."""

import numpy as np
import pytest
from runs import plan

from cl_bench import presets
from cl_bench.errors import InputError
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import request_from
from cl_bench.plugins import registry


def test_a_plan_is_methods_times_grid_times_splits_times_seeds(base):
    specs = plan(base, methods="seq,nsp2[eta=0.9|1]", splits="1,2", seeds="2").specs
    assert len(specs) == 12 and len({spec.run_id() for spec in specs}) == 12
    assert [spec.label for spec in specs[:3]] == ["vpt-seq", "vpt-nsp2[eta=0.9]", "vpt-nsp2[eta=1]"]
    assert {spec.family_id() for spec in specs if spec.label == "vpt-seq" and spec.num_tasks == 2} == {
        specs[6].family_id()
    }


def test_runs_asked_for_twice_run_once_with_a_warning(base):
    found = plan(base, methods="nsp2,nsp2[eta=0.97]")
    assert len(found.specs) == 1 and "asked for twice" in found.warnings[0]


def test_three_seeds_are_three_separate_fields(base):
    spec = plan(base, methods="seq", seeds="2024,", order="1", init_seed=2).specs[0]
    assert (spec.order_seed, spec.init_seed, spec.data_seed) == (1, 2, 2024)
    other_init = plan(base, methods="seq", seeds="2024,", order="1", init_seed=3).specs[0]
    assert other_init.task_classes == spec.task_classes and other_init.run_id() != spec.run_id()


def test_precedence_is_default_then_preset_then_file_then_command_line(base, tmp_path, monkeypatch):

    kind = registry.method_class("vpt-nsp2")
    published = tmp_path / "mine.toml"
    published.write_text(
        'title = "x"\nbenchmarks = ["folder/2"]\n[[rule]]\nmethods = "vpt-*"\n'
        'values = { eta = 0.5, passes = 7, crop_scale = 0.3 }\nsource = "y"\n',
        encoding="utf-8",
    )
    monkeypatch.setattr(presets, "names", lambda: {"mine": published})
    monkeypatch.setattr(kind, "PRESET", "mine")
    file = tmp_path / "x.yaml"
    file.write_text("methods: [nsp2]\nset: {passes: 8, batch: 9}\nseeds: 2\n", encoding="utf-8")
    found = plan(base, methods="nsp2").specs[0]
    assert (found.options["eta"], found.transform.crop_scale, found.label) == (0.5, 0.3, "vpt-nsp2")
    assert plan(base, methods="nsp2", preset="none").specs[0].options["eta"] == 0.97
    assert plan(base, methods="seq", preset="mine").specs[0].options["passes"] == 7
    request = request_from({**base, "set": {"batch": 10}}, file)
    spec = make_plan(request).specs[0]
    assert (
        spec.options["eta"],
        spec.options["passes"],
        spec.options["batch"],
        spec.options["temperature"],
    ) == (0.5, 8, 10, 28.0)
    assert len(make_plan(request).specs) == 2
    assert plan(base, methods="nsp2[passes=3]", set={"passes": 4}).specs[0].options["passes"] == 3
    assert spec.label == "vpt-nsp2[batch=10,passes=8]"


def test_settings_go_to_the_methods_that_have_them_and_to_the_run(base):
    seq, nsp2 = plan(base, methods="seq,nsp2", set={"eta": 0.4, "augment": "none", "precision": "bf16"}).specs
    assert "eta" not in seq.options and nsp2.options["eta"] == 0.4
    assert seq.transform.augment == "none" and seq.precision == "bf16"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": "nps2"}, "unknown method 'nps2'; did you mean 'nsp2'"),
        ({"methods": "nsp2[etaa=1]"}, "unknown option of vpt-nsp2 'etaa'; did you mean 'eta'"),
        ({"methods": "nsp2[eta=2]"}, "vpt-nsp2: eta=2 is not usable"),
        ({"methods": "nsp2[nullity=both]"}, "nullity='both' is not usable: .*'official' or 'paper'"),
        ({"methods": "nsp2[b1=1]"}, "b1=1 is not usable"),
        ({"methods": "seq", "set": {"pases": 3}}, "unknown --set option 'pases'; did you mean 'passes'"),
        ({"methods": "seq", "set": {"precision": "fp16"}}, "expected fp32 or bf16"),
        ({"methods": "seq", "dataset": "glyph"}, "unknown data set 'glyph'; did you mean 'glyphs'"),
        ({"methods": "seq", "dataset": "glyphs:x"}, "takes no argument"),
        ({"methods": "seq", "dataset": "folder"}, "needs a path"),
        (
            {"methods": "seq", "backbone": None, "weights": None, "image_size": None},
            "has no backbone of its own",
        ),
        (
            {"methods": "seq", "splits": "3"},
            "--splits 3 does not divide the 4 classes; choose one of 1, 2, 4",
        ),
        ({"methods": "seq", "splits": "two"}, "expected numbers of tasks"),
        (
            {"methods": "joint,seq", "splits": "4"},
            "vpt-seq compares the classes of the current task only: "
            "with one class a task .* loss is always 0",
        ),
        ({"methods": "seq", "limit": 3}, "leaves classes without a training image; give at least 4"),
        ({"methods": "nsp2[prompts=2]"}, "at least 3 prompts"),
        ({"methods": "seq[layers=99]"}, "has 6 blocks"),
        ({"methods": "seq[learning_rate=inf]"}, "finite number"),
        ({"methods": "seq", "image_size": 33}, "not a multiple"),
        ({"methods": "seq", "set": {"crop_scale": -1.0}}, "crop_scale=-1.0 is not usable"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(base, changes, message):
    with pytest.raises(InputError, match=message) as error:
        plan(base, **changes)
    assert "\n" not in str(error.value)


def test_one_class_a_task_is_fine_for_all_classes_at_once(base):
    assert plan(base, methods="joint", splits="4").specs[0].num_tasks == 4


def test_check_names_absent_classes_small_tasks_and_twins(base, tmp_path, monkeypatch):
    from cl_bench.datasets.folder import Folder

    from cl_bench.data.images import ImageSet
    from cl_bench.plan import check
    from cl_bench.records.store import Store

    monkeypatch.setenv(
        "CL_BENCH_CACHE", str(tmp_path / "cache")
    )  # digests of these pixels must meet no other test's
    original = Folder.evaluated

    def evaluated(self, side, transform, image_size):
        found = original(self, side, transform, image_size)
        if side == "train":
            return found
        train = original(self, "train", transform, image_size)
        images = np.concatenate(
            [found.images[:3], train.images[:2]]
        )  # test images of class 0, of which two are training images
        return ImageSet(images, np.zeros(5, np.int64))

    monkeypatch.setattr(Folder, "evaluated", evaluated)
    lines = check.plan_lines(plan(base, methods="seq", set={"batch": 13}), Store(tmp_path), ["cpu"])
    text = "\n".join(lines)
    assert "2 of 2 tasks have fewer training images than a batch of 13; the smallest has 12" in text
    assert "3 classes have no evaluation image: class_1, class_2, class_3" in text
    assert "2 evaluation images are pixel for pixel training images too" in text
    assert "evaluation transform: resize=squash, interpolation=bicubic" in text
