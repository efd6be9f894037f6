"""Results folders and names that cannot be any: one line that says so, whatever the command."""

import pytest
from made import record, results
from matrices import read_matrix

from cl_bench.cli import main
from cl_bench.records.imported import ImportedSpec, place
from cl_bench.report.grouping import group

LONG = "a" * 300
COUNTS = [[80], [60, 70], [50, 60, 70]]


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "vanished").symlink_to("nothing")
    results(tmp_path / "r", [record("vpt-seq", COUNTS)])

    def called(*words):
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        told = capsys.readouterr()
        assert "Traceback" not in told.err and len(told.err.splitlines()) == 1, told.err
        return end.value.code, told.err

    return called


COMMANDS = [
    ["ls", "runs"],
    ["status"],
    ["report"],
    ["export"],
    ["clean", "--failed"],
    ["certify", "abc"],
    ["compare", "seq", "nsp2"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_results_folder_that_is_none_is_one_line(call, words):
    for folder, said in (
        ("file", "is not a folder"),
        (LONG, "cannot be a results folder: File name too long"),
        ("file/x", "Not a directory"),
    ):
        code, err = call(*words, "--results", folder)
        assert code == 2 and said in err and "--results" in err
    code, err = call(*words, "--results", "vanished")
    assert code == 1 and "cannot read vanished" in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["merge", "all", "file"], 2, "file is not a folder"),
        (["merge", "file", "r"], 2, "file is not a folder"),
        (["merge", "all", LONG], 2, "File name too long"),
        (["merge", "all", "vanished"], 1, "cannot read vanished"),
        (["report", "--results", "r", "--out", LONG], 2, "cannot write the report"),
        (["report", LONG, "--results", "r"], 2, "File name too long"),
        (["export", "--results", "r", "--out", f"{LONG}.csv"], 2, "cannot write"),
        (["certify", LONG, "--results", "r"], 2, "no run is called"),
        (["clean", f"{LONG}/x", "--results", "r"], 2, "is not a run in r"),
        (["run-one", LONG, "--results", "r"], 2, "is not a run specification"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_names_that_no_file_can_have_are_one_line(call, words, code, said):
    found, err = call(*words)
    assert found == code and said in err


def test_long_names_of_data_and_methods_still_make_files(tmp_path):
    [benchmark] = group([record("vpt-seq", COUNTS, dataset="folder", dataset_argument=f"/data/{'b' * 250}")])
    assert len(benchmark.slug) < 200
    (tmp_path / "m.csv").write_text("0.5\n", encoding="utf-8")
    spec = ImportedSpec(display="é" * 300, benchmark="glyphs/1", seed="1", source="s")
    other = spec.model_copy(update={"seed": "2"})
    paths = [place(read_matrix(tmp_path / "m.csv", found, None, False), tmp_path) for found in (spec, other)]
    assert all(len(path.name.encode()) < 220 for path in paths) and paths[0] != paths[1]
