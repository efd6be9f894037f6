"""Reports from specifications: which runs a cell is made of, and what is refused."""

import shutil

import pytest
from made import BETTER, SEQ, record, results
from matrices import matrix_spec
from paper_runs import AUGREG
from small_reports import line_of, small

from cl_bench.config import Transform
from cl_bench.errors import InputError
from cl_bench.records import imported
from cl_bench.records.imported import ImportedRecord
from cl_bench.records.metrics import Conventions
from cl_bench.report import spec
from cl_bench.report.rows import Row


def test_a_row_is_the_runs_with_exactly_its_options(tmp_path):
    records = [
        record("vpt-nsp2", SEQ),
        record("vpt-nsp2[eta=1.0]", BETTER, options={"eta": 1.0}),
        record("vpt-seq", SEQ),
    ]
    text, warnings = small(tmp_path, records, '["seq", "nsp2", "nsp2[eta=1]", "nsp2[eta=0.5]"]')
    assert (
        line_of(text, "VPT-NSP²")[0] == "<u>60.00</u>"
        and line_of(text, "VPT-NSP² [eta=1.0]")[0] == "**70.00**"
    )
    assert line_of(text, "nsp2[eta=0.5]") == ["–", "–"] and warnings == [
        "t: no run of nsp2[eta=0.5] on glyphs/3; there are nsp2 and nsp2[eta=1.0]"
    ]


def test_a_row_that_nothing_answers_to_offers_the_nearest_that_does(tmp_path):
    trial = record("vpt-seq", SEQ, 5, limit=500)
    records = [
        record("vpt-seq[passes=1]", SEQ, options={"passes": 1}),
        record("vpt-pgp", SEQ, precision="bf16", core_version=4),
        trial,
    ]
    rows = (
        '["seq[passes=1]", "seq", { select = "pgp", where = { precision = "fp32" } }, '
        '"nsp2", { imported = "Thiers" }]'
    )
    imported.save(
        ImportedRecord(
            spec=matrix_spec(), correct=tuple(map(tuple, SEQ)), test_sizes=(100,) * 3, counted=True
        ),
        tmp_path / "results",
    )
    _, warnings = small(tmp_path, records, rows)
    assert warnings == [
        "t: no run of seq on glyphs/3; there is seq[passes=1]",
        "t: no run of pgp on glyphs/3; there is pgp with precision = bf16",
        "t: no run of nsp2 on glyphs/3",
        "t: no run of Thiers on glyphs/3; there is 'Theirs'",
    ]
    with pytest.raises(
        InputError,
        match=r"is selected by any table of .*: t: no run of seq on glyphs/3; "
        r"there is seq\[passes=1\] \(`cl-bench ls",
    ):
        small(tmp_path, records, '["seq"]')
    with pytest.raises(
        InputError, match="no run of seq on glyphs/3; its runs are of columns with limit = 500"
    ):
        shutil.rmtree(tmp_path / "results")
        small(tmp_path, [trial], '["seq"]')


def test_of_several_values_the_nearest_are_offered_first(tmp_path):
    records = [
        record(f"vpt-nsp2[eta={eta}]", SEQ, options={"eta": eta}) for eta in (1.0, 0.97, 0.7, 0.9, 0.55)
    ]
    _, warnings = small(tmp_path, [record("vpt-seq", SEQ), *records], '["seq", "nsp2[eta=0.5]"]')
    assert warnings == [
        "t: no run of nsp2[eta=0.5] on glyphs/3; there are nsp2[eta=0.55], nsp2[eta=0.7] and nsp2[eta=0.9]"
    ]


def test_missing_partial_and_unfinished_cells_are_shown_as_such(tmp_path):
    records = [record("vpt-seq", SEQ, seed) for seed in (1, 2, 3)]
    records += [
        record("vpt-nsp2", BETTER, 1),
        record("vpt-nsp2", BETTER, 2),
        record("vpt-nsp2", BETTER[:1], 3, "running"),
    ]
    records += [record("vpt-pgp", SEQ[:2], 1, "failed")]
    text, warnings = small(tmp_path, records, '["seq", "nsp2", "pgp", "joint"]')
    assert (
        line_of(text, "VPT-NSP²")[0] == "**70.00 ± 0.00 (2 of 3 seeds)**"
        and line_of(text, "vpt-pgp") == ["unfinished"] * 2
    )
    assert line_of(text, "joint") == ["–", "–"] and "t: no run of joint on glyphs/3" in warnings
    assert "VPT-NSP², seed 3: not finished (1 tasks done)" in text and "vpt-pgp, seed 1: failed" in text


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"manifest_digest": "m2"}, r"2 data manifests \(digest\) \(m, m2\): they are not the same images"),
        ({"weights_sha256": "w2"}, r"2 weights of one name"),
        ({"backbone": AUGREG}, r"2 backbones .*name one with backbone = "),
    ],
)
def test_runs_that_may_not_share_a_column_are_refused_with_what_they_differ_in(tmp_path, other, said):
    with pytest.raises(
        InputError, match=f"table 't', column 1: glyphs/3 stands for runs that may not share a column: {said}"
    ):
        small(tmp_path, [record("vpt-seq", SEQ), record("vpt-nsp2", SEQ, **other)])


