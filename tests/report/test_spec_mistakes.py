"""What is wrong in a report specification is told in one line, with its place."""

import pytest
from made import SEQ, record, results
from paper_runs import PAPER
from small_reports import small

from cl_bench.errors import InputError
from cl_bench.report import spec, write

TABLE = "title = 'x'\n[[table]]\nname = 't'\ntitle = 't'\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("titel = 'x'\n", "unknown key 'titel'; did you mean 'title'"),
        (TABLE + "columns = ['glyphs/3']\nrows = ['nsp3']\n", "unknown method 'nsp3'; did you mean 'nsp2'"),
        (
            TABLE + "columns = ['glyhps/3']\nrows = ['seq']\n",
            "unknown data set 'glyhps'; did you mean 'glyphs'",
        ),
        (TABLE + "columns = ['glyphs']\nrows = ['seq']\n", "'glyphs' is not a benchmark"),
        (
            TABLE + "columns = ['glyphs/3']\nrows = [{ selekt = 'seq' }]\n",
            "row 1, selekt: unknown key 'selekt'; did you mean 'select'",
        ),
        (TABLE + "columns = ['glyphs/3']\nrows = ['nsp2[eta=1|2]']\n", "names 2 configurations"),
        (TABLE + "columns = ['glyphs/3']\nrows = []\n", "rows: expected a list with something in it"),
        (
            TABLE + "columns = ['glyphs/3']\nrows = ['seq', {select = 'nsp2', against = 'pgp'}]\n",
            "unknown against 'pgp'",
        ),
        (TABLE + "columns = ['glyphs/3']\nrows = ['seq']\nbaseline = 'pgp'\n", "unknown baseline 'pgp'"),
        (
            TABLE + "columns = ['glyphs/3']\nrows = [{ select = 'seq', published = 'VPT-Seq' }]\n",
            "row 1, published: needs the label",
        ),
        (
            "title = 'x'\n[[figure]]\nname = 't'\nkind = 'pie'\ncolumns = ['glyphs/3']\nrows = ['seq']\n",
            "kind: 'pie' is not usable",
        ),
        ("title = 'x'\nbroken\n", "r.toml, line 2: the report specification is not TOML"),
    ],
)
def test_a_specification_that_cannot_be_used_is_one_line_that_says_where(tmp_path, text, said):
    (tmp_path / "r.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said) as caught:
        spec.read(tmp_path / "r.toml")
    assert "\n" not in str(caught.value)


FULL = "columns = ['glyphs/3']\nrows = ['seq']\n"


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("[[table]]\nname = 't'\ntitle = 't'\n" + FULL, 1, "title"),
        ("title = 'x'\ntitel = 'y'\n", 2, "titel"),
        ("title = 'x'\n[table]\n", 2, "table"),
        ("title = 'x'\naccuracy = 'mean'\n", 2, "accuracy"),
        ("title = 'x'\n\n[[table]]\nname = 't'\n" + FULL, 3, "table 't', title"),
        ("title = 'x'\n[[table]]\nname = 't'\ntitle = 't'\nrows = ['seq']\n", 2, "table 't', columns"),
        ("title = 'x'\n[[table]]\ntitle = 't'\n" + FULL, 2, "table 1, name"),
        ("title = 'x'\n[[table]]\nname = 'a/b'\ntitle = 't'\n" + FULL, 3, "table 'a/b', name"),
        (TABLE + FULL + "rank = 'best'\n", 7, "table 't', rank"),
        (TABLE + FULL + "metrics = ['accuracy', 'speed']\n", 7, "table 't', metrics"),
        (TABLE + FULL + "method_column = false\n", 7, "table 't', method_column"),
        (TABLE + FULL + "published = 'tab:x'\n", 7, "table 't', published"),
        (TABLE + FULL + TABLE.partition("\n")[2] + FULL, 8, "table 't', name"),
        (
            TABLE + "columns = [\n'glyphs/3',\n{ benchmark = 'glyphs/4', limit = '3' }]\nrows = ['seq']\n",
            7,
            "table 't', column 2, limit",
        ),
        (
            TABLE + "columns = ['glyphs/3']\nrows = [\n'seq',\n{ select = 'seq', rule = 1 },\n]\n",
            8,
            "table 't', row 2, rule",
        ),
        (TABLE + "columns = ['glyphs/3']\nrows = [\n'seq', 3]\n", 7, "table 't', row 2, select"),
        (TABLE + "columns = ['glyphs/3']\nrows = [{ title = 'x' }]\n", 6, "table 't', row 1"),
        (
            TABLE + "columns = ['glyphs/3']\nrows = [{ select = 'seq', imported = 'x' }]\n",
            6,
            "table 't', row 1, imported",
        ),
        (TABLE + "columns = ['glyphs/x']\nrows = ['seq']\n", 5, "table 't', column 1, benchmark"),
        (TABLE + "columns = ['glyphs/3']\nrows = ['seq[eta']\n", 6, "table 't', row 1, select"),
        (TABLE + "columns = ['glyphs/3']\nrows = 'u'\n", 6, "table 't', rows"),
        (
            TABLE + FULL + "[[figure]]\nname = 'f'\nkind = 'accuracy'\nrows = 't'\ncolumns = 'u'\n",
            11,
            "figure 'f', columns",
        ),
        (
            TABLE
            + "labels = ['L']\ncolumns = ['glyphs/3']\nrows = ['seq', { select = 'nsp2', labels = ['x'] }]\n"
            + "[[table]]\nname = 'u'\ntitle = 'u'\ncolumns = 't'\nrows = 't'\n",
            12,
            "table 'u', row 2, labels",
        ),
        (
            TABLE + "columns = ['glyphs/3']\nrows = [{ select = 'seq', at = 'x' }]\n",
            6,
            "table 't', row 1, at",
        ),
    ],
)
def test_every_mistake_is_told_with_file_line_and_field(tmp_path, text, line, field):
    (tmp_path / "r.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        spec.read(tmp_path / "r.toml")
    assert str(caught.value).startswith(f"{tmp_path / 'r.toml'}, line {line}, {field}: ") and "\n" not in str(
        caught.value
    )


def test_a_sweep_over_an_option_that_no_row_has_offers_the_nearest(tmp_path):
    figure = (
        "[[figure]]\nname = 'f'\nkind = 'tradeoff'\nsweep = 'etaa'\n"
        "columns = ['glyphs/3']\nrows = ['nsp2[eta=0.9]']"
    )
    with pytest.raises(InputError, match="figure 'f', sweep: unknown option 'etaa'; did you mean 'eta'?"):
        small(tmp_path, [record("vpt-nsp2", SEQ, options={"eta": 0.9})], '["nsp2[eta=0.9]"]', extra=figure)


def test_labels_need_headings_and_tables_metrics(tmp_path):
    with pytest.raises(
        InputError, match="row 1, labels: 1 labels, but the table's labels give 0 columns a heading"
    ):
        small(tmp_path, [record("vpt-seq", SEQ)], '[{ select = "seq", labels = ["x"] }]')
    with pytest.raises(InputError, match="line 8, table 't', metrics: expected at least one"):
        small(tmp_path, [record("vpt-seq", SEQ)], '["seq"]', extra="metrics = []")


def test_a_report_that_selects_nothing_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no run in .* is selected by any table"):
        small(tmp_path, [record("vpt-pgp", SEQ)])
    with pytest.raises(InputError, match="there is no results folder"):
        write.of_layout(PAPER, results(tmp_path / "x", []).__class__(tmp_path / "none"), tmp_path, None, None)
