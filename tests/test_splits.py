"""How classes are cut into tasks: what is written, what it means, and what it is called."""

import pytest

from cl_bench import splits
from cl_bench.errors import InputError


@pytest.mark.parametrize(
    ("split", "classes", "sizes", "name"),
    [
        ("10", 200, [20] * 10, "10"),
        ("1", 7, [7], "1"),
        ("B50-Inc10", 100, [50, 10, 10, 10, 10, 10], "B50-Inc10"),
        ("b50-inc25", 100, [50, 25, 25], "B50-Inc25"),
        ("B0-Inc10", 100, [10] * 10, "10"),
        ("B10-Inc10", 100, [10] * 10, "10"),
        ("B100-Inc10", 100, [100], "1"),
        ("50-10-40", 100, [50, 10, 40], "50-10-40"),
        ("50-25-25", 100, [50, 25, 25], "B50-Inc25"),
        ("25-25-25-25", 100, [25] * 4, "4"),
        ("60-40", 100, [60, 40], "B60-Inc40"),
    ],
)
def test_a_split_has_sizes_and_one_name(split, classes, sizes, name):
    assert splits.is_split(split) and splits.sizes(split, classes) == sizes
    assert splits.name(sizes) == name and splits.sizes(name, classes) == sizes


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (
            "B50-Inc30",
            "B50-Inc30 does not fit 100 classes: 50 behind the first task are no multiple of 30",
        ),
        ("B120-Inc10", "does not fit 100 classes"),
        ("B50-Inc0", "does not fit 100 classes"),
        ("50-40", "--splits 50-40 has 90 classes, or a task without any; expected sizes whose sum is 100"),
        ("50-0-50", "or a task without any"),
        ("3", "--splits 3 does not divide the 100 classes; choose one of 1, 2, 4, 5"),
        ("0", "--splits 0 does not divide"),
    ],
)
def test_sizes_that_are_not_those_of_the_classes_are_refused(split, message):
    with pytest.raises(InputError, match=message):
        splits.sizes(split, 100)


def test_a_list_is_read_without_repeating():
    assert splits.listed("10, B50-Inc10,10,50-50") == ["10", "B50-Inc10", "50-50"]
    for wrong in ("ten", "10,", "B50", "50-", "B-Inc10", "-5", "1.5"):
        with pytest.raises(InputError, match="expected numbers of tasks"):
            splits.listed(wrong)


@pytest.mark.parametrize(
    ("given", "split"),
    [
        ((None, None, None), None),
        ((50, 10, None), "B50-Inc10"),
        ((None, 10, None), "B0-Inc10"),
        ((None, None, "50, 10,40"), "50-10-40"),
    ],
)
def test_options_for_a_first_task_and_for_sizes_are_splits(given, split):
    assert splits.of_options(*given) == split


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((50, None, None), "--base needs --increment"),
        ((50, 10, "50,50"), "not both"),
        ((None, None, "50,x"), "expected the classes of each task"),
        ((None, None, "50,0"), "expected the classes of each task"),
        ((None, None, "100"), "is one task; give --splits 1"),
    ],
)
def test_options_that_say_no_or_two_things_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        splits.of_options(*given)
