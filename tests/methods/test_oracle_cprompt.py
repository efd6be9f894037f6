"""CPrompt has the public code's numbers in three tasks of its loop (folder `shared/oracle`)."""

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.cprompt import CPrompt
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import TaskInfo

pytestmark = oracle.HERE
TOLERANCE, TASKS, BATCH, STEPS, EPOCHS = 1e-5, 3, 4, 4, 2
OPTIONS = {"passes": EPOCHS, "batch": BATCH, "tau": 1.2, "margin": 0.5}


@pytest.fixture
def drawn(monkeypatch):
    """The oracle's draws of tasks: the turns of step n of task t are all t, n."""

    def choices(turns: np.ndarray, tasks: int, *key: int | str) -> np.ndarray:
        t, n = divmod(int(turns[0]), STEPS)
        assert tasks == t + 1
        return np.random.default_rng([5, t, n]).integers(0, tasks, (BATCH, 1))[:, 0]

    monkeypatch.setattr(seeds, "choices", choices)


def built(**options) -> CPrompt:
    """As published; four tasks of three classes, the last of which never comes."""
    published = {
        key: value for key, value in CPrompt.AS_PUBLISHED.items() if key in CPrompt.Config.model_fields
    }
    config = CPrompt.Config(**{**published, **OPTIONS, **options})
    return CPrompt(config, oracle.backbone(7), oracle.stream(TASKS + 1, TASKS + 1))


def grow(method: CPrompt, index: int) -> TaskInfo:
    """Add a task, with the oracle's values."""
    task = oracle.task(index)
    method.grow(task)
    with torch.no_grad():
        if index == 0:
            for K, rows in zip(method.keys.K, oracle.drawn("keys", (12, 48), 0.04).split(3), strict=True):
                K.copy_(rows)
            for number, P in enumerate(method.prompts.P[0], start=1):
                P.copy_(oracle.drawn(f"prompt{number}.0", (50, 48), 0.04))
        for name, head, scale in (("heads", method.head.heads[index], 0.4), ("aux", method.aux[0], 0.04)):
            head.weight.copy_(oracle.drawn(f"{name}.{index}.weight", (3, 48), scale))
            head.bias.copy_(oracle.drawn(f"{name}.{index}.bias", (3,), 0.02))
    return task


def values(method: CPrompt, index: int, gradients: bool) -> dict[str, torch.Tensor]:
    """What a task trains, or its gradients, by the oracle's names; prompts as it stores them."""

    def found(parameter: torch.Tensor) -> torch.Tensor:
        return (parameter.grad if gradients else parameter).detach()

    P, named = found(method.prompts.P[index]), {"keys": torch.cat([found(K) for K in method.keys.K])}
    for number in range(2):
        named[f"prompt{number + 1}.{index}"] = P[number] @ oracle.probe(0).float()
    for name, head in ((f"heads.{index}", method.head.heads[index]), ("aux", method.aux[0])):
        named |= {f"{name}.weight": found(head.weight), f"{name}.bias": found(head.bias)}
    return named


def same(numbers: dict, place: str, found: dict[str, torch.Tensor]) -> None:
    """Every number that is stored there is the found one."""
    keys = [key for key in numbers if key.startswith(f"{place}/")]
    assert keys
    for key in keys:
        assert oracle.close(found[key.removeprefix(f"{place}/")], numbers[key], TOLERANCE), key


def test_it_learns_routes_and_predicts_as_the_public_code(drawn):
    numbers, method, test = oracle.numbers("methods/cprompt.npz"), built(), Batch(oracle.images(3))
    assert oracle.close(method.query(test), numbers["query"], TOLERANCE)
    for index in range(TASKS):
        t, task = f"t{index}", grow(method, index)
        method.begin_task(task, None)
        optimizer, losses = method.make_optimizer(task), []
        images = Batch(oracle.images(index), oracle.labels(index)).split(BATCH)
        factors = [method.rate(epoch) for epoch in range(EPOCHS)]
        assert factors == pytest.approx(numbers[f"{t}/lr_factors"].tolist())
        for step in range(STEPS):
            optimizer.param_groups[0]["lr"] = 0.01 * factors[step // 2]
            part = images[step % 2]
            batch = Batch(part.images, part.labels, turns=np.full(BATCH, STEPS * index + step))
            expected = [*numbers[f"{t}/loss_aux_key_pcl"][step], numbers[f"{t}/loss_ccl"][step]]
            assert terms(method, batch, task) == pytest.approx(expected, rel=TOLERANCE, abs=1e-6), (
                index,
                step,
            )
            optimizer.zero_grad()
            loss = method.loss(batch, task)
            loss.backward()
            losses.append(loss.item())
            if step == 0:
                same(numbers, f"{t}s0/grad", values(method, index, gradients=True))
            optimizer.step()
            if step == 0:
                same(numbers, f"{t}s0/after", values(method, index, gradients=False))
        assert losses == pytest.approx(numbers[f"{t}/loss_total"].tolist(), rel=TOLERANCE)
        same(numbers, f"{t}/final", values(method, index, gradients=False))
        check_evaluation(method, numbers, index, test)


def check_evaluation(method: CPrompt, numbers: dict, index: int, test: Batch) -> None:
    t, seen, q = f"t{index}", 3 * (index + 1), method.query(test)
    with torch.no_grad():
        assert oracle.close(method.keys.similarity(q, seen, seen), numbers[f"{t}/key_cos"], TOLERANCE)
        routed = method.keys.nearest_task(q, index + 1)
        assert routed.tolist() == numbers[f"{t}/routed_task"].tolist()
        scores = method.predict(test)
        assert oracle.close(scores, numbers[f"{t}/scores"], TOLERANCE)
        assert scores.argmax(dim=1).tolist() == numbers[f"{t}/pred"].tolist()
        for task in [index] if index < TASKS - 1 else range(TASKS):
            found = method.prompted(test.images[:4], [task])
            assert oracle.close(found, numbers[f"{t}/feature_prompt{task}"], TOLERANCE), task


def terms(method: CPrompt, batch: Batch, task: TaskInfo) -> list[float]:
    """The auxiliary head's cross-entropy, the keys', that under drawn prompts, and the consistency's."""
    t, first, y = task.index, task.first_label, batch.labels
    with torch.no_grad():
        f = method.prompted(batch.images, [t])
        cos = method.keys.similarity(method.query(batch), first, first + 3)
        pcl = method.cross_entropy(method.under_drawn(batch, f, t) if t else f, y, task)
        found = [F.cross_entropy(method.aux[0](f), y - first), F.cross_entropy(cos, y), pcl]
        return [*map(float, found), float(method.consistency(f)) if t else 0.0]
