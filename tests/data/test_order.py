"""Class orders and their cut into tasks."""

import unicodedata

import pytest

from cl_bench.data.order import class_order, cut, resolve
from cl_bench.errors import InputError

NAMES = ["ant", "bee", "cat", "dog"]


def test_the_class_order_is_the_published_codes():
    assert class_order(100, 2024)[:10] == [55, 17, 75, 11, 2, 29, 49, 48, 41, 45]
    assert class_order(200, 2024)[:5] == [192, 54, 163, 105, 170]
    assert sorted(class_order(100, 2025)) == list(range(100))


def test_splits_that_do_not_divide_the_classes_are_refused_with_those_that_do():
    assert cut([3, 1, 2, 0], "2") == ((3, 1), (2, 0))
    with pytest.raises(InputError, match="--splits 3 does not divide the 4 classes; choose one of 1, 2, 4"):
        cut([3, 1, 2, 0], "3")
    with pytest.raises(InputError, match="--splits 0"):
        cut([3, 1, 2, 0], "0")


def test_without_an_order_the_runs_seed_shuffles_as_the_published_code():
    assert resolve(None, 2024, NAMES) == ("nsp2", 2024, class_order(4, 2024))
    assert (
        resolve("2025", 2024, NAMES)
        == resolve("nsp2:2025", 2024, NAMES)
        == ("nsp2", 2025, class_order(4, 2025))
    )
    assert resolve("natural", 2024, NAMES) == ("natural", None, [0, 1, 2, 3])


def test_a_file_names_or_numbers_every_class_once(tmp_path):
    file = tmp_path / "order.txt"
    file.write_text("dog\n0\n\nbee\n2\n", encoding="utf-8")
    kind, seed, order = resolve(str(file), 2024, NAMES)
    assert kind.startswith("file:") and seed is None and order == [3, 0, 1, 2]
    assert resolve(str(file), 1, NAMES) == (kind, seed, order)
    file.write_text(unicodedata.normalize("NFD", "ant\ncafé\n"), encoding="utf-8")
    assert resolve(str(file), 1, [unicodedata.normalize("NFC", "café"), "ant"])[2] == [1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ant\nfox\n", "line 2: 'fox' is not a class; expected each of the 4 classes once"),
        ("ant\n7\n", "line 2: '7' is not a class"),
        ("ant\nbee\n0\n", "line 3: '0' stands twice"),
        ("ant\nbee\n", "names 2 of 4 classes; 'cat' is missing"),
    ],
)
def test_files_that_are_no_order_are_refused(tmp_path, text, message):
    file = tmp_path / "order.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        resolve(str(file), 2024, NAMES)


def test_words_that_are_no_order_are_refused():
    with pytest.raises(InputError, match="expected a seed, nsp2:SEED, pilot:SEED, natural, or a file"):
        resolve("natual", 2024, NAMES)
    with pytest.raises(InputError, match="expected a seed"):
        resolve("nsp2:x", 2024, NAMES)


def test_the_order_of_pilot_is_numpys_older_generators():
    """The first classes that PyCIL's and PILOT's logs of CIFAR-100 with seed 1993 begin with."""
    kind, seed, order = resolve("pilot:1993", 2024, [f"class {c}" for c in range(100)])
    assert (kind, seed) == ("pilot", 1993) and order[:10] == [68, 56, 78, 8, 23, 84, 90, 65, 74, 76]
    assert sorted(order) == list(range(100))


def test_a_file_of_positions_is_the_inverse_of_one_of_classes(tmp_path):
    classes, places = tmp_path / "classes.txt", tmp_path / "places.txt"
    classes.write_text("3\n0\n1\n2\n", encoding="utf-8")
    places.write_text("1\n2\n3\n0\n", encoding="utf-8")  # class 0 comes second, class 3 first
    assert resolve(f"positions:{places}", 2024, NAMES) == resolve(str(classes), 2024, NAMES)
    assert resolve(str(places), 2024, NAMES)[2] == [1, 2, 3, 0]
    places.write_text("1\nbee\n3\n0\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2: 'bee' is not a class"):
        resolve(f"positions:{places}", 2024, NAMES)


@pytest.mark.parametrize("text", ["pilot", "pilot:", "pilot:x", "pilot:4294967296"])
def test_an_order_of_pilot_needs_its_seed(text):
    with pytest.raises(InputError, match="pilot:SEED"):
        resolve(text, 2024, NAMES)
