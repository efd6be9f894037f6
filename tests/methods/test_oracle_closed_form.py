"""SimpleCIL and RanPAC have the public code's numbers in three tasks (folder `shared/oracle`)."""

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.ranpac import RanPAC
from cl_bench.methods.simplecil import SimpleCIL
from oracle_adapters import OPTIONS, TASKS, batch_of, fill, learn, place

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo
from cl_bench.nn.ridge import STRENGTHS, choose_strength

pytestmark = oracle.HERE


def test_class_means_and_their_cosines_are_the_public_codes():
    numbers = oracle.numbers("methods/simplecil_aper.npz")
    method, test = (
        SimpleCIL(SimpleCIL.Config(), oracle.backbone(), StreamInfo(0, TASKS)),
        Batch(oracle.images(9)),
    )
    for index in range(TASKS):
        method.grow(place(index))
        method.end_task(place(index), oracle.Plain(batch_of))
        assert oracle.close(method.prototypes.means, numbers[f"s_t{index}_proto"], 2e-5)
        assert oracle.close(method.predict(test), numbers[f"s_t{index}_scores"], 2e-5)


def built(projection: int) -> RanPAC:
    config = RanPAC.Config(projection=projection, **OPTIONS)
    method = RanPAC(config, oracle.backbone(), StreamInfo(0, TASKS))
    fill(method.edits, 0)
    if projection:
        method.W_r.copy_(oracle.drawn("W_rand", (48, projection)))
    return method


@pytest.mark.parametrize(("prefix", "projection"), [("", 64), ("m0_", 0)])
def test_ranpac_adapts_regresses_and_predicts_as_the_authors_code(prefix, projection):
    numbers, method = oracle.numbers("methods/ranpac.npz"), built(projection)
    test = Batch(oracle.images(9))
    for index in range(TASKS):
        task = place(index)
        method.grow(task)
        if index == 0:
            [phase] = method.phases(task)
            learn(method.edits, method.head, phase, task, numbers)
        method.end_task(task, oracle.Plain(batch_of))
        t = f"{prefix}t{index}"
        assert oracle.close(
            method.backbone.features(test.images, method.edits), numbers[f"{t}_features"], 2e-5
        )
        assert oracle.close(
            method.ridge.G.double() @ oracle.probe(1, len(method.ridge.G)), numbers[f"{t}_G_probe"], 2e-5
        )
        seen = method.ridge.Q.shape[1]
        assert oracle.close(method.ridge.Q, numbers[f"{t}_Q"][:, :seen], 2e-5)
        assert method.strength == pytest.approx(float(numbers[f"{t}_lambda"]))
        errors, expected = (
            np.array(method.errors) * seen / 12,
            numbers[f"{t}_val_mse"],
        )  # theirs are over all twelve columns
        sure = np.array(STRENGTHS) >= 1
        assert np.allclose(errors[sure], expected[sure], rtol=1e-4)
        assert oracle.close(method.ridge.W.T, numbers[f"{t}_W"], 1e-4)
        assert oracle.close(method.predict(test) * numbers[f"{t}_sigma"].item(), numbers[f"{t}_scores"], 1e-4)
        if prefix:
            assert (
                index or numbers["m0_t0_sigma"].item() != 1
            )  # the authors leave the head's scale before the first task's scores


@pytest.mark.parametrize("case", [0, 1, 2])
def test_the_ridge_is_chosen_as_by_the_authors_code_with_fewer_and_with_more_images_than_features(case):
    numbers = oracle.numbers("methods/ranpac.npz")
    phi, labels = torch.tensor(numbers[f"syn{case}_Phi"]), torch.tensor(numbers[f"syn{case}_y"]).long()
    strength, errors = choose_strength(phi, labels, int(labels.max()) + 1, int(0.8 * len(phi)))
    assert strength == pytest.approx(float(numbers[f"syn{case}_lambda"]))
    ratio = np.array(errors) / numbers[f"syn{case}_val"]
    assert np.allclose(ratio, ratio[-1], rtol=1e-5)
