"""Spaces of old tasks' inputs: what is kept of them, against singular values of the inputs themselves."""

import copy

import numpy as np
import oracle
import pytest
import torch
from torch import Tensor

from cl_bench.nn.dual_gpm import DualGPM

CPU = torch.device("cpu")
ENERGIES = (0.5, 0.8, 0.9, 0.97)  # of four tasks


def inputs(seed: int, width: int = 12, rows: int = 60, decay: float = 4.0) -> Tensor:
    """Rows (n, D) whose directions have ever less energy."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(rows, width, dtype=torch.float64, generator=generator)
    turned = torch.linalg.qr(torch.randn(width, width, dtype=torch.float64, generator=generator))[0]
    return drawn * torch.exp(-torch.arange(width) / decay) @ turned


def grown(layers: list[list[Tensor]], energies=ENERGIES) -> list[DualGPM]:
    """The memory after each task; `layers` holds the inputs of every task for each layer."""
    memory, states = DualGPM(len(layers), layers[0][0].shape[1], CPU), []
    for index, energy in enumerate(energies):
        memory.grow(torch.stack([tasks[index].T @ tasks[index] for tasks in layers]), energy)
        states.append(copy.deepcopy(memory))
    return states


def spans(tasks: list[Tensor], energies=ENERGIES) -> list[np.ndarray]:
    """GPM's rule on the inputs themselves: after each task an orthonormal basis (D, k) of the old space."""
    M, found = np.zeros((tasks[0].shape[1], 0)), []
    for X, energy in zip(tasks, energies, strict=True):
        X = X.numpy()
        _, lengths, directions = np.linalg.svd(X - X @ M @ M.T)
        total = (X**2).sum()
        inside = ((X @ M) ** 2).sum()
        while inside < energy * total:
            inside += lengths[0] ** 2
            M, lengths, directions = np.c_[M, directions[0]], lengths[1:], directions[1:]
        found.append(M)
    return found


def projector(basis: Tensor) -> Tensor:
    return basis @ basis.T


@pytest.mark.parametrize("width", [12, 13])
def test_the_space_is_that_of_singular_vectors_whichever_basis_is_kept(width):
    tasks = [[inputs(10 * layer + index, width) for index in range(4)] for layer in range(3)]
    states = grown(tasks)
    for layer, own in enumerate(tasks):
        for memory, M in zip(states, spans(own), strict=True):
            inside, outside = memory.bases(layer)
            assert memory.ranks()[layer] == inside.shape[1] == M.shape[1]
            assert torch.allclose(projector(inside), torch.tensor(M @ M.T), atol=1e-9)
            assert torch.allclose(
                projector(inside) + projector(outside), torch.eye(width).double(), atol=1e-9
            )
    assert {bool(kept) for memory in states for kept in memory.complement} == {True, False}


def test_at_most_half_of_all_directions_are_kept_and_they_are_orthonormal():
    for memory in grown([[inputs(index) for index in range(4)]]):
        count = int(memory.rank)
        kept = memory.basis[0, :, :count]
        assert memory.basis.shape == (1, 12, 6) and count <= 6
        assert torch.allclose(kept.T @ kept, torch.eye(count).double(), atol=1e-12)
        assert not memory.basis[0, :, count:].any()
        assert bool(memory.complement) == (memory.ranks()[0] > 6)


def test_every_task_reaches_its_energy_with_no_direction_too_many_and_gives_up_none():
    tasks = [inputs(index) for index in range(4)]
    before = torch.zeros(12, 0).double()
    for memory, X, energy in zip(grown([tasks]), tasks, ENERGIES, strict=True):
        inside = memory.bases(0)[0]
        share = (X @ inside).square().sum() / X.square().sum()
        assert share >= energy - 1e-12
        assert torch.allclose(projector(inside) @ before, before, atol=1e-9)
        added = projector(inside) - projector(before)
        least = torch.linalg.eigvalsh(added @ (X.T @ X) @ added)
        gained = least[least > 1e-9]
        if len(gained):
            assert share - gained[0] / X.square().sum() < energy
        before = inside


def test_a_task_whose_energy_is_inside_changes_nothing():
    first, *_ = grown([[inputs(0)]], (0.9,))
    again = copy.deepcopy(first)
    again.grow((inputs(0).T @ inputs(0))[None], 0.9)
    assert torch.equal(again.basis, first.basis) and again.ranks() == first.ranks()


def test_the_first_directions_by_hand():
    H = torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=torch.float64))[None]
    for energy, below, count in (
        (0.7, False, 2),
        (0.71, False, 3),
        (0.71, True, 2),
        (0.3, True, 1),
        (0, False, 0),
    ):
        memory = DualGPM(1, 4, CPU)
        memory.grow(H, energy, below)
        assert memory.ranks() == [count], (energy, below)
        expected = torch.diag((torch.arange(4) < count).double())
        assert torch.allclose(projector(memory.bases(0)[0]), expected)


