"""Accuracy matrices from elsewhere beside our runs: marked, checked, refused with their place."""

import json

import pytest
from commands import command
from made import BETTER, SEQ, record, results
from matrices import MATRIX, matrix_spec, read_matrix

from cl_bench.errors import InputError
from cl_bench.records import imported
from cl_bench.records.metrics import Conventions
from cl_bench.records.store import Store
from cl_bench.report import write
from cl_bench.report.grouping import group


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
    imported.save(read_matrix(tmp_path / "m.csv", matrix_spec(), None, percent=True), tmp_path)
    [benchmark] = group([], imported.records(tmp_path))
    assert benchmark.name == "glyphs/3" and benchmark.rows[0].values("accuracy", Conventions()) == [
        pytest.approx(0.6)
    ]
    text = write.of_records([], Store(tmp_path), tmp_path / "out", Conventions()).text
    assert "| Theirs ‡ | 60.00 | 20.00 |" in text


def test_an_imported_matrix_stands_only_with_its_own_backbone_where_that_is_known(tmp_path):
    (tmp_path / "m.csv").write_text(MATRIX, encoding="utf-8")
    theirs = [
        read_matrix(tmp_path / "m.csv", matrix_spec(backbone=name, display=str(name)), None, percent=True)
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
        read_matrix(tmp_path / "m.csv", matrix_spec(backbone=name, seed=name), None, percent=True)
        for name in ("toy_vit", "other")
    ]
    with pytest.raises(
        InputError,
        match="imported as 'Theirs' on glyphs/3 are matrices of toy_vit and other|have different backbones",
    ):
        group([], theirs)


def test_with_test_sizes_the_counts_are_those_of_images(tmp_path):
    (tmp_path / "m.csv").write_text("0.5\n0.5,0.25\n", encoding="utf-8")
    found = read_matrix(tmp_path / "m.csv", matrix_spec(benchmark="glyphs/2"), (10, 4), percent=False)
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
        read_matrix(tmp_path / "m.csv", matrix_spec(), changes.get("sizes"), changes.get("percent", True))


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
    path = imported.save(
        read_matrix(tmp_path / "m.csv", matrix_spec(), (100, 100, 100), percent=True), tmp_path
    )
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(InputError, match=f"{path.name} is not an imported matrix .*{said}"):
        imported.records(tmp_path)
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="is not an imported matrix"):
        imported.records(tmp_path)
