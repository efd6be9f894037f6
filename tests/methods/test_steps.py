"""The controls of projected updates: what is kept of a step, the opposite subspace, and later rates."""

import pytest
import torch
import toys

from cl_bench.errors import InputError
from cl_bench.nn.projection import fused_projection, stepping
from cl_bench.nn.subspaces import Subspaces
from cl_bench.plugins import registry

TASKS = [[2, 0], [1, 3, 4]]
ONE_STEP = {"passes": 1, "batch": 1000, "weight_decay": 0.0, "ln": False}
UPDATES = {"vpt-nsp2": {}, "vpt-pgp": {"pgp_stage": "update", "energy": 0.9}}  # of finished steps


def moved(name, **options) -> torch.Tensor:
    """By how much the only step of the second task moves the prompts, (L, M, D)."""
    method, stream = toys.method(name, 3, **{**ONE_STEP, **options}), toys.stream(TASKS)
    toys.learn(method, stream, upto=1)
    before = method.P.detach().clone()
    toys.learn(method, stream, upto=2, start=1)
    return (method.P.detach() - before).double()


def test_length_and_direction_by_hand_each_block_for_itself():
    U = torch.tensor([[[3.0, 0], [0, 4]], [[1, 0], [0, 0]], [[0, 2], [0, 0]], [[0, 0], [0, 0]]])
    left = torch.tensor([1.0, 0])  # the projection drops the second of two columns
    direction, size = (stepping(lambda V: V * left, step)(U) for step in ("direction", "size"))
    assert torch.equal(direction[0], torch.tensor([[5.0, 0], [0, 0]]))  # of 3, as long as 5
    assert torch.allclose(size[0], torch.tensor([[1.8, 0], [0, 2.4]]))  # of 5, as long as 3
    for kept in (direction, size):
        assert torch.equal(kept[1], U[1])  # nothing is dropped
        assert torch.equal(kept[2:], torch.zeros(2, 2, 2))  # all is dropped, or nothing moves
    assert torch.equal(stepping(lambda V: V * left, "projected")(U), U * left)


@pytest.mark.parametrize("name", UPDATES)
def test_a_methods_step_has_the_direction_or_the_size_of_the_projected_one_and_the_rest_of_the_free_one(name):
    free, projected = moved("vpt-seq"), moved(name, **UPDATES[name])
    direction, size = (moved(name, step=step, **UPDATES[name]) for step in ("direction", "size"))
    for l in range(2):
        long, short = free[l].norm(), projected[l].norm()
        assert short < 0.995 * long
        assert torch.allclose(direction[l], projected[l] * (long / short), atol=1e-5 * long.item())
        assert torch.allclose(size[l], free[l] * (short / long), atol=1e-5 * long.item())


def test_a_pools_keys_are_stepped_as_its_prompts():
    def moved_keys(name, **options):
        method, stream = toys.method(name, 3, **{**ONE_STEP, **options}), toys.stream(TASKS)
        toys.learn(method, stream, upto=1)
        before = method.K.detach().clone()
        toys.learn(method, stream, upto=2, start=1)
        return (method.K.detach() - before).double()

    free, projected, size = moved_keys("l2p"), moved_keys("l2p-nsp2"), moved_keys("l2p-nsp2", step="size")
    ratio = projected.norm() / free.norm()
    assert ratio < 0.95 and torch.allclose(size, free * ratio, atol=1e-5 * free.norm().item())


def test_in_the_range_null_and_protected_directions_change_places():
    basis = torch.linalg.qr(torch.randn(20, 20, dtype=torch.float64))[0]
    C = basis @ torch.diag(torch.exp(-torch.arange(20.0) / 3).double()) @ basis.T
    nsp, iso, range_ = (
        fused_projection(C, 0.9, "official", "fro", each)[0] for each in ("nsp", "iso", "range")
    )
    assert torch.allclose(nsp + range_, iso + 0.1 * torch.eye(20).double())
    whole = [fused_projection(C, 1.0, "official", "none", each)[0] for each in ("nsp", "range")]
    assert torch.allclose(sum(whole), torch.eye(20).double())
    assert torch.allclose(whole[0] @ whole[1], torch.zeros(20, 20).double(), atol=1e-12)


def test_updates_in_the_range_stay_inside_the_protected_space():
    true = {"eta": 1.0, "nsp_norm": "none", "b2": False, "ln": False}
    for options, inside in (({}, 0.0), ({"subspace": "range"}, 1.0)):
        method, stream = toys.method("vpt-nsp2", 3, **true, **options), toys.stream(TASKS)
        toys.learn(method, stream)
        assert method.diagnostics()["update_inside_protected"] == pytest.approx([inside] * 2, abs=1e-4)


def test_pgps_opposite_moves_inside_its_subspace_alone():
    method, stream = toys.method("vpt-pgp", 3, pgp_space="range", **UPDATES["vpt-pgp"]), toys.stream(TASKS)
    toys.learn(method, stream)
    assert method.diagnostics()["update_inside_protected"] == pytest.approx(1, abs=1e-4)
    space, apart = (Subspaces((1, 5, 5), torch.device("cpu"), opposite=which) for which in (False, True))
    X = torch.randn(1, 3, 5)
    for each in (space, apart):
        each.grow(
            torch.diag(torch.tensor([3.0, 2, 1, 0, 0], dtype=torch.float64))[None], 0.8, "sigma2", "geq", True
        )
        each.refresh()
    assert torch.allclose(space.outside(X)[..., :2], torch.zeros(1, 3, 2), atol=1e-6)
    assert torch.allclose(apart.outside(X)[..., 2:], torch.zeros(1, 3, 3), atol=1e-6)
    assert torch.allclose(space.outside(X) + apart.outside(X), X, atol=1e-6)


@pytest.mark.parametrize("name", ["vpt-nsp2", "vpt-pgp"])
def test_a_later_rate_scales_the_steps_of_projected_methods_too(name):
    usual, slow = moved(name), moved(name, later_lr=0.25)
    far = usual.abs() > 0.5 * usual.abs().max()
    assert far.any() and ((slow - 0.25 * usual)[far].abs() < 1e-3 * usual.abs().max()).all()


@pytest.mark.parametrize("name", ["vpt-seq", "vpt-nsp2", "vpt-pgp", "l2p-nsp2", "clip-nsp2"])
def test_runs_without_the_controls_are_described_as_before_they_came(name):
    kind = registry.method_class(name).Config
    added = {"step", "later_lr", "later_lr_of"} | ({"pgp_space"} if name == "vpt-pgp" else set())
    assert added & kind.model_fields.keys() and not added & kind().recorded().keys()
    assert kind.model_validate(kind().recorded()) == kind()


REFUSED = {
    "nothing projected": (
        "vpt-nsp2",
        {"step": "size", "b1": False, "b2": False},
        "there are none; give b1=on",
    ),
    "no direction": ("vpt-nsp2", {"step": "direction", "subspace": "iso"}, "not subspace=iso"),
    "gradients": ("vpt-pgp", {"step": "size"}, "give pgp_stage=update"),
    "lengths of keys": ("l2p-nsp2", {"step": "size", "key_exact": True}, "undo key_exact=on"),
    "keys inside": (
        "l2p-pgp",
        {"pgp_space": "range", "key_exact": True, "pgp_stage": "update"},
        "give key_exact=off",
    ),
}


@pytest.mark.parametrize(("name", "options", "words"), REFUSED.values(), ids=REFUSED)
def test_controls_that_mean_nothing_are_refused(name, options, words):
    with pytest.raises(InputError, match=words):
        toys.method(name, 2, **options)