def test_all_energy_is_as_many_directions_as_the_inputs_have():
    X = inputs(1, rows=5)
    memory = DualGPM(1, 12, CPU)
    memory.grow((X.T @ X)[None], 1.0)
    assert memory.ranks() == [5]
    memory.grow(torch.eye(12).double()[None], 1.0)
    memory.grow(torch.eye(12).double()[None], 1.0)
    assert memory.ranks() == [12] and memory.bases(0)[1].shape == (12, 0)
    assert torch.equal(memory.leading(torch.eye(12)[None], 2), torch.zeros(1, 2, 12))
    assert torch.allclose(memory.outside(torch.ones(1, 2, 12)), torch.zeros(1, 2, 12), atol=1e-6)


def test_rows_lose_their_part_inside():
    memory = grown(
        [[inputs(index) for index in range(4)], [inputs(9 + index, decay=1.0) for index in range(4)]]
    )[-1]
    X = torch.randn(2, 3, 12, generator=torch.Generator().manual_seed(3))
    found = memory.outside(X)
    for layer in range(2):
        inside = memory.bases(layer)[0]
        assert torch.allclose(
            found[layer].double(), X[layer].double() @ (torch.eye(12) - projector(inside)), atol=1e-5
        )
    assert memory.complement.tolist() == [True, False]
    assert torch.equal(DualGPM(2, 12, CPU).outside(X), X)


@pytest.mark.parametrize("done", [0, 1, 3])
def test_leading_directions_are_singular_vectors_of_inputs_without_their_part_inside(done):
    memory = grown([[inputs(index) for index in range(4)]])[done - 1] if done else DualGPM(1, 12, CPU)
    X, inside = inputs(20), memory.bases(0)[0]
    expected = torch.linalg.svd(X - X @ projector(inside))[2][:2]
    [found] = memory.leading((X.T @ X)[None], 2)
    assert torch.allclose((found @ expected.T).abs(), torch.eye(2).double(), atol=1e-9)
    assert torch.allclose(found @ inside, torch.zeros(1).double(), atol=1e-9)


def test_where_fewer_directions_are_left_rows_are_zero_or_of_the_space_itself():
    memory = grown([[inputs(index) for index in range(4)]])[-1]
    H, left = torch.eye(12).double()[None], 12 - memory.ranks()[0]
    [found], [filled] = memory.leading(H, left + 2), memory.leading(H, left + 2, inside=True)
    assert not found[left:].any() and torch.equal(found[:left], filled[:left])
    assert torch.allclose(filled @ filled.T, torch.eye(left + 2).double(), atol=1e-9)
    inside = memory.bases(0)[0]
    assert torch.allclose(filled[left:] @ projector(inside), filled[left:], atol=1e-9)


def test_a_memory_goes_on_from_its_state_as_if_never_stored():
    tasks = [inputs(index) for index in range(4)]
    whole, half = grown([tasks])[-1], grown([tasks[:2]], ENERGIES[:2])[-1]
    restored = DualGPM(1, 12, CPU)
    restored.load_state_dict(half.state_dict())
    for X, energy in zip(tasks[2:], ENERGIES[2:], strict=True):
        restored.grow((X.T @ X)[None], energy)
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in restored.state_dict().items())


@oracle.HERE
@pytest.mark.parametrize("case", range(3))
def test_the_memory_grows_as_the_public_codes_on_given_moments(case):
    expected, memory = oracle.numbers("methods/inflora.npz"), DualGPM(1, 24, CPU)
    first, last, tasks = expected[f"gpm{case}_cfg"]
    for index in range(5):
        H = torch.tensor(expected[f"gpm{case}_t{index}_H"]).double()[None]
        memory.grow(H @ H, first + (last - first) * index / tasks, below=index == 0)
        complement = bool(memory.complement)
        assert ("retain" if complement else "remove") == str(expected[f"gpm{case}_t{index}_type"])
        assert int(memory.rank) == int(expected[f"gpm{case}_t{index}_rank"])
        F = memory.bases(0)[complement]
        assert oracle.close(F @ F.T, expected[f"gpm{case}_t{index}_FFt"], 1e-6)


@oracle.HERE
def test_the_first_task_that_stops_the_public_code_needs_more_than_half_of_all_directions():
    expected, memory = oracle.numbers("methods/inflora.npz"), DualGPM(1, 24, CPU)
    assert expected["gpm3_t0_crash"] == 1
    H = torch.tensor(expected["gpm3_t0_H"]).double()[None]
    memory.grow(H @ H, expected["gpm3_cfg"][0], below=True)
    assert memory.ranks()[0] > 12 and bool(memory.complement)
