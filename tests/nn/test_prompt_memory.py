"""A prompt memory is brought into the order of another by matching its units."""

import pytest
import torch

from cl_bench.nn.heads import transferred
from cl_bench.nn.prompt_memory import PromptMemory, stretched
from cl_bench.nn.transport import matching

L, LENGTH, D, HIDDEN = 2, 2, 6, 4


def memory(seed: int = 0) -> PromptMemory:
    return PromptMemory(L, LENGTH, D, HIDDEN, torch.Generator().manual_seed(seed))


def test_it_starts_as_torchs_own_linear_maps_do():
    V, U = (part.detach() for part in PromptMemory(3, 5, 100, 16, torch.Generator()).parameters())
    for part, bound in ((V, 0.1), (U, 0.25)):
        assert 0.98 * bound < part.abs().max() <= bound and abs(float(part.mean())) < 0.01


def test_prompts_are_two_linear_maps_of_the_query():
    own, q = memory(), torch.randn(3, D, generator=torch.Generator().manual_seed(1))
    h, prompts = own.units(q)
    edits = own.joined(prompts)
    for l in range(L):
        for b in range(3):
            units = (own.V[l] @ q[b]).clamp(min=0)
            assert torch.allclose(h[l, b], units, atol=1e-6)
            expected = (own.U[l] @ units).reshape(LENGTH, D)
            tokens = edits.tokens(l, torch.zeros(3, 5, D))
            assert torch.allclose(tokens[b, 1 : 1 + LENGTH], expected, atol=1e-6)


def test_a_memory_in_another_order_is_brought_back():
    own, other = memory(), memory()
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        other.V.copy_(own.V[:, order])
        other.U.copy_(own.U[:, :, order])
    reference = [part.detach() for part in own.parameters()]
    for l in range(L):
        for (found, T), part in zip(other.aligned(l, reference), reference, strict=True):
            assert torch.allclose(found, part[l].double(), atol=1e-5)
            assert torch.allclose(T.sum(0), torch.ones(len(T), dtype=T.dtype), atol=1e-5)
            assert ((T - T.round()).abs() < 1e-5).all()


def test_units_of_one_direction_share_the_mass_of_another():
    """The second unit of the reference takes what the first one, which is nearer, cannot hold."""
    units, reference = torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    T = matching(units, units, reference)
    assert torch.allclose(T, torch.tensor([[1.0, 0.5], [0.0, 0.5]]), atol=1e-6)


@pytest.mark.parametrize(
    ("values", "expected"), [([2.0, 4.0, 3.0], [0.0, 1.0, 0.5]), ([7.0, 7.0], [0.0, 0.0])]
)
def test_values_are_stretched_between_their_least_and_their_largest(values, expected):
    assert stretched(torch.tensor(values)).tolist() == expected


def test_a_new_row_is_that_of_the_class_whose_mean_it_shares_group_by_group():
    rows, means = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]]), torch.tensor([[1.0, 0, 0, 1], [0, 1, 1, 0]])
    new = torch.tensor([[2.0, 0, 2, 0]])  # as the first class in the first group, the second in the second
    found = transferred(rows, torch.cat([means, new]), width=2, temperature=0.01)
    assert torch.allclose(found, torch.tensor([[1.0, 2, 7, 8]]), atol=1e-5)
    alone = transferred(rows[:1], torch.cat([means[:1], new]), width=2, temperature=0.05)
    assert torch.allclose(alone, rows[:1])
    even = transferred(rows, torch.cat([means, torch.ones(1, 4)]), width=2, temperature=1.0)
    assert torch.allclose(even, rows.mean(0)[None])
