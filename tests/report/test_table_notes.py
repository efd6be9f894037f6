"""What stands in and under a table of a report: what its rows differ in, their seeds, ranks and stars."""

import pytest
from made import BETTER, SEQ, TASKS, orders, record, triangle
from paper_runs import AUGREG, CIFAR
from small_reports import line_of, small

from cl_bench.errors import InputError


def test_rows_that_differ_in_transforms_or_kind_of_class_order_are_noted(tmp_path):
    others = [
        ({"transform": CIFAR.model_copy(update={"crop_scale": 0.9})}, "random crops"),
        ({"transform": CIFAR.model_copy(update={"augmenter": "torchvision"})}, "augmenting code"),
        ({"transform": CIFAR.model_copy(update={"resize": "short-crop"})}, "evaluation resize"),
        ({"order": "natural", "transform": CIFAR}, "class order"),
    ]
    for number, (changes, said) in enumerate(others):
        (tmp_path / str(number)).mkdir()
        text, _ = small(
            tmp_path / str(number),
            [record("vpt-seq", SEQ, transform=CIFAR), record("vpt-nsp2", BETTER, **changes)],
        )
        assert f"- Rows differ in {said}: vpt-seq: " in text


def test_seeds_of_one_name_with_different_class_orders_are_named_and_not_paired(tmp_path):
    records = [record("vpt-seq", SEQ), record("vpt-nsp2", BETTER, task_classes=TASKS[::-1])]
    text, warnings = small(tmp_path, records, extra='baseline = "seq"')
    assert (
        warnings
        == [
            "t: seeds 2024 of VPT-NSP² and vpt-seq have different class orders and are not paired",
            "t: no two runs of VPT-NSP² and vpt-seq on glyphs/3 share order and seeds",
        ]
        and "Differences" not in text
    )


def test_six_seeds_that_agree_are_a_star_with_its_meaning_below(tmp_path):
    records = [
        record(name, correct, seed)
        for seed in range(6)
        for name, correct in (("vpt-seq", SEQ), ("vpt-nsp2", BETTER))
    ]
    text, _ = small(tmp_path, records, extra='baseline = "seq"\nmetrics = ["accuracy"]')
    assert (
        line_of(text.partition("Differences")[0], "VPT-NSP²") == ["**70.00 ± 0.00**<sup>*</sup>"]
        and "*: differs from vpt-seq, p below 0.05" in text
    )
    assert "| VPT-NSP² | glyphs/3 | Acc. ↑ | +10.00 (n = 6) | – | 0.031 |" in text


def test_a_row_may_be_compared_with_another_than_the_tables_baseline(tmp_path):
    """Seven runs of each: accuracies 60, 70 and 50 percent."""
    made = (("vpt-seq", SEQ), ("vpt-nsp2", BETTER), ("vpt-pgp", [[50], [50] * 2, [50] * 3]))
    records = [record(name, correct, seed) for seed in range(7) for name, correct in made]
    rows = '["seq", "nsp2", {select = "pgp", against = "nsp2"}]'
    text, _ = small(tmp_path, records, rows, extra='baseline = "seq"\nmetrics = ["accuracy"]')
    assert "| VPT-NSP² | glyphs/3 | Acc. ↑ | +10.00 (n = 7) |" in text
    assert "| vpt-pgp, against VPT-NSP² | glyphs/3 | Acc. ↑ | -20.00 (n = 7) |" in text
    assert "*: differs from the row it is compared with below, p below 0.05" in text
    (tmp_path / "alone").mkdir()
    text, _ = small(tmp_path / "alone", records, rows, extra='metrics = ["accuracy"]')
    assert "Differences in percentage points:" in text and "| VPT-NSP² | glyphs/3 |" not in text


def test_a_number_says_its_n_where_not_all_have_the_same(tmp_path):
    ten = {"task_classes": orders(10, 1)}
    records = [record("vpt-seq", SEQ, seed) for seed in (1, 2)] + [
        record("vpt-seq", triangle(10, 3), 1, **ten)
    ]
    text, _ = small(tmp_path, records, '["seq"]', '["glyphs/3", "glyphs/10"]')
    assert [cell.partition("(")[2] for cell in line_of(text, "vpt-seq")] == [
        "n = 2)",
        "n = 2)",
        "n = 1)",
        "n = 1)",
    ]
    text, _ = small(tmp_path, records[:2], '["seq"]')
    assert "over n = 2 seeds (1, 2)" in text and line_of(text, "vpt-seq")[0] == "60.00 ± 0.00"


