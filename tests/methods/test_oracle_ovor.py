"""OnePrompt and OVOR have the public code's numbers in two tasks of its loop (folder `shared/oracle`)."""

from collections.abc import Iterable, Iterator

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.ovor import OVOR

from cl_bench.data.batch import Batch
from cl_bench.data.stream import TaskInfo
from cl_bench.training import outliers
from cl_bench.training.phase import Phase

pytestmark = oracle.HERE
TOLERANCE, IMAGES, BATCH = 1e-5, 8, 4
SIZES = {
    "passes": 3, "outlier_passes": 2, "batch": BATCH, "g_length": 4, "e_length": 8, "neighbors": 3,
    "boundary": 4, "candidates": 10, "outliers": 8, "tau_id": -1.6, "tau_out": -0.7,
}  # fmt: skip
PROMPTS = [f"prompt.{block}" for block in range(5)]


class Place(TaskInfo):
    def __len__(self) -> int:
        return IMAGES


def place(index: int) -> Place:
    return Place(**vars(oracle.task(index)))


def images_of(index: int) -> Batch:
    """A task's images with labels 0, 1, 2, 0, ..."""
    return Batch(oracle.images(index), oracle.labels(index))


def by_class(index: int) -> Batch:
    """The same, class by class."""
    order = images_of(index).labels.argsort(stable=True)
    return Batch(images_of(index).images[order], images_of(index).labels[order])


class Loop:
    """In the place of a trainer: batches in the given order, every step's loss, the first step in detail."""

    data_seed = 0

    def __init__(self, method: OVOR, index: int):
        self.method, self.index, self.losses, self.first = method, index, [], {}

    def fit(self, task: TaskInfo, phase: Phase, passes: int) -> None:
        self.steps(phase, lambda done: images_of(self.index).split(BATCH))

    def fit_samples(self, task: TaskInfo, draw, phase: Phase) -> list[float]:
        self.before = {name: value.clone() for name, value in self.values().items()}
        self.steps(phase, draw)
        return []

    def augmented(self, task: TaskInfo, batch: int, chosen: np.ndarray, pass_index: int) -> Iterator[Batch]:
        assert sorted(chosen) == list(range(IMAGES))
        with torch.no_grad():
            yield from by_class(self.index).split(batch)

    def values(self) -> dict[str, torch.Tensor]:
        """Prompts, and weight and bias of the current head."""
        head = self.method.head.heads[self.index]
        return {
            **dict(zip(PROMPTS, self.method.edits.P, strict=True)),
            "head.weight": head.weight,
            "head.bias": head.bias,
        }

    def steps(self, phase: Phase, draw) -> None:
        optimizer, first = phase.optimizer(), True
        for done in range(phase.passes):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * phase.rate(done, group)
            for batch in draw(done):
                self.method.zero_grad()
                loss = phase.loss(batch)
                loss.backward()
                self.losses.append(loss.item())
                grads = {name: value.grad for name, value in self.values().items()}
                optimizer.step()
                if first:
                    after = {name: value.detach().clone() for name, value in self.values().items()}
                    self.first[phase.name], first = (grads, after, batch), False


def built(**options) -> OVOR:
    published = {key: value for key, value in OVOR.AS_PUBLISHED.items() if key in OVOR.Config.model_fields}
    method = OVOR(OVOR.Config(**{**published, **SIZES, **options}), oracle.backbone(6), oracle.stream(3, 3))
    with torch.no_grad():
        for name, P in zip(PROMPTS, method.edits.P, strict=True):
            P.copy_(oracle.drawn(name, tuple(P.shape), 0.04))
    return method


def rows(index: int) -> slice:
    return slice(oracle.CLASSES * index, oracle.CLASSES * (index + 1))


def grow(method: OVOR, index: int) -> None:
    """Add a task's head, with the oracle's rows."""
    method.grow(place(index))
    with torch.no_grad():
        head = method.head.heads[index]
        head.weight.copy_(oracle.drawn("head.weight", (9, 48), 0.04)[rows(index)])
        head.bias.copy_(oracle.drawn("head.bias", (9,), 0.02)[rows(index)])


def learned(method: OVOR, index: int) -> Loop:
    """One task, as the trainer has a method learn it."""
    grow(method, index)
    loop = Loop(method, index)
    method.begin_task(place(index), loop)
    for phase in method.phases(place(index)):
        loop.fit(place(index), phase, 0)
    method.end_task(place(index), loop)
    return loop


@pytest.fixture
def noise(monkeypatch):
    """The oracle's normal numbers, of one outlier pass after the other."""
    drawn = iter(range(4))

    def normal(shape: tuple[int, ...], key: tuple) -> torch.Tensor:
        assert shape == (1, 10, 48)
        values = np.random.default_rng([5, next(drawn)]).standard_normal(shape[1:])
        return torch.tensor(values, dtype=torch.float32)[None]

    monkeypatch.setattr(outliers, "normal", normal)


def same(numbers: dict, key: str, found: dict, index: int, names: Iterable[str]) -> None:
    for name in names:
        expected = numbers[f"{key}/{name}"]
        expected = expected[rows(index)] if name.startswith("head") else expected
        assert oracle.close(found[name], expected, TOLERANCE), (key, name)


