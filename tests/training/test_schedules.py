"""Learning rates over the passes of a task, and passes that are shuffled together."""

import pytest
import toys
from pydantic import TypeAdapter, ValidationError

from cl_bench.training.schedules import Mixing, Schedule, factor, together


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("code", [1, 1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01]),
        ("paper", [1, 1, 1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01]),
        ("0.2-0.9", [1, 1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.01]),
        ("3-6", [1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01]),
        (0.5, [1] * 5 + [0.1] * 5),
        ("constant", [1] * 10),
    ],
)
def test_the_rate_falls_where_the_schedule_says(schedule, expected):
    schedule = TypeAdapter(Schedule).validate_python(schedule)
    assert [factor(schedule, done, 10) for done in range(10)] == pytest.approx(expected)


def test_cosine_goes_from_one_to_nearly_nothing():
    rates = [factor("cosine", done, 4) for done in range(4)]
    assert rates == pytest.approx([1, (1 + 2**-0.5) / 2, 0.5, (1 - 2**-0.5) / 2])


@pytest.mark.parametrize("bad", ["cosin", "0.7-0.4", "0.4-0.4", "0-0.5", "", "-1", "0.4,0.7"])
def test_what_is_no_schedule_is_refused(bad):
    with pytest.raises(ValidationError, match="expected code, paper, constant or cosine"):
        TypeAdapter(Schedule).validate_python(bad)


MIXED = {"plain": 1, "repeat2": 2, "repeat10": 10, "repeat7": 7}


@pytest.mark.parametrize("mixing", MIXED)
def test_any_number_of_passes_is_shuffled_together(mixing):
    assert together(TypeAdapter(Mixing).validate_python(mixing)) == MIXED[mixing]
    method = toys.method("vpt-seq", 2, passes=21, epoch_mode=mixing)
    task = toys.stream([[0, 1], [2, 3]]).task(0)
    method.grow(task)
    [phase] = method.phases(task)
    assert phase.repeats == MIXED[mixing]


@pytest.mark.parametrize("bad", ["repeat0", "repeat", "mixed", "repeat-3"])
def test_what_is_no_mixing_is_refused(bad):
    with pytest.raises(ValidationError, match="expected plain, or how many passes"):
        TypeAdapter(Mixing).validate_python(bad)
