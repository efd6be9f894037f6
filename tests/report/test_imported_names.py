"""The spellings of a folder's benchmark are one benchmark in a report, where runs say which one they mean."""

import made
import pytest
from commands import command
from matrices import MATRIX, matrix_spec, read_matrix

from cl_bench.errors import InputError
from cl_bench.records import imported
from cl_bench.records.metrics import Conventions
from cl_bench.report import write
from cl_bench.report.grouping import group

SPELLINGS = ("folder/3", "folder:name/3", "folder:a/name/3")


def run(path="/data/a/name", manifest="m", **changes):
    return made.record(
        "vpt-seq", made.SEQ, dataset="folder", dataset_argument=path, manifest_digest=manifest, **changes
    )


def theirs(tmp_path, benchmark, text=MATRIX, **changes):
    (tmp_path / "m.csv").write_text(text, encoding="utf-8")
    return read_matrix(tmp_path / "m.csv", matrix_spec(benchmark=benchmark, **changes), None, percent=True)


def rows(found):
    return [(place.name, [(row.display, len(row.records)) for row in place.rows]) for place in found]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_stands_beside_the_runs(tmp_path, spelling):
    found = group([run()], [theirs(tmp_path, spelling)])
    assert rows(found) == [("folder:name/3", [("vpt-seq", 1), ("Theirs", 1)])]


def test_spellings_of_one_name_are_one_row(tmp_path):
    seeds = [theirs(tmp_path, spelling, seed=str(seed)) for seed, spelling in enumerate(SPELLINGS)]
    assert rows(group([run()], seeds)) == [("folder:name/3", [("vpt-seq", 1), ("Theirs", 3)])]
    others = [theirs(tmp_path, spelling, display=spelling) for spelling in SPELLINGS]
    assert [len(place.rows) for place in group([run()], others)] == [4]
    moved = group([run(), run("/moved/pictures", order_seed=7)], [theirs(tmp_path, "folder:pictures/3")])
    assert len(moved) == 1 and len(moved[0].rows) == 2
    # without runs nothing says that they are one
    assert len(group([], seeds)) == 3


def test_one_seed_by_two_spellings_counts_once_and_is_refused_with_other_numbers(tmp_path):
    same = [theirs(tmp_path, spelling) for spelling in SPELLINGS]
    assert rows(group([run()], same))[0][1] == [("vpt-seq", 1), ("Theirs", 1)]
    other = theirs(tmp_path, SPELLINGS[1], MATRIX.replace("50.0", "51.0"))
    with pytest.raises(InputError, match="folder/3 and folder:name/3 are one benchmark here, and 'Theirs'"):
        group([run()], [same[0], other])


def test_a_spelling_of_two_folders_is_none_of_them(tmp_path):
    runs = [run(), run("/data/b/name", "n")]
    for spelling in SPELLINGS[:2]:
        places = rows(group(runs, [theirs(tmp_path, spelling)]))
        assert places[-1] == (spelling, [("Theirs", 1)]) and len(places) == 3
    places = rows(group(runs, [theirs(tmp_path, "folder:a/name/3"), theirs(tmp_path, "folder:b/name/3")]))
    assert [(name, len(found)) for name, found in places] == [("folder:a/name/3", 2), ("folder:b/name/3", 2)]
    changed = [run(), run(manifest="n")]  # the images of one folder: an import does not say which
    assert [len(found) for _, found in rows(group(changed, [theirs(tmp_path, "folder/3")]))] == [2, 2]
    trial = rows(group([run(limit=10)], [theirs(tmp_path, "folder/3")]))
    assert [len(found) for _, found in trial] == [1, 1]


def test_the_commands_make_one_table_of_three_spellings(tmp_path):
    (tmp_path / "m.csv").write_text(MATRIX, encoding="utf-8")
    store = made.results(tmp_path / "r", [run()])
    for seed, spelling in enumerate(SPELLINGS):
        options = ["--name", "Theirs", "--source", "s", "--percent", "--results", store.root]
        assert command("import", tmp_path / "m.csv", "--benchmark", spelling, "--seed", seed, *options) == 0
    assert len(imported.records(store.root)) == 3
    report = write.of_folder(store, tmp_path / "out", Conventions())
    assert len(report.tables) == 1 and "| Theirs ‡ | 60.00 ± 0.00 |" in report.text.replace("*", "")