def test_features_and_scores_before_training_are_the_public_codes():
    numbers, method = oracle.numbers("methods/ovor.npz"), built()
    for index in range(3):
        grow(method, index)
    test = Batch(oracle.images(2, 6))
    assert oracle.close(method.backbone.features(test.images), numbers["init/features_noprompt"], TOLERANCE)
    assert oracle.close(method.features(test), numbers["init/features"], TOLERANCE)
    assert oracle.close(method.predict(test), numbers["init/logits"], TOLERANCE)


def test_it_learns_and_predicts_as_the_public_code(noise):
    numbers, method = oracle.numbers("methods/ovor.npz"), built()
    heads, test = ("head.weight", "head.bias"), Batch(oracle.images(2, 6))
    for index in range(2):
        t, loop = f"t{index}", learned(method, index)
        found = [method.rate(done) for done in range(5)]
        assert found == pytest.approx(numbers[f"{t}/lr_factors"].tolist(), abs=1e-6)
        grads, after, _ = loop.first["training"]
        same(numbers, f"{t}s0/grad", grads, index, [*PROMPTS, *heads])
        same(numbers, f"{t}s0/after", after, index, [*PROMPTS, *heads])
        same(numbers, f"{t}/before_ood", loop.before, index, [*PROMPTS, *heads])
        grads, after, samples = loop.first["outlier"]
        assert all(grads[name] is None for name in PROMPTS)
        same(numbers, f"{t}s6/grad", grads, index, heads)
        same(numbers, f"{t}s6/after", after, index, [*PROMPTS, *heads])
        expected = np.concatenate([numbers[f"{t}e{epoch}/losses"] for epoch in range(5)])
        assert loop.losses == pytest.approx(expected.tolist(), rel=TOLERANCE)
        same(numbers, f"{t}/final", loop.values(), index, [*PROMPTS, *heads])
        assert oracle.close(method.predict(test), numbers[f"{t}/scores"], TOLERANCE)
        assert len(samples.outliers) == numbers[f"{t}/ood/outlier_batch"]


def test_features_boundary_outliers_and_scores_of_an_outlier_pass_are_the_public_codes(noise):
    numbers, method = oracle.numbers("methods/ovor.npz"), built()
    for index in range(2):
        t, found = f"t{index}", {}
        original = method.samples

        def looked_at(task, trainer, done, found=found, original=original):
            with torch.no_grad():
                found.setdefault("features", method.features(by_class(task.index)))
            batches = list(original(task, trainer, done))
            found.setdefault("outliers", torch.cat([samples.outliers for samples in batches]))
            found.setdefault("labels", torch.cat([samples.labels for samples in batches]))
            found.setdefault("head", [p.clone() for p in method.head.heads[task.index].parameters()])
            return batches

        method.samples = looked_at
        loop = learned(method, index)
        method.samples = original
        f = found["features"]
        assert oracle.close(f, numbers[f"{t}/ood/id_features"], TOLERANCE)
        assert found["labels"].tolist() == numbers[f"{t}/ood/id_targets"].tolist()
        boundary = outliers.boundary_of(f, method.config)
        assert boundary.tolist() == numbers[f"{t}/ood/boundary_ids"].tolist()
        order = np.lexsort(numbers[f"{t}/ood/outliers"].T)
        mine = np.lexsort(found["outliers"].numpy().T)
        assert oracle.close(found["outliers"][mine], numbers[f"{t}/ood/outliers"][order], 1e-7)
        assert len(found["outliers"].unique(dim=0)) == 6  # 24 outliers are 6 vectors four times
        samples, (weight, bias) = loop.first["outlier"][2], found["head"]
        z_id, z_out = (x @ weight.T + bias for x in (samples.features, samples.outliers))
        reg = method.config.outlier_weight * outliers.regularization(z_id, z_out, method.config)
        assert oracle.close(reg, numbers[f"{t}/ood/reg"], TOLERANCE)
        assert oracle.close(-z_id.logsumexp(1).mean(), numbers[f"{t}/ood/id_score_mean"], TOLERANCE)
        assert oracle.close(-z_out.logsumexp(1).mean(), numbers[f"{t}/ood/ood_score_mean"], TOLERANCE)


@pytest.mark.parametrize("case", range(4))
def test_the_regularizer_has_the_public_codes_values(case):
    numbers = oracle.numbers("methods/ovor.npz")
    tau_id, tau_out = numbers[f"reg/thresholds{case}"].tolist()
    config = OVOR.Config(tau_id=tau_id, tau_out=tau_out)
    z_id, z_out = torch.tensor(numbers["reg/id_logits"]), torch.tensor(numbers["reg/ood_logits"])
    found = config.outlier_weight * outliers.regularization(z_id, z_out, config)
    assert oracle.close(found, numbers[f"reg/value{case}"], 1e-6)


def test_with_a_pass_of_the_head_alone_it_learns_as_the_public_code(noise):
    numbers, method = oracle.numbers("methods/ovor.npz"), built(warmup_passes=1)
    for index in range(2):
        loop = learned(method, index)
        found = [method.rate(done) for done in range(5 + index)]
        assert found == pytest.approx(numbers[f"warmup/t{index}/lr_factors"].tolist(), abs=1e-6)
    grads, after, _ = loop.first["warm-up"]
    assert all(grads[name] is None for name in PROMPTS)
    same(numbers, "warmup/t1s0/grad", grads, 1, ("head.weight", "head.bias"))
    same(numbers, "warmup/t1s0/after", after, 1, [*PROMPTS, "head.weight", "head.bias"])
    found = method.predict(Batch(oracle.images(2, 6)))
    assert oracle.close(found, numbers["warmup/t1/scores"], TOLERANCE)
