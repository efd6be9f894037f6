"""Differences to a row: which one is meant, how the numbers are rounded, what is starred."""

import pytest
from made import BETTER, SEQ, record
from small_reports import small

from cl_bench.errors import InputError
from cl_bench.report.significance import Comparison
from cl_bench.report.table import Difference
from cl_bench.report.versus import Versus


def difference(mean: float, ends: tuple[float, float] | None = None, p: float | None = None) -> Difference:
    made = Difference.of("a", "b", "Acc. ↑", Comparison((mean,), None, ends))
    made.p = p
    return made


def test_means_and_ends_are_rounded_as_cells_are_and_nothing_is_minus_zero():
    """1/800 is 0.125 points, 7/800 is 0.875: ties, which go away from zero; 1/80000 rounds to nothing."""
    found = difference(1 / 800, (-1 / 80000, 7 / 800))
    assert found.words[3:5] == ["+0.13 (n = 1)", "[+0.00, +0.88]"]
    assert difference(-1 / 800, (-7 / 800, 0.0)).words[3:5] == ["-0.13 (n = 1)", "[-0.88, +0.00]"]
    assert difference(-1 / 80000).words[3:5] == ["+0.00 (n = 1)", "–"]
    shown = Versus([found], [], [], 0.05).markdown()
    assert "| +0.13 (n = 1) | [+0.00, +0.88] |" in shown


@pytest.mark.parametrize(
    ("p", "shown"),
    [(0.0496, "0.0496"), (0.04996, "0.04996"), (0.0494, "0.049"), (0.05, "0.050"), (0.0504, "0.050"),
     (0.5, "0.500"), (0.0004, "< 0.001"), (None, "n too small")],
)  # fmt: skip
def test_a_p_below_the_level_is_not_shown_as_the_level(p, shown):
    assert difference(0.1, p=p).verdict == shown


RUNS = [record("vpt-seq", SEQ), record("vpt-nsp2", BETTER)]


@pytest.mark.parametrize("name", ["seq", "vpt-seq", "vpt-seq[eta=0.97]"])
def test_a_row_is_compared_with_the_row_that_is_meant_by_any_of_its_names(tmp_path, name):
    own = "seq[eta=0.97]" if "[" in name else "seq"
    text, _ = small(tmp_path, RUNS, f'["all", "{own}", {{ select = "nsp2", against = "{name}" }}]')
    assert "| VPT-NSP², against vpt-seq | glyphs/3 | Acc. ↑ | +10.00 (n = 1) |" in text
    text, _ = small(tmp_path, RUNS, f'["all", "{own}"]', extra=f'baseline = "{name}"')
    assert "| VPT-NSP² | glyphs/3 | Acc. ↑ | +10.00 (n = 1) |" in text and "Differences to vpt-seq" in text


def test_options_of_the_row_that_is_meant_may_stand_in_another_order_and_by_another_name(tmp_path):
    row, meant = "seq[eta=0.97,batch=8,input_norm=half]", "vpt-seq[normalisation=half,batch=8,eta=0.97]"
    small(tmp_path, RUNS, f'["{row}", {{ select = "nsp2", against = "{meant}" }}]')
    other = meant.replace("8", "9")
    with pytest.raises(InputError, match=r"line 7, table 't', row 2, against: unknown against 'vpt-seq\["):
        small(tmp_path, RUNS, f'["{row}", {{ select = "nsp2", against = "{other}" }}]')


def test_of_rows_with_one_meaning_the_one_that_is_spelled_so_is_meant_and_never_the_row_itself(tmp_path):
    runs = [*RUNS, record("vpt-seq", BETTER, precision="bf16", core_version=4)]
    bf16 = 'where = { precision = "bf16" }'
    rows = f'[{{ select = "seq", where = {{ precision = "fp32" }} }}, {{ select = "vpt-seq", {bf16} }}, %s]'
    text, _ = small(tmp_path, runs, rows % '{ select = "nsp2", against = "vpt-seq" }')
    assert "| VPT-NSP², against vpt-seq [precision=bf16] | glyphs/3 | Acc. ↑ | +0.00 (n = 1) |" in text
    rows = f'[{{ select = "seq", {bf16}, against = "seq" }}, {{ select = "seq", where = {{ eta = 0.97 }} }}]'
    with pytest.raises(InputError, match="seq has 2 configurations"):
        small(tmp_path, runs, rows)
    rows = rows.replace("eta = 0.97", 'precision = "fp32"')
    text, _ = small(tmp_path, runs, rows)
    assert "| +10.00 (n = 1) |" in text


@pytest.mark.parametrize(
    ("rows", "extra", "said"),
    [
        ('["seq", { select = "nsp2", against = "sqe" }]', "",
         "line 7, table 't', row 2, against: unknown against 'sqe'; did you mean 'seq'"),
        ('["all", "seq"]', 'baseline = "vpt-sqe"', "line 8, table 't', baseline: unknown baseline 'vpt-sqe'"),
        ('["all", "seq"]', 'baseline = "all"', "line 8, table 't', baseline: unknown baseline 'all'"),
        ('["all", { select = "seq", against = "vpt-seq" }]', "",
         "line 7, table 't', row 2, against: unknown against 'vpt-seq'"),
        ('["seq", { select = "nsp2", against = "all" }]', "", "row 2, against: unknown against 'all'"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_stand_is_refused_with_its_place_and_the_nearest(tmp_path, rows, extra, said):
    with pytest.raises(InputError, match=said):
        small(tmp_path, RUNS, rows, extra=extra)
