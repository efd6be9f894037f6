"""A budget for what methods keep: named methods that exceed it are refused, those of groups left out."""

import pytest
from runs import plan

from cl_bench.errors import InputError
from cl_bench.plan import budget


@pytest.fixture
def plain(toy_request):
    return {**toy_request, "set": {}}


@pytest.mark.parametrize(
    ("text", "bytes_"), [("20MB", 20_000_000), ("1.5 GB", 1_500_000_000), ("2KiB", 2048), ("300", 300)]
)
def test_sizes_are_read_as_people_write_them(text, bytes_):
    assert budget.read(text) == bytes_


@pytest.mark.parametrize("text", ["", "much", "-5MB", "0", "20 apples"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InputError, match="expected a size in bytes, such as 20MB or 1.5GB"):
        budget.read(text)


def test_everything_kept_counts_to_the_byte(plain):
    """Sums of 64 values and a count for each of eight classes, of eight bytes each."""
    kept = 8 * (64 + 1) * 8
    assert plan(plain, methods="simplecil", memory_budget=str(kept)).specs
    with pytest.raises(InputError, match=r"simplecil on folder.*/4 keeps .*, and --memory-budget allows"):
        plan(plain, methods="simplecil", memory_budget=str(kept - 1))


def test_methods_of_a_group_that_keep_more_are_left_out_with_a_reason(plain):
    made = plan(plain, methods="paper", memory_budget="30kB")
    assert made.specs and len(made.specs) < len(plan(plain, methods="paper").specs)
    assert any("keeps" in line and "--memory-budget allows 30.00 kB" in line for line in made.left_out)