def test_a_column_can_name_the_backbone_it_means(tmp_path):
    records = [record("vpt-seq", SEQ), record("vpt-seq", BETTER, backbone=AUGREG)]
    text, _ = small(
        tmp_path,
        records,
        '["seq"]',
        f'[{{ benchmark = "glyphs/3", backbone = "{AUGREG.name}" }}, '
        '{ benchmark = "glyphs/3", backbone = "toy_vit" }]',
    )
    assert line_of(text, "vpt-seq") == ["70.00", "-5.00", "60.00", "20.00"]


def test_two_configurations_of_one_name_are_never_averaged(tmp_path):
    records = [record("vpt-seq", SEQ), record("vpt-seq", BETTER, 2025, precision="bf16")]
    with pytest.raises(
        InputError,
        match=r"row 1: seq has 2 configurations on glyphs/3 \(precision: bf16, fp32\); choose with where",
    ):
        small(tmp_path, records, '["seq"]')
    text, _ = small(tmp_path, records, '[{ select = "seq", where = { precision = "bf16" } }]')
    assert line_of(text, "vpt-seq [precision=bf16]")[0] == "70.00"


def test_a_selector_names_values_whether_or_not_they_are_the_presets(tmp_path):
    records = [
        record("vpt-seq", SEQ),
        record("vpt-nsp2", BETTER),
        record("vpt-nsp2[eta=0.5]", SEQ, options={"eta": 0.5}),
    ]
    for select, accuracy in (
        ("nsp2", "70.00"),
        ("nsp2[eta=0.97]", "70.00"),
        ("nsp2[eta=0.97,batch=8]", "70.00"),
        ("nsp2[eta=0.5]", "60.00"),
    ):
        text, warnings = small(tmp_path, records, f'["{select}"]')
        assert f"| {accuracy} |" in text and not warnings, select
    text, warnings = small(tmp_path, records, '["seq", "nsp2[batch=9]"]')
    assert warnings == ["t: no run of nsp2[batch=9] on glyphs/3; there are nsp2 and nsp2[eta=0.5]"]
    other = record("vpt-seq[normalisation=unit01]", BETTER, transform=Transform(normalisation="unit01"))
    text, warnings = small(
        tmp_path, [records[0], other], '["seq[input_norm=unit01]"]'
    )  # its name on the command line
    assert "| 70.00 |" in text and not warnings


def test_trials_stand_only_where_their_limit_is_named_and_say_it(tmp_path):
    records = [record("vpt-seq", SEQ), record("vpt-seq", BETTER, limit=50)]
    text, _ = small(tmp_path, records, '["seq"]')
    assert line_of(text, "vpt-seq")[0] == "60.00" and "trial" not in text
    text, _ = small(tmp_path, records, '["seq"]', '[{ benchmark = "glyphs/3", limit = 50 }]')
    assert line_of(text, "vpt-seq")[0] == "70.00" and "trial: at most 50 training images" in text


def test_a_copied_run_folder_is_no_second_seed(tmp_path):
    found = record("vpt-seq", SEQ, dataset="glyphs")
    store = results(tmp_path / "results", [found])
    folder = store.folder(found.spec)
    shutil.copytree(folder, folder.with_name(f"{folder.name} (copy)"))
    text, warnings = small(tmp_path, [found], '["seq"]')
    assert line_of(text, "vpt-seq")[0] == "60.00" and "is a copy of the run" in warnings[0]


def test_a_setting_that_does_not_exist_is_named_and_one_that_does_decides(tmp_path):
    with pytest.raises(
        InputError, match="row 1, where: unknown setting 'precison'; did you mean 'precision'"
    ):
        small(tmp_path, [record("vpt-seq", SEQ)], '[{ select = "seq", where = { precison = "fp32" } }]')
    text, _ = small(
        tmp_path, [record("vpt-seq", SEQ)], '[{ select = "seq", where = { mean = [0, 0, 0], eta = 0.97 } }]'
    )
    assert line_of(text, "vpt-seq")[0] == "60.00"


def test_two_matrices_imported_as_one_seed_keep_their_own_numbers():
    low, high = (
        ImportedRecord(
            spec=matrix_spec(), correct=((count,), (count, count)), test_sizes=(100,) * 2, counted=True
        )
        for count in (50, 70)
    )
    row = Row("theirs", "theirs", False, [low, high])
    assert row.values("accuracy", Conventions()) == [0.5, 0.7]


def test_columns_and_rows_can_be_those_of_a_table_above(tmp_path):
    """The second table and the figure are as if they repeated the lists."""
    rows = 'rows = [{ select = "seq", title = "S" }, "nsp2"]\n'
    lists = f'{rows}columns = [{{ benchmark = "glyphs/3", title = "G" }}]\n'
    named = 'rows = "t"\ncolumns = "t"\n'

    def made(own):
        path = tmp_path / "layout.toml"
        head = f"title = 'T'\n[[table]]\nname = 't'\ntitle = 't'\n{lists}"
        parts = f"[[table]]\nname = 'u'\ntitle = 'u'\n{own}[[figure]]\nname = 'f'\nkind = 'accuracy'\n{own}"
        path.write_text(head + parts, encoding="utf-8")
        found = spec.read(path)
        parts = [*found.tables, *found.figures]
        return [
            (part.name, [r.model_dump() for r in part.rows], [c.model_dump() for c in part.columns])
            for part in parts
        ]

    assert made(named) == made(lists) and len(made(named)) == 3