def test_settings_that_all_rows_share_stay_in_their_names(tmp_path):
    text, _ = small(
        tmp_path,
        [record("vpt-seq[batch=4]", SEQ), record("vpt-nsp2[batch=4]", SEQ)],
        '["seq[batch=4]", "nsp2[batch=4]"]',
    )
    assert line_of(text, "vpt-seq [batch=4]") and line_of(text, "VPT-NSP² [batch=4]")


def test_rows_of_one_column_with_other_precision_transform_or_class_orders_are_named_below(tmp_path):
    records = [
        record("vpt-seq", SEQ, precision="bf16", core_version=4),
        record("vpt-nsp2", BETTER, transform=CIFAR),
        record("vpt-pgp", SEQ, task_classes=TASKS[::-1]),
    ]
    text, _ = small(tmp_path, records, '["seq", "nsp2", "pgp"]')
    assert "Rows differ in precision: vpt-seq: bf16; VPT-NSP², vpt-pgp: fp32." in text
    assert "Rows differ in augmentation: vpt-seq, vpt-pgp: none; VPT-NSP²: autoaugment-cifar10." in text
    assert "Class orders differ between rows for seed 2024." in text
    assert "core version" not in text and "Frozen network in bf16" not in text  # each precision has its own


def test_library_versions_that_differ_within_a_number_are_named_below(tmp_path):
    def made_with(seed, *environments):
        return record("vpt-seq", SEQ, seed).model_copy(update={"environments": environments})

    old, new = {"torch": "2.4.1", "timm": "1.0.20"}, {"torch": "2.5.0", "timm": "1.0.20"}
    others = [
        record("vpt-nsp2", BETTER, seed).model_copy(update={"environments": (new,)}) for seed in (1, 2, 3)
    ]
    text, _ = small(tmp_path, [made_with(1, old), made_with(2, old, new), made_with(3, new), *others])
    versions = "torch 2.4.1 (seeds 1, 2), torch 2.5.0 (seeds 2, 3)"
    assert f"- vpt-seq: made with different versions of libraries: {versions}." in text
    assert text.count("different versions of libraries") == 1


def test_core_versions_of_one_precision_are_named_below(tmp_path):
    records = [
        record("vpt-seq", SEQ, precision="bf16", core_version=4),
        record("vpt-nsp2", BETTER, precision="bf16", core_version=3),
    ]
    text, _ = small(tmp_path, records, '["seq", "nsp2"]')
    assert (
        "Rows differ in core version: vpt-seq: 4; VPT-NSP²: 3." in text and "Frozen network in bf16." in text
    )


def test_rows_may_name_another_backbone_than_their_column_and_the_note_says_whose_it_is(tmp_path):
    records = [record("vpt-seq", SEQ), record("vpt-nsp2", BETTER, backbone=AUGREG, weights_sha256="w2")]
    with pytest.raises(InputError, match="2 backbones"):
        small(tmp_path, records)
    rows = f'["seq", {{ select = "nsp2", backbone = "{AUGREG.name}" }}]'
    text, _ = small(tmp_path, records, rows, '[{ benchmark = "glyphs/3", backbone = "toy_vit" }]')
    assert line_of(text, "VPT-NSP²")[0] == "**70.00**"
    assert f"backbone toy_vit, 16 px (vpt-seq); glyphs/3: backbone {AUGREG.name}, 224 px (VPT-NSP²)." in text


def test_best_and_second_can_be_ranked_between_lines_and_upper_bounds_never_are(tmp_path):
    records = [
        record("vpt-seq", SEQ),
        record("vpt-nsp2", BETTER),
        record("vpt-pgp", SEQ),
        record("vpt-joint", [[99, 99, 99]], joint=True),
    ]
    rows = '["seq", "nsp2", { select = "pgp", rule = true }, { select = "joint", bound = true }]'
    text, _ = small(tmp_path, records, rows, extra='rank = "groups"')
    assert line_of(text, "VPT-NSP²")[0] == "**70.00**" and line_of(text, "vpt-seq")[0] == "<u>60.00</u>"
    assert line_of(text, "vpt-pgp")[0] == "60.00" and line_of(text, "vpt-joint")[0] == "99.00"
