"""SimpleCIL and RanPAC have the public code's numbers in three tasks (folder `shared/oracle`)."""

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.ranpac import RanPAC
from cl_bench.methods.simplecil import SimpleCIL

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.ridge import STRENGTHS, choose_strength
from cl_bench.training.trainer import Trainer

pytestmark = oracle.HERE
IMAGES, CLASSES, TASKS = 24, 4, 3


class Place(TaskInfo):
    def __len__(self) -> int:
        return IMAGES


class Plain(Trainer):
    """A trainer whose images for statistics are the task's in order."""

    def plain(self, task, batch, chosen=None):
        with torch.no_grad():
            yield from batch_of(task).split(batch)


def place(index: int) -> Place:
    return Place(index, tuple(range(CLASSES * index, CLASSES * (index + 1))), CLASSES * index)


def batch_of(task: TaskInfo) -> Batch:
    return Batch(oracle.images(task.index, IMAGES), torch.arange(IMAGES) % CLASSES + task.first_label)


def test_class_means_and_their_cosines_are_the_public_codes():
    numbers = oracle.numbers("methods/simplecil_aper.npz")
    method, test = (
        SimpleCIL(SimpleCIL.Config(), oracle.backbone(), StreamInfo(0, TASKS)),
        Batch(oracle.images(9)),
    )
    for index in range(TASKS):
        method.grow(place(index))
        method.end_task(place(index), Plain(data_seed=0))
        assert oracle.close(method.prototypes.means, numbers[f"s_t{index}_proto"], 2e-5)
        assert oracle.close(method.predict(test), numbers[f"s_t{index}_scores"], 2e-5)


def adapters_of(method: RanPAC) -> dict:
    """The oracle's name of every adapter tensor."""
    edits = method.edits
    parts = {
        "down_weight": edits.down,
        "down_bias": edits.down_bias,
        "up_weight": edits.up,
        "up_bias": edits.up_bias,
    }
    return {f"l{l}_{name}": (part, l) for l in range(4) for name, part in parts.items()}


def built(projection: int) -> RanPAC:
    config = RanPAC.Config(
        projection=projection, bottleneck=8, dropout=0.0, learning_rate=0.2, batch=10, passes=3
    )
    method = RanPAC(config, oracle.backbone(), StreamInfo(0, TASKS))
    with torch.no_grad():
        for key, (part, l) in adapters_of(method).items():
            name = f"adapter.0.blocks.{l}.{key.partition('_')[2].replace('_', '.')}"
            part[l] = oracle.filled(name, tuple(part[l].shape))
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
            with torch.no_grad():
                method.head.weight.copy_(oracle.filled("head.0.weight", (4, 48)))
            learn_first_task(method, task, numbers)
        method.end_task(task, Plain(data_seed=0))
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


def learn_first_task(method: RanPAC, task: TaskInfo, numbers: dict) -> None:
    [phase] = method.phases(task)
    optimizer, losses, batches = phase.optimizer(), [], batch_of(task).split(10)
    for step in range(9):
        optimizer.param_groups[0]["lr"] = 0.2 * phase.rate(step // 3, {})
        assert phase.rate(step // 3, {}) == pytest.approx(float(numbers["t0_lr_factor"][step // 3]))
        optimizer.zero_grad()
        loss = phase.loss(batches[step % 3])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            for key, (part, l) in adapters_of(method).items():
                assert oracle.close(part.grad[l], numbers[f"t0_{key}_grad"], 2e-5), key
            assert oracle.close(method.head.weight.grad, numbers["t0_head_weight_grad"], 2e-5)
            assert method.head.sigma.grad.item() == pytest.approx(
                float(numbers["t0_head_sigma_grad"][0]), rel=2e-4
            )
        optimizer.step()
        if step == 1:
            for key, (part, l) in adapters_of(method).items():
                assert oracle.close(part[l], numbers[f"t0_{key}_step2"], 2e-5), key
    for key, (part, l) in adapters_of(method).items():
        assert oracle.close(part[l], numbers[f"t0_{key}_end"], 2e-5), key
    assert losses == pytest.approx(numbers["t0_losses"].tolist(), rel=2e-5)


@pytest.mark.parametrize("case", [0, 1, 2])
def test_the_ridge_is_chosen_as_by_the_authors_code_with_fewer_and_with_more_images_than_features(case):
    numbers = oracle.numbers("methods/ranpac.npz")
    phi, labels = torch.tensor(numbers[f"syn{case}_Phi"]), torch.tensor(numbers[f"syn{case}_y"]).long()
    strength, errors = choose_strength(phi, labels, int(labels.max()) + 1, int(0.8 * len(phi)))
    assert strength == pytest.approx(float(numbers[f"syn{case}_lambda"]))
    ratio = np.array(errors) / numbers[f"syn{case}_val"]
    assert np.allclose(ratio, ratio[-1], rtol=1e-5)
