"""Courses of the learning rate, pass by pass."""

import math

import pytest

from cl_bench.training.phase import coda_cosine, half_cosine


def test_half_a_cosine_falls_from_one_through_a_half_to_zero():
    assert [half_cosine(done, 4) for done in range(5)] == pytest.approx(
        [1, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0]
    )


def test_the_cosine_of_coda_prompt_ends_at_a_sixtieth_and_as_published_one_pass_late():
    meant = [coda_cosine(done, 3, lagged=False) for done in range(3)]
    assert meant == pytest.approx([1, math.cos(math.radians(44.55)), math.cos(math.radians(89.1))])
    assert [coda_cosine(done, 3, lagged=True) for done in range(4)] == [1, *meant]
    assert coda_cosine(0, 1, lagged=True) == coda_cosine(0, 1, lagged=False) == 1
