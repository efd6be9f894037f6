"""Two results folders or two methods against each other."""

import pytest
from commands import command
from made import BETTER, SEQ, TASKS, folder, record, results

from cl_bench.errors import InputError
from cl_bench.records.metrics import Conventions
from cl_bench.report.versus import versus


def test_a_significant_loss_of_accuracy_exits_with_1_and_names_the_row(tmp_path, capsys):
    folder(tmp_path, "a", [80, 81, 82, 80, 83, 84])
    folder(tmp_path, "b", [70, 71, 72, 70, 73, 74])
    assert command("compare", tmp_path / "a", tmp_path / "b") == 1
    out = capsys.readouterr()
    assert "| vpt-seq | toy/3 | Acc. ↑ | -10.00 (n = 6) | [-1" in out.out and "| 0.031 |" in out.out  # 2 / 64
    assert "significantly worse: vpt-seq on toy/3" in out.err
    assert command("compare", tmp_path / "b", tmp_path / "a") == 0  # better is no regression


def test_chance_is_no_regression(tmp_path):
    folder(tmp_path, "a", [80, 81, 82])
    folder(tmp_path, "b", [80, 82, 81])
    assert versus(str(tmp_path / "a"), str(tmp_path / "b"), tmp_path, Conventions()).worse == []


def test_two_versions_of_a_method_are_compared_in_one_folder(tmp_path):
    records = [
        record("vpt-nsp2", BETTER, 1),
        record("vpt-nsp2", SEQ, 1, method_version=2),
        record("vpt-nsp2", BETTER, 2),
    ]
    results(tmp_path, records)
    found = versus("nsp2@1", "nsp2@2", tmp_path, Conventions())
    [difference] = found.differences
    assert (
        difference.mean == pytest.approx(-10)
        and difference.pairs == 1
        and difference.verdict == "n too small"
    )
    with pytest.raises(InputError, match="has several configurations on toy/3; name its version"):
        versus("nsp2", "nsp2@2", tmp_path, Conventions())
    with pytest.raises(InputError, match="no run of pgp"):
        versus("nsp2@1", "pgp", tmp_path, Conventions())
    with pytest.raises(InputError, match="expected a version number"):
        versus("nsp2@one", "pgp", tmp_path, Conventions())


PASSES = {"passes": 1}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("seq", r"there is seq\[passes=1\] \("),
        ("vpt-seq[passes=2]", r"there is vpt-seq\[passes=1\] \("),
        (
            "nsp2",
            r"there are nsp2\[eta=1.0\], nsp2\[eta=1.0,passes=1\] and nsp2\[b1=off,eta=1.0,passes=1\] \(",
        ),
        ("nsp2[eta=1,passes=1]@3", r"there are nsp2\[eta=1,passes=1\]@1, "),
        ("pgp", r"nor is it a folder \("),
    ],
)
def test_a_method_that_was_not_run_so_is_answered_with_the_nearest_that_was(tmp_path, asked, said):
    nsp2 = {"vpt-nsp2[eta=1.0]": {"eta": 1.0}, "vpt-nsp2[eta=1.0,passes=1]": {"eta": 1.0, **PASSES}}
    nsp2["vpt-nsp2[b1=off,eta=1.0,passes=1]"] = {"eta": 1.0, "b1": False, **PASSES}
    results(
        tmp_path,
        [
            record("vpt-seq[passes=1]", SEQ, options=PASSES),
            *(record(label, SEQ, options=own) for label, own in nsp2.items()),
        ],
    )
    for words in ((asked, "seq[passes=1]"), ("seq[passes=1]", asked)):
        with pytest.raises(InputError, match=f"there is no run of .*{said}"):
            versus(*words, tmp_path, Conventions())


def test_runs_without_a_partner_are_named_and_do_not_pass_silently(tmp_path):
    results(tmp_path / "a", [record("vpt-seq", SEQ, 1), record("vpt-nsp2", BETTER, 1)])
    results(
        tmp_path / "b", [record("vpt-seq", SEQ, 1), record("vpt-nsp2", SEQ, 2), record("vpt-pgp", SEQ, 1)]
    )
    found = versus(str(tmp_path / "a"), str(tmp_path / "b"), tmp_path, Conventions())
    assert [difference.row for difference in found.differences] == ["vpt-seq"]
    assert f"only in {tmp_path / 'b'}: vpt-pgp on toy/3" in found.warnings
    assert "vpt-nsp2 on toy/3: 0 pairs of 1 and 1 finished runs; the others have no partner" in found.warnings
    assert "97.5 % interval" in found.markdown()  # two rows share 5 %


def test_folders_of_other_images_or_orders_are_not_compared_and_say_so(tmp_path):
    folder(tmp_path, "a", [80, 81])
    folder(tmp_path, "images", [80, 81], manifest_digest="m2")
    folder(tmp_path, "orders", [80, 81], task_classes=TASKS[::-1])
    for other in ("images", "orders"):
        with pytest.raises(InputError, match="has the same benchmark, class order and seeds"):
            versus(str(tmp_path / "a"), str(tmp_path / other), tmp_path, Conventions())


def test_sides_of_other_precision_are_compared_and_it_is_said(tmp_path):
    folder(tmp_path, "a", [80, 81])
    folder(tmp_path, "b", [80, 81], precision="bf16", core_version=4)
    found = versus(str(tmp_path / "a"), str(tmp_path / "b"), tmp_path, Conventions())
    assert found.warnings == ["vpt-seq on toy/3: fp32 against bf16"] and [
        difference.mean for difference in found.differences
    ] == [0]
