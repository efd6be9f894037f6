"""Benchmarks of one name are told apart wherever a report names them."""

import made
import pytest

from cl_bench.errors import InputError
from cl_bench.records.metrics import Conventions
from cl_bench.report import build
from cl_bench.report.grouping import group
from cl_bench.report.write import of_layout, of_records


def run(path, manifest, **changes):
    return made.record(
        "vpt-seq",
        made.triangle(3, 0),
        dataset="folder",
        dataset_argument=path,
        manifest_digest=manifest,
        **changes,
    )


def headings(*records):
    return [
        build.of_benchmark(benchmark, Conventions()).title.partition(" — ")[0] for benchmark in group(records)
    ]


def test_folders_of_one_name_bear_as_much_of_their_paths_as_tells_them_apart():
    assert headings(run("/data/cats/images", "a"), run("/data/dogs/images", "b")) == [
        "folder:cats/images/3",
        "folder:dogs/images/3",
    ]
    assert headings(run("/x/a/images", "a"), run("/y/a/images", "b")) == [
        "folder:x/a/images/3",
        "folder:y/a/images/3",
    ]
    assert headings(run("/images", "a"), run("/a/images", "b")) == ["folder:/images/3", "folder:a/images/3"]


def test_a_folder_alone_or_moved_keeps_its_short_name():
    assert headings(run("/data/cats/images", "a"), run("/data/dogs/pictures", "b")) == [
        "folder:images/3",
        "folder:pictures/3",
    ]
    assert headings(run("/data/cats/images", "a"), run("/moved/images", "a")) == ["folder:images/3"]


def test_one_folder_whose_images_changed_bears_the_digests_of_its_data():
    assert headings(run("/data/images", "a" * 64), run("/data/images", "b" * 64)) == [
        f"folder:images/3 [data {letter * 8}]" for letter in "ab"
    ]  # fmt: skip


def test_reports_made_one_by_one_name_the_digest_of_a_users_data():
    for letter in "ab":
        [benchmark] = group([run(f"/{letter}/images", letter * 64)])
        assert build.of_benchmark(benchmark, Conventions()).title.startswith(
            f"folder:images/3 — data {letter * 8}, backbone toy_vit"
        )
    [benchmark] = group([made.record("vpt-seq", made.triangle(3, 0))])
    assert build.of_benchmark(benchmark, Conventions()).title.startswith("toy/3 — backbone toy_vit")


def test_nested_images_are_named_and_a_file_of_names_is_not():
    assert headings(run("/data/images?nested", "a"), run("/data/images?names=/x/y.txt", "b")) == [
        "folder:images?nested/3",
        "folder:images/3",
    ]


def test_notes_tell_the_two_apart(tmp_path):
    records = [
        run("/a/images", "a").model_copy(update={"duplicates": 2}),
        run("/b/images", "b", precision="bf16", core_version=4),
    ]
    notes = [
        note for benchmark in group(records) for note in build.of_benchmark(benchmark, Conventions()).notes
    ]
    assert "folder:a/images/3: 2 of 300 evaluation images are pixel for pixel training images too." in notes
    store = made.results(tmp_path / "results", records)
    report = of_records(records, store, tmp_path / "out", Conventions())
    assert len({table.name for table in report.tables}) == 2 and "folder:b/images/3" in (
        tmp_path / "out" / "report.html"
    ).read_text(encoding="utf-8")


def written(tmp_path, *columns):
    names = ", ".join(f'"{name}"' for name in columns)
    path = tmp_path / "mine.toml"
    path.write_text(
        f'title = "Mine"\n[[table]]\nname = "main"\ntitle = "T"\ncolumns = [{names}]\nrows = ["seq"]\n',
        encoding="utf-8",
    )
    return path


def test_a_report_names_a_folder_by_as_much_of_its_path_as_is_needed(tmp_path):
    store = made.results(tmp_path / "results", [run("/a/images", "a"), run("/b/images", "b")])
    made_report = of_layout(
        written(tmp_path, "folder:a/images/3", "folder:/b/images/3"), store, tmp_path / "out", None, None
    )
    assert "Run here on folder:a/images/3, folder:b/images/3" in made_report.text and not made_report.warnings


def test_a_name_of_several_folders_is_refused_with_their_paths(tmp_path):
    store = made.results(tmp_path / "results", [run("/a/images", "a"), run("/b/images", "b")])
    with pytest.raises(
        InputError,
        match=r"2 folders \(/a/images, /b/images\): name one, such as folder:NAME/10, by as much of its path",
    ):
        of_layout(written(tmp_path, "folder:images/3"), store, tmp_path / "out", None, None)
