"""EASE has the public code's numbers in three tasks (folder `shared/oracle`)."""

import oracle
import pytest
import torch
from cl_bench.methods.ease import Ease
from oracle_adapters import CLOSE, OPTIONS, TASKS, batch_of, fill, learn, place

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo

pytestmark = oracle.HERE
PUBLISHED = {key: value for key, value in Ease.AS_PUBLISHED.items() if key in Ease.Config.model_fields}


@pytest.mark.parametrize(("prefix", "beta"), [("", 0.0), ("ptm_", 1.0)])
@pytest.mark.parametrize("published", [{}, PUBLISHED], ids=["default", "as_published"])
def test_three_tasks_are_learned_completed_and_scored_as_by_the_public_code(prefix, beta, published):
    numbers, test = oracle.numbers("methods/ease.npz"), Batch(oracle.images(9))
    method = Ease(Ease.Config(**OPTIONS, **published, beta=beta), oracle.backbone(), StreamInfo(0, TASKS))
    features = []
    for index in range(TASKS):
        task, t = place(index), f"t{index}"
        method.grow(task)
        adapters = method.adapters[-1]
        fill(adapters, index)
        [phase] = method.phases(task)
        learn(adapters, method.head, phase, task, numbers)
        method.end_task(task, oracle.Plain(batch_of))
        features.append(method.backbone.features(test.images, adapters))
        assert oracle.close(torch.cat(features, dim=1), numbers[f"{t}_features"], CLOSE)
        assert torch.equal(method.subspaces(test)[:, int(beta > 0) :], torch.stack(features, dim=1))
        assert oracle.close(method.P.flatten(1), numbers[f"{prefix}{t}_proto"], CLOSE)
        assert oracle.close(method.predict(test), numbers[f"{prefix}{t}_scores"], CLOSE)


@pytest.mark.parametrize(("case", "beta"), [(0, 0.0), (1, 0.7)])
def test_tasks_of_unequal_size_are_completed_and_scored_as_by_the_public_code(case, beta):
    numbers = oracle.numbers("methods/ease.npz")
    given, expected, x, scores = (
        torch.tensor(numbers[f"syn{case}_{name}"]) for name in ("in", "completed", "x", "scores")
    )
    method = Ease(Ease.Config(bottleneck=8, beta=beta), oracle.backbone(depth=1), StreamInfo(0, 4))
    first = 0
    for index, classes in enumerate((5, 3, 3, 3)):
        method.grow(TaskInfo(index, tuple(range(first, first + classes)), first))
        first += classes
    method.P = given.unflatten(1, (-1, 16)).float()  # a narrower one than the network's
    method.complete()
    assert oracle.close(method.P.flatten(1), expected, CLOSE)
    method.subspaces = lambda batch: batch.images.unflatten(1, (-1, 16))
    assert oracle.close(method.predict(Batch(x.float())), scores, CLOSE)
