"""From the command line's words to fully resolved runs."""

import numpy as np
import pytest
import toys

from cl_bench import environment, presets, registry
from cl_bench.errors import InputError
from cl_bench.notation import parse_methods, parse_seeds
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request, parse_settings, request_from
from cl_bench.records.spec import RunSpec


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A request on a small folder of images with a small ViT."""
    return {**toys.write_inputs(tmp_path_factory.mktemp("plan")), "splits": "2"}


def plan(base, **changes):
    return make_plan(Request(**{**base, **changes}))


def test_methods_options_and_grids_are_read_in_order():
    assert parse_methods("nsp2[b1=on,b2=off,ln=on], pgp ,nsp2[eta=0.9|0.97|1,ln_red=l1]") == [
        ("nsp2", {"b1": True, "b2": False, "ln": True}),
        ("pgp", {}),
        ("nsp2", {"eta": 0.9, "ln_red": "l1"}),
        ("nsp2", {"eta": 0.97, "ln_red": "l1"}),
        ("nsp2", {"eta": 1, "ln_red": "l1"}),
    ]
    assert parse_settings(["eta=1e-3", "layers=null", "lr_milestones=paper"]) == {
        "eta": 0.001,
        "layers": None,
        "lr_milestones": "paper",
    }


@pytest.mark.parametrize(
    "text",
    ["nsp2[eta=0.9", "nsp2[eta]", "nsp2[eta=]", "nsp2[eta=1|]", "nsp2]", "nsp2[eta=1,eta=2]", "", " , "],
)
def test_method_lists_that_cannot_be_read_are_refused(text):
    with pytest.raises(InputError):
        parse_methods(text)


def test_seeds_are_a_number_or_a_list():
    assert (
        parse_seeds("3") == [2024, 2025, 2026]
        and parse_seeds("2024,2031") == [2024, 2031]
        and parse_seeds("7,") == [7]
    )
    for text in ("0", "-1", "-1,", "x", "2024", ""):
        with pytest.raises(InputError, match="--seeds"):
            parse_seeds(text)


def test_aliases_and_full_names_mean_the_same_run(base):
    assert plan(base, methods="nsp2").specs[0].run_id() == plan(base, methods="vpt-nsp2").specs[0].run_id()


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
    from cl_bench import registry

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


def test_who_augments_is_a_setting_of_the_run_and_part_of_its_identity_where_it_is_not_the_default(base):
    batched, torchvision = (
        plan(base, methods="seq", set={"augment": "crop"}, augment=name).specs[0]
        for name in ("batched", "torchvision")
    )
    assert (
        batched.run_id()
        == plan(base, methods="seq", set={"augment": "crop"}).specs[0].run_id()
        != torchvision.run_id()
    )
    assert (
        "augmenter" not in batched.identity()["transform"]
        and torchvision.identity()["transform"]["augmenter"] == "torchvision"
    )


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"validation": 1.5}, "validation=1.5 is not usable"),
        ({"limit": "500"}, "limit='500' is not usable"),
        ({"init_seed": -1}, "init_seed=-1 is not usable"),
        ({"dataset": 5}, "dataset=5 is not usable"),
    ],
)
def test_options_of_the_wrong_kind_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        request_from(given, None)


def test_a_list_of_seeds_in_a_file_is_a_list_and_1e_3_is_a_number(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("seeds: [3]\nsplits: [10, 20]\nset: {learning_rate: 1e-3, 1: off}\n", encoding="utf-8")
    request = request_from({}, file)
    assert (
        parse_seeds(request.seeds) == [3]
        and request.splits == "10,20"
        and request.set == {"learning_rate": 0.001, "1": False}
    )
    for text in ("eta={", "eta=@x"):
        with pytest.raises(InputError, match="cannot read the value"):
            parse_settings([text])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds: 1\nmethod: nsp2", "x.yaml, line 2: unknown option 'method'; did you mean 'methods'"),
        ("- a", "must hold a mapping"),
        ("a: [", "cannot read"),
        ("set: 3", "and so must its set"),
        ("grid: {eta: 0.9}", "x.yaml, line 1: eta in the grid needs a list of values"),
    ],
)
def test_configuration_files_that_cannot_be_used_are_refused(tmp_path, text, message):
    file = tmp_path / "x.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        request_from({}, file)
    with pytest.raises(InputError, match="cannot read"):
        request_from({}, tmp_path / "none.yaml")


CHANGES = {
    "an option": {"methods": "nsp2[eta=0.5]"},
    "the transform": {"set": {"crop_scale": 0.5}},
    "the precision": {"set": {"precision": "bf16"}},
    "the limit": {"limit": 8},
    "validation": {"validation": 0.25},
    "the image size": {"image_size": 48},
    "the class order": {"order": "natural"},
    "the order seed": {"order": "5"},
    "the initialization seed": {"init_seed": 5},
    "the data seed": {"data_seed": 5},
    "the splits": {"splits": "1"},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_a_changed_setting_is_another_run(base, changes):
    assert (
        plan(base, **{"methods": "nsp2", **changes}).specs[0].run_id()
        != plan(base, methods="nsp2").specs[0].run_id()
    )


def test_other_weights_images_or_method_versions_are_another_run_and_another_place_is_not(
    base, tmp_path, monkeypatch
):
    from PIL import Image
    from safetensors.torch import load_file, save_file

    from cl_bench import registry

    original = plan(base, methods="nsp2").specs[0].run_id()
    moved = toys.write_folder(tmp_path / "elsewhere", classes=4)
    copied = toys.write_weights(tmp_path / "v.safetensors")
    assert (
        plan({**base, "dataset": f"folder:{moved}", "weights": str(copied)}, methods="nsp2").specs[0].run_id()
        == original
    )
    state = load_file(copied)
    state["norm.bias"][0] += 1
    save_file(state, copied)
    assert plan({**base, "weights": str(copied)}, methods="nsp2").specs[0].run_id() != original
    pixel = np.array(Image.open(moved / "train" / "class_0" / "000.png"))
    pixel[0, 0, 0] ^= 1
    Image.fromarray(pixel).save(moved / "train" / "class_0" / "000.png")
    assert plan({**base, "dataset": f"folder:{moved}"}, methods="nsp2").specs[0].run_id() != original
    monkeypatch.setattr(registry.method_class("vpt-nsp2"), "version", 99)
    assert plan(base, methods="nsp2").specs[0].run_id() != original


def test_a_specification_survives_json(base):
    spec = plan(base, methods="nsp2").specs[0]
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec


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


def test_legacy_normalizations_by_name_are_other_runs(base):
    found = {
        name: plan(base, methods="seq", set={"normalisation": name}).specs[0]
        for name in ("checkpoint", "unit01", "imagenet")
    }
    assert found["unit01"].backbone.mean == (0, 0, 0) and found["unit01"].backbone.std == (1, 1, 1)
    assert found["imagenet"].backbone.mean == (0.485, 0.456, 0.406) and found["imagenet"].backbone.std == (
        0.229,
        0.224,
        0.225,
    )
    assert len({spec.run_id() for spec in found.values()}) == 3


def test_as_published_sets_all_published_choices_and_tells_the_row_by_name(base):
    correct, published = plan(base, methods="l2p,l2p[as_published]").specs
    assert (correct.label, published.label) == (
        "l2p",
        "l2p[as_published]",
    ) and correct.run_id() != published.run_id()
    assert not correct.options["batchwise_eval"] and correct.transform.normalisation == "checkpoint"
    assert (
        published.options["batchwise_eval"]
        and published.options["carry"] == "accumulate"
        and published.options["layers"] == 1
    )
    assert published.transform.normalisation == "unit01" and published.backbone.mean == (0.0, 0.0, 0.0)
    assert (
        "batchwise_eval=on" in published.as_published
        and "normalisation=unit01" in published.as_published
        and not correct.as_published
    )
    [everywhere] = plan(base, methods="l2p", as_published=True).specs
    assert everywhere.run_id() == published.run_id() and everywhere.label == published.label
    assert (
        plan(base, methods="l2p[as_published=off]", as_published=True).specs[0].run_id() == correct.run_id()
    )


def test_a_row_is_as_published_too_where_only_the_inputs_of_published_runs_differ(base, monkeypatch):
    method = registry.method_class("l2p")
    monkeypatch.setattr(method, "AS_PUBLISHED", {"normalisation": "unit01"})
    monkeypatch.setattr(method, "PRESET", None)
    [spec] = plan(base, methods="l2p[as_published]").specs
    assert spec.label == "l2p[as_published]" and spec.as_published == ("normalisation=unit01",)


def test_what_is_given_wins_over_the_published_choice(base):
    [spec] = plan(base, methods="l2p[as_published,batchwise_eval=off,input_norm=half]").specs
    assert (
        not spec.options["batchwise_eval"]
        and spec.transform.normalisation == "half"
        and spec.backbone.mean == (0.5, 0.5, 0.5)
    )
    assert spec.label == "l2p[as_published,batchwise_eval=off,normalisation=half]"
    assert parse_methods(spec.label) == [
        ("l2p", {"as_published": True, "batchwise_eval": False, "normalisation": "half"})
    ]
    [shared] = plan(
        base, methods="l2p", as_published=True, set={"batchwise_eval": False, "input_norm": "imagenet"}
    ).specs
    assert not shared.options["batchwise_eval"] and shared.transform.normalisation == "imagenet"


@pytest.mark.parametrize(
    ("methods", "changes", "message"),
    [
        ("seq", {"as_published": True}, "vpt-seq: no published behavior differs from the defaults"),
        ("l2p,seq[as_published]", {}, "vpt-seq: no published behavior"),
        ("l2p[as_published=maybe]", {}, "as_published='maybe' is not usable; expected on or off"),
        ("l2p[pool_size=3,top_k=4]", {}, "top_k=4 of a pool of 3"),
        ("l2p[prompt_length=0]", {}, "prompt_length=0 is not usable"),
        ("dualprompt[pool_size=1]", {}, "no E-prompt for each of 2 tasks"),
        ("coda[components=1]", {}, "too few for 2 tasks"),
        ("l2p-nsp2[carry=accumulate]", {}, "give carry=drop"),
    ],
)
def test_pools_that_cannot_work_are_one_line_before_any_training(base, methods, changes, message):
    with pytest.raises(InputError, match=message) as raised:
        plan(base, methods=methods, **changes)
    assert "\n" not in str(raised.value)


def test_every_published_choice_of_every_method_is_an_option_it_has(base):
    from cl_bench import registry
    from cl_bench.config import Transform

    for name in registry.plugins("methods"):
        kind = registry.method_class(name)
        assert set(kind.AS_PUBLISHED) <= {*kind.Config.model_fields, *Transform.model_fields}
        kind.Config(
            **{key: value for key, value in kind.AS_PUBLISHED.items() if key in kind.Config.model_fields}
        )


@pytest.mark.parametrize(
    ("flags", "precision"), [("fpu amx_tile amx_bf16 sse", "bf16"), ("fpu avx512_bf16", "fp32"), ("", "fp32")]
)
def test_a_processor_with_matrix_units_for_bf16_is_used_as_one(monkeypatch, flags, precision):
    monkeypatch.setattr(environment, "cpuinfo", lambda field: {"flags": flags}[field])
    assert environment.usual_precision(["cpu"]) == precision


@pytest.mark.parametrize(
    ("capabilities", "precision"),
    [([(8, 0)], "bf16"), ([(9, 0), (8, 9)], "bf16"), ([(9, 0), (7, 5)], "fp32")],
)
def test_gpus_compute_in_bf16_where_all_of_them_can(monkeypatch, capabilities, precision):
    monkeypatch.setattr(
        "torch.cuda.get_device_capability", lambda device: capabilities[int(device.removeprefix("cuda:"))]
    )
    assert environment.usual_precision([f"cuda:{number}" for number in range(len(capabilities))]) == precision


def test_what_a_request_sets_wins_over_the_machines_precision(base):
    chosen, usual = (
        make_plan(Request(**base, set=settings), "bf16").specs[0].precision
        for settings in ({"precision": "fp32"}, {})
    )
    assert (chosen, usual) == ("fp32", "bf16")
