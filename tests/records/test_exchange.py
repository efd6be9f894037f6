"""Merging, exporting, importing and comparing results."""

import csv
import json

import numpy as np
import pytest
from made import TASKS, folder, record, results

from cl_bench.cli import main
from cl_bench.errors import InputError
from cl_bench.records import imported, locks, run_files
from cl_bench.records.export import matrix_lines, run_lines
from cl_bench.records.imported import ImportedSpec, read_matrix
from cl_bench.records.merge import merge
from cl_bench.records.metrics import Conventions
from cl_bench.records.store import Store
from cl_bench.report import write
from cl_bench.report.grouping import group
from cl_bench.report.versus import versus
from cl_bench.run import runner
from cl_bench.run.learning import Conditions
from cl_bench.run.recertify import recertify

SEQ = [[80], [60, 70], [50, 60, 70]]  # accuracy 60
BETTER = [[80], [80, 60], [75, 75, 60]]  # accuracy 70


def command(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


# --- merge


def test_merging_brings_all_runs_and_keeps_the_further_one(tmp_path):
    begun = record("vpt-seq", SEQ[:1], 1, "running")
    a = results(tmp_path / "a", [begun, record("vpt-seq", SEQ, 2)])
    b = results(tmp_path / "b", [record("vpt-seq", SEQ, 1), record("vpt-nsp2", BETTER, 1)])
    done = merge(Store(tmp_path / "all"), [a, b], compact=False)
    assert (done.copied, done.kept, done.warnings) == (3, 0, [])
    found = {r.spec.run_id(): r for r in Store(tmp_path / "all").records()}
    assert len(found) == 3 and found[begun.spec.run_id()].status == "done"
    assert merge(Store(tmp_path / "all"), [a, b], compact=False).copied == 0  # nothing further came
    assert len(list(a.records())) == 2  # the sources stay as they are


def test_different_results_of_one_run_are_refused_before_anything_is_copied(tmp_path):
    a, b = (
        results(tmp_path / "a", [record("vpt-seq", SEQ, 1)]),
        results(tmp_path / "b", [record("vpt-pgp", SEQ), record("vpt-seq", BETTER, 1)]),
    )
    with pytest.raises(InputError, match="are the same run with different results"):
        merge(Store(tmp_path / "all"), [a, b], compact=False)
    assert not (tmp_path / "all").exists()
    with pytest.raises(InputError, match="no results folder"):
        merge(a, [Store(tmp_path / "none")], compact=False)


def test_a_compact_copy_has_what_reports_need_and_counts_as_finished(tmp_path, whole_run):
    spec, record_, root = whole_run
    assert command("merge", tmp_path / "small", root, "--compact") == 0
    small = Store(tmp_path / "small")
    assert {path.name for path in small.folder(spec).iterdir()} == {"record.json", "predictions.npz"}
    assert small.load(spec) == record_
    with np.load(small.folder(spec) / "predictions.npz") as arrays:
        assert set(arrays.files) == {"task_004", "truth"}
    said = []
    assert runner.run(spec, small, Conditions(), said.append, lambda p: pytest.fail("it trained")) == record_
    with pytest.raises(InputError, match="kept without its checkpoint"):
        recertify(spec, small, "cpu", 1, said.append)
    assert run_files.is_compact(record_, small.folder(spec))


def test_unfinished_runs_and_damaged_records_are_left_out_of_a_compact_copy_by_name(tmp_path):
    a = results(tmp_path / "a", [record("vpt-seq", SEQ[:2], 1, "running"), record("vpt-pgp", SEQ)])
    damaged = a.folder(record("vpt-pgp", SEQ).spec) / "record.json"
    damaged.write_text(damaged.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    done = merge(Store(tmp_path / "all"), [a], compact=True)
    assert done.copied == 0 and "is not finished" in done.warnings[0] and "truncated" in done.lacking[0]


def test_a_run_without_readable_predictions_is_copied_with_a_warning(tmp_path):
    a = results(tmp_path / "a", [record("vpt-seq", SEQ), record("vpt-pgp", SEQ)])
    (a.folder(record("vpt-seq", SEQ).spec) / "predictions.npz").write_bytes(b"broken")
    done = merge(Store(tmp_path / "all"), [a], compact=True)
    assert (
        done.copied == 2
        and len(done.warnings) == 2
        and all("copied without predictions" in line for line in done.warnings)
    )


def test_a_merge_sets_aside_what_the_target_has_of_a_run_under_a_damaged_record(tmp_path):
    whole, begun = record("vpt-seq", SEQ), record("vpt-seq", SEQ[:1], status="running")
    target = results(tmp_path / "all", [begun])
    place = target.folder(begun.spec)
    (place / "checkpoint-001.safetensors").write_bytes(b"state")
    (place / "record.json").write_text(
        (place / "record.json").read_text(encoding="utf-8")[:-9], encoding="utf-8"
    )
    done = merge(target, [results(tmp_path / "a", [whole])], compact=False)
    assert done.copied == 1 and "truncated" in done.warnings[0] and target.load(whole.spec) == whole
    [aside] = (tmp_path / "all" / "runs").glob("*.damaged-*")
    assert {path.name for path in aside.iterdir()} == {"checkpoint-001.safetensors", "record.json"} and str(
        aside
    ) in done.warnings[0]


def test_a_merge_leaves_alone_what_a_process_works_on(tmp_path):
    whole, begun = record("vpt-seq", SEQ), record("vpt-seq", SEQ[:1], status="running")
    target = results(tmp_path / "all", [begun])
    with locks.sole_owner(target, begun.spec, print):
        done = merge(target, [results(tmp_path / "a", [whole])], compact=False)
    assert (
        done.copied == 0 and "a process is working on" in done.lacking[0] and target.load(begun.spec) == begun
    )


def test_imported_matrices_are_merged_and_never_replaced_by_other_ones(tmp_path):
    (tmp_path / "m.csv").write_text(MATRIX, encoding="utf-8")
    (tmp_path / "n.csv").write_text(MATRIX.replace("80.0", "90.0"), encoding="utf-8")
    mine, theirs = (read_matrix(tmp_path / name, spec(), None, percent=True) for name in ("m.csv", "n.csv"))
    imported.save(mine, tmp_path / "a")
    imported.save(theirs, tmp_path / "b")
    imported.save(mine, tmp_path / "a")  # the same again is no conflict
    with pytest.raises(InputError, match="holds another matrix of Theirs on glyphs/3; give another --seed"):
        imported.save(theirs, tmp_path / "a")
    results(tmp_path / "b", [record("vpt-seq", SEQ)])
    with pytest.raises(InputError, match="holds another matrix"):
        merge(Store(tmp_path / "a"), [Store(tmp_path / "b")], compact=False)
    assert not (tmp_path / "a" / "runs").exists() and imported.records(tmp_path / "a") == [mine]
    with pytest.raises(InputError, match="holds another matrix"):  # neither has the target it yet
        merge(Store(tmp_path / "c"), [Store(tmp_path / "a"), Store(tmp_path / "b")], compact=False)
    assert not (tmp_path / "c").exists()
    for name in ("LAE+", "LAE*"):
        imported.save(read_matrix(tmp_path / "m.csv", spec(display=name), None, percent=True), tmp_path / "a")
    assert len(imported.records(tmp_path / "a")) == 3


# --- export


def test_an_exported_run_is_one_line_with_every_metric():
    [line] = run_lines([record("vpt-nsp2", BETTER)])
    assert line["accuracy_task_mean"] == pytest.approx(0.7) and line["forgetting_chaudhry"] == pytest.approx(
        -0.05
    )
    assert (
        line["forgetting_max_including_last"] == pytest.approx(0.025)
        and line["learn_seconds"] == 3.0
        and line["tasks"] == 3
    )
    [unfinished] = run_lines([record("vpt-nsp2", BETTER[:1], status="running")])
    assert unfinished["accuracy_task_mean"] is None and unfinished["tasks_learned"] == 1
    lines = matrix_lines([record("vpt-nsp2", BETTER)])
    assert [(line["after_task"], line["task"], line["correct"]) for line in lines] == [
        (1, 1, 80), (2, 1, 80), (2, 2, 60), (3, 1, 75), (3, 2, 75), (3, 3, 60),
    ]  # fmt: skip


def test_csv_and_parquet_hold_the_same(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    results(
        tmp_path / "r",
        [
            record("vpt-nsp2", BETTER),
            record("vpt-joint", [[90, 90, 93]], joint=True),
            record("vpt-seq", SEQ[:1], status="failed"),
        ],
    )
    for what in ("runs", "matrix"):
        for kind in ("csv", "parquet"):
            assert (
                command(
                    "export",
                    "--format",
                    kind,
                    "--what",
                    what,
                    "--results",
                    tmp_path / "r",
                    "--out",
                    tmp_path / f"{what}.{kind}",
                )
                == 0
            )
        with open(tmp_path / f"{what}.csv", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        table = parquet.read_table(tmp_path / f"{what}.parquet").to_pylist()
        assert [
            {key: "" if value is None else str(value) for key, value in line.items()} for line in table
        ] == lines and lines


def test_nothing_to_export_and_a_missing_folder_are_one_line(tmp_path, capsys):
    assert (
        command("export", "--results", tmp_path / "none") == 2
        and "no results folder" in capsys.readouterr().err
    )
    results(tmp_path / "empty", [])
    assert (
        command("export", "--results", tmp_path / "empty") == 2
        and "no runs to export" in capsys.readouterr().err
    )


# --- import

MATRIX = "t1,t2,t3\n80.0,,\n60.0,70.0,0\n50.0,60.0,70.0\n"


def spec(**changes):
    return ImportedSpec(
        **{"display": "Theirs", "benchmark": "glyphs/3", "seed": "1", "source": "their Table 2", **changes}
    )


def test_an_imported_matrix_stands_in_tables_and_is_marked(tmp_path):
    (tmp_path / "m.csv").write_text(MATRIX, encoding="utf-8")
    options = [
        "--name",
        "Theirs",
        "--benchmark",
        "glyphs/3",
        "--source",
        "their Table 2",
        "--percent",
        "--results",
        tmp_path / "r",
    ]
    assert command("import", tmp_path / "m.csv", *options) == 0
    found = record("vpt-nsp2", BETTER, dataset="glyphs")
    store = results(tmp_path / "r", [found])
    report = write.of_records([found], store, tmp_path / "out", Conventions())
    [line] = [line for line in report.text.splitlines() if line.startswith("| Theirs ‡ |")]
    assert [cell.strip(" *</u>") for cell in line.split("|")[2:4]] == ["60.00", "20.00"]
    assert (
        "‡ Theirs: imported, not run here; their Table 2." in report.text
        and "Without inductive certificate" in report.text
    )
    layout = tmp_path / "l.toml"
    layout.write_text(
        'title = "T"\n[[table]]\nname = "t"\ntitle = "t"\ncolumns = ["glyphs/3"]\n'
        'rows = ["nsp2", { imported = "Theirs" }]\nbaseline = "nsp2"\n',
        encoding="utf-8",
    )
    text = write.of_layout(layout, store, tmp_path / "out2", None, None).text
    assert (
        "| Theirs ‡ | <u>60.00</u> |" in text and "Differences" not in text
    )  # what was not run here is not paired
    with pytest.raises(InputError, match="imported without test sizes"):
        write.of_layout(layout, store, tmp_path / "out3", "sample", None)


def test_an_imported_matrix_alone_makes_a_table_too(tmp_path):
    (tmp_path / "m.csv").write_text(MATRIX, encoding="utf-8")
    imported.save(read_matrix(tmp_path / "m.csv", spec(), None, percent=True), tmp_path)
    [benchmark] = group([], imported.records(tmp_path))
    assert benchmark.name == "glyphs/3" and benchmark.rows[0].values("accuracy", Conventions()) == [
        pytest.approx(0.6)
    ]
    text = write.of_records([], Store(tmp_path), tmp_path / "out", Conventions()).text
    assert "| Theirs ‡ | 60.00 | 20.00 |" in text


def test_an_imported_matrix_stands_only_with_its_own_backbone_where_that_is_known(tmp_path):
    (tmp_path / "m.csv").write_text(MATRIX, encoding="utf-8")
    theirs = [
        read_matrix(tmp_path / "m.csv", spec(backbone=name, display=str(name)), None, percent=True)
        for name in ("toy_vit", "other", None)
    ]
    benchmarks = group([record("vpt-seq", SEQ, dataset="glyphs")], theirs)
    assert [[row.display for row in benchmark.rows] for benchmark in benchmarks] == [
        ["vpt-seq", "toy_vit", "None"],
        ["other"],
    ]


def test_matrices_of_one_name_with_different_backbones_are_refused(tmp_path):
    (tmp_path / "m.csv").write_text(MATRIX, encoding="utf-8")
    theirs = [
        read_matrix(tmp_path / "m.csv", spec(backbone=name, seed=name), None, percent=True)
        for name in ("toy_vit", "other")
    ]
    with pytest.raises(
        InputError,
        match="imported as 'Theirs' on glyphs/3 are matrices of toy_vit and other|have different backbones",
    ):
        group([], theirs)


def test_with_test_sizes_the_counts_are_those_of_images(tmp_path):
    (tmp_path / "m.csv").write_text("0.5\n0.5,0.25\n", encoding="utf-8")
    found = read_matrix(tmp_path / "m.csv", spec(benchmark="glyphs/2"), (10, 4), percent=False)
    assert found.correct == ((5,), (5, 1)) and found.counted


@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        ("80\n60,70\n", {}, "has 2 lines of accuracies, expected 3"),
        (
            "80,60,50\n0,70,60\n0,0,70\n",
            {},
            "line 1: there are accuracies on tasks not yet learned; is the matrix transposed",
        ),
        ("80\n60\n50,60,70\n", {}, r"line 2: expected 2 accuracies \(tasks 1 to 2\), got 1"),
        ("80\n60,170\n50,60,70\n", {}, "line 2, task 2: 170 is not between 0 and 100"),
        ("80\n60,x\n50,60,70\n", {}, "line 2, task 2: 'x' is not a number"),
        ("", {}, "holds no numbers"),
        ("80\n60,70\n50,60,70\n", {"percent": False}, "give --percent"),
        ("0.8\n0.6,0.7\n0.5,0.6,0.7\n", {}, "leave out --percent"),
        (
            "80.44\n60,70\n50,60,70\n",
            {"sizes": (101, 100, 100)},
            "line 1, task 1: 80.44 of 101 images is not a whole number",
        ),
        (
            "80\n60,70\n50,60,70\n",
            {"sizes": (7, 100, 100)},
            "line 1, task 1: 80 of 7 images is not a whole number",
        ),
    ],
)
def test_a_matrix_that_cannot_be_used_is_one_line_with_its_place(tmp_path, text, changes, said):
    (tmp_path / "m.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_matrix(tmp_path / "m.csv", spec(), changes.get("sizes"), changes.get("percent", True))


def test_wrong_names_in_an_import_are_refused(tmp_path, capsys):
    (tmp_path / "m.csv").write_text(MATRIX, encoding="utf-8")
    usual = ["--name", "T", "--source", "s", "--percent", "--results", tmp_path]
    assert (
        command("import", tmp_path / "m.csv", *usual, "--benchmark", "glyhps/3") == 2
        and "did you mean 'glyphs'" in capsys.readouterr().err
    )
    assert (
        command("import", tmp_path / "m.csv", *usual, "--benchmark", "glyphs") == 2
        and "is not a benchmark" in capsys.readouterr().err
    )
    assert command("import", tmp_path / "m.csv", *usual, "--benchmark", "glyphs/3", "--test-sizes", "a") == 2
    (tmp_path / "imported").mkdir(exist_ok=True)
    (tmp_path / "imported" / "x.json").write_text(json.dumps({"spec": {}}), encoding="utf-8")
    with pytest.raises(InputError, match="is not an imported matrix"):
        imported.records(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"correct": [[101], [60, 70], [50, 60, 70]]}, "101 right answers out of 100 test images of task 1"),
        ({"correct": [[80], [60], [50, 60, 70]]}, "row 2 of the accuracy matrix has 1 entries, expected 2"),
        ({"correct": [[80], [60, 70]]}, "2 lines of accuracies and 3 test sizes"),
        ({"correct": []}, "the accuracy matrix is empty"),
        ({"test_sizes": [100, 0, 100]}, "every task needs at least one test image"),
    ],
)
def test_an_imported_matrix_that_contradicts_itself_is_named_with_what_is_wrong(tmp_path, change, said):
    (tmp_path / "m.csv").write_text(MATRIX, encoding="utf-8")
    path = imported.save(read_matrix(tmp_path / "m.csv", spec(), (100, 100, 100), percent=True), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(InputError, match=f"{path.name} is not an imported matrix .*{said}"):
        imported.records(tmp_path)
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="is not an imported matrix"):
        imported.records(tmp_path)


# --- compare


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
