"""Columns of what a diagnosis measured: means over tasks, blocks and seeds, worked out by hand."""

import pytest
from made import SEQ, diagnosed_record, record
from small_reports import asking, line_of, small

from cl_bench.errors import InputError
from cl_bench.report.table import measure


def test_a_measure_is_the_mean_over_blocks_and_later_tasks_with_the_spread_over_seeds(tmp_path):
    """Blocks of 0.1 and 0.3, and of 0.3 and 0.5: 0.2 and 0.4, whose deviation is 0.2 over the root of 2."""
    found = [
        diagnosed_record(seed, {"affinity_change": [value, value + 0.2]}, {"feature_change": 0.0125})
        for seed, value in ((1, 0.1), (2, 0.3))
    ]
    text, _ = small(
        tmp_path, found, '["seq"]', extra=asking("accuracy", "affinity_change", "feature_change", "inside_b1")
    )
    assert "| Acc. ↑ | affinity change | feature change | inside b1 |" in text
    assert line_of(text, "vpt-seq")[1:] == ["0.300 ± 0.141", "0.0125 ± 0.0000", "–"]
    assert "- affinity change: relative change of Q K_P' of old images." in text
    assert "mean over tasks 2 to T, and over blocks where each has one; – without --diagnose." in text


def test_a_measure_is_neither_ranked_nor_tested_and_runs_without_it_have_none(tmp_path):
    found = [diagnosed_record(1, {"affinity_change": [0.5]}), record("vpt-nsp2", SEQ, 1)]
    text, _ = small(tmp_path, found, extra=f'baseline = "seq"\n{asking("affinity_change", "forgetting")}')
    above, below = text.split("Differences to")
    assert line_of(above, "vpt-seq")[0] == "0.500"
    assert line_of(above, "VPT-NSP²")[0] == "–"
    assert "affinity" not in below and "Forgetting" in below


def test_a_table_without_measures_explains_none(tmp_path):
    text, _ = small(tmp_path, [diagnosed_record(1, {"affinity_change": [0.5]})], '["seq"]')
    assert "diagnose" not in text


def test_a_misspelt_measure_gets_the_nearest_name(tmp_path):
    with pytest.raises(InputError, match=r"metrics: unknown metric 'affinity_chage'.*'affinity_change'"):
        small(tmp_path, [record("vpt-seq", SEQ)], '["seq"]', extra=asking("affinity_chage"))


@pytest.mark.parametrize(
    ("mean", "spread", "text"),
    [
        (0.0, 0.0, "0"),
        (0.012345, 0.00049, "0.0123 ± 0.0005"),
        (123.4, None, "123"),
        (1234567.0, 1.0, "1.2e+06 ± 1.0e+00"),
        (3.21e-7, 1e-8, "3.2e-07 ± 1.0e-08"),
        (-0.5, 0.25, "-0.500 ± 0.250"),
    ],
)
def test_three_digits_are_shown(mean, spread, text):
    assert measure(mean, spread) == text
