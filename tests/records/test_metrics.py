"""Metrics against values worked out by hand."""

import copy

import pytest

from cl_bench.records import metrics

# R = [[80], [86, 70], [75, 75, 60]] in percent
EXAMPLE, SIZES = [[80], [86, 70], [75, 75, 60]], [100, 100, 100]


@pytest.mark.parametrize(
    ("convention", "expected"), [("max_including_last", 5.5), ("chaudhry", 3.0), ("diagonal", 0.0)]
)
def test_forgetting_of_the_example_in_each_convention(convention, expected):
    # task 1: best 86, final 75; task 2: 70 right after learning it, final 75
    assert 100 * metrics.forgetting(EXAMPLE, SIZES, convention) == pytest.approx(expected)


def test_accuracies_of_the_example():
    assert metrics.final_accuracy(EXAMPLE, SIZES) == pytest.approx(0.70)
    assert metrics.average_incremental_accuracy(EXAMPLE, SIZES) == pytest.approx((0.80 + 0.78 + 0.70) / 3)
    assert metrics.backward_transfer(EXAMPLE, SIZES) == pytest.approx((-0.05 + 0.05) / 2)


def test_unequal_test_sizes_tell_task_mean_from_sample_weighted():
    correct, sizes = [[9], [5, 60]], [10, 200]
    assert metrics.final_accuracy(correct, sizes, "task_mean") == pytest.approx((0.5 + 0.3) / 2)
    assert metrics.final_accuracy(correct, sizes, "sample") == pytest.approx(65 / 210)
    assert metrics.average_incremental_accuracy(correct, sizes, "sample") == pytest.approx(
        (0.9 + 65 / 210) / 2
    )
    assert metrics.forgetting(correct, sizes) == pytest.approx(0.4)


def test_one_task_has_an_accuracy_and_no_forgetting():
    assert metrics.final_accuracy([[3]], [4]) == 0.75
    assert metrics.forgetting([[3]], [4]) is None and metrics.backward_transfer([[3]], [4]) is None


def test_two_tasks():
    correct, sizes = [[8], [6, 9]], [10, 10]
    assert metrics.final_accuracy(correct, sizes) == pytest.approx(0.75)
    for convention in metrics.FORGETTING_CONVENTIONS:
        assert metrics.forgetting(correct, sizes, convention) == pytest.approx(0.2)
    better_later = [[6], [8, 9]]
    assert metrics.forgetting(better_later, sizes, "chaudhry") == pytest.approx(-0.2)
    assert metrics.forgetting(better_later, sizes, "max_including_last") == 0.0
    assert metrics.backward_transfer(better_later, sizes) == pytest.approx(0.2)


def test_a_joint_run_has_one_row_over_all_tasks():
    assert metrics.final_accuracy([[8, 6, 4]], [10, 10, 10]) == pytest.approx(0.6)
    assert metrics.forgetting([[8, 6, 4]], [10, 10, 10]) is None


@pytest.mark.parametrize(
    ("correct", "sizes", "message"),
    [
        ([[80, 86, 75], [70, 75], [60]], SIZES, "is it transposed"),
        ([[80, 0], [86, 70]], [100, 100, 100], "is it transposed"),
        ([[80, 0, 0], [86, 70, 0], [75, 75, 60]], SIZES, "is it transposed"),
        ([], [], "empty"),
        ([[101]], [100], "101 right answers out of 100"),
        ([[-1]], [100], "-1 right answers"),
        ([[1]], [0], "at least one test image"),
        ([[1], [1, 1]], [5], "2 tasks evaluated but 1 test sizes"),
    ],
)
def test_matrices_that_cannot_be_right_are_refused(correct, sizes, message):
    with pytest.raises(ValueError, match=message):
        metrics.final_accuracy(correct, sizes)
    with pytest.raises(ValueError, match=message):
        metrics.forgetting(correct, sizes)


def test_inputs_are_never_modified():
    correct, sizes = copy.deepcopy(EXAMPLE), list(SIZES)
    for measure in (
        metrics.final_accuracy,
        metrics.average_incremental_accuracy,
        metrics.forgetting,
        metrics.backward_transfer,
    ):
        measure(correct, sizes)
    assert correct == EXAMPLE and sizes == SIZES


def test_an_unknown_convention_is_refused():
    with pytest.raises(ValueError, match="unknown convention 'mean'"):
        metrics.final_accuracy(EXAMPLE, SIZES, "mean")
    with pytest.raises(ValueError, match="unknown convention 'max'"):
        metrics.forgetting(EXAMPLE, SIZES, "max")


def test_the_spread_is_the_sample_standard_deviation():
    assert metrics.mean_and_spread([1.0, 2.0, 4.0]) == (pytest.approx(7 / 3), pytest.approx((7 / 3) ** 0.5))
    assert metrics.mean_and_spread([2.0]) == (2.0, None)


def test_a_percentage_on_a_tie_is_rounded_away_from_zero_whatever_its_last_bits():
    # 3607 of 4000 right answers are 90.175 %, which no float is; three runs' mean may be below or above it
    assert (
        metrics.percent(0.90175)
        == metrics.percent(0.90175 - 1e-16)
        == metrics.percent(0.90175 + 1e-16)
        == "90.18"
    )
    assert (
        metrics.percent(-0.90175) == "-90.18"
        and metrics.percent(0.0) == metrics.percent(-0.0) == "0.00"
        and metrics.percent(0.901749) == "90.17"
    )


def test_a_signed_percentage_is_rounded_in_the_same_way_and_never_minus_zero():
    assert metrics.signed_percent(1 / 800) == "+0.13" and metrics.signed_percent(-1 / 800) == "-0.13"
    assert {metrics.signed_percent(tiny) for tiny in (0.0, -0.0, 1 / 80000, -1 / 80000)} == {"+0.00"}
