"""TUNA has the public code's numbers in two tasks, and those of the universal adapters that it never uses."""

import math
from dataclasses import replace

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.tuna import AsRun, directions, entropies, united
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.adapter import Adapters
from cl_bench.nn.gaussians import unpack
from cl_bench.training.phase import Phase

pytestmark = oracle.HERE
IMAGES, CLOSE, SCORES, DEPTH = 12, 1e-5, 2e-5, 12  # the page's tolerances; blocks
SETTINGS = {
    "dropout": 0.0, "batch": 6, "passes": 2, "orthogonality": 0.05, "align_passes": 7, "align_samples": 30,
    "mean_decay": 0.1,
}  # fmt: skip
FAULTS = {key: value for key, value in AsRun.AS_PUBLISHED.items() if key in AsRun.Config.model_fields}
KINDS = {
    "down_proj.weight": "down",
    "down_proj.bias": "down_bias",
    "up_proj.weight": "up",
    "up_proj.bias": "up_bias",
}
ADAPTERS = {f"blocks.{l}.adaptmlp.{kind}": (part, l) for l in range(DEPTH) for kind, part in KINDS.items()}


def images_of(task: TaskInfo) -> Batch:
    return Batch(oracle.images(task.index, IMAGES), oracle.labels(task.index, IMAGES))


def built(**options) -> AsRun:
    return AsRun(AsRun.Config(**SETTINGS, **options), oracle.backbone(DEPTH), StreamInfo(0, 2))


@torch.no_grad()
def begin(method: AsRun, index: int) -> TaskInfo:
    """Announce a task; the first adapters and its rows of the head start as the oracle's."""
    task = oracle.task(index)
    method.grow(task)
    if index == 0:
        for name, (part, l) in ADAPTERS.items():
            value = getattr(method.adapters[0], part)[l]
            value.copy_(oracle.filled(name, tuple(value.shape)))
    method.head.heads[-1].weight.copy_(oracle.filled(f"head.{index}.weight", (3, 48)))
    method.begin_task(task, None)
    return task


def of_adapters(adapters: Adapters, of=lambda parameter: parameter.detach()) -> dict[str, Tensor]:
    return {name: of(getattr(adapters, part))[l] for name, (part, l) in ADAPTERS.items()}


def probed(adapters: Adapters) -> Tensor:
    """The page's probe of a whole set."""
    values = torch.cat([value.flatten() for value in of_adapters(adapters).values()]).double()
    Z = torch.tensor(np.random.default_rng([3, 2]).standard_normal((len(values), 3)))
    return values @ Z


def of_heads(method: AsRun, of=lambda parameter: parameter.detach()) -> dict[str, Tensor]:
    return {f"head.{i}.weight": of(head.weight) for i, head in enumerate(method.head.heads)}


def everything(method: AsRun, of=lambda parameter: parameter.detach()) -> dict[str, Tensor]:
    """What learns, and the first adapters' up-projection under the name of what is stored."""
    up = {"stored0.blocks.0.adaptmlp.up_proj.weight": of(method.adapters[0].up)[0]}
    return of_adapters(method.adapters[-1], of) | of_heads(method, of) | up


def compare(numbers: dict, prefix: str, found: dict[str, Tensor], skip: tuple[str, ...] = ()) -> None:
    """All that the page has of one moment."""
    written = [key.removeprefix(f"{prefix}/") for key in numbers if key.startswith(f"{prefix}/")]
    assert written
    for name in written:
        if not name.startswith(skip or ("none",)):
            assert oracle.close(found[name], numbers[f"{prefix}/{name}"], CLOSE), (prefix, name)


class Watching(oracle.Plain):
    """A trainer that writes down what the alignment does."""

    def __init__(self):
        super().__init__(images_of)
        self.losses, self.rates, self.decays = [], [], set()

    def fit_samples(self, task: TaskInfo, draw, phase: Phase) -> list[float]:
        made = []

        def optimizer() -> torch.optim.Optimizer:
            made.append(phase.optimizer())
            return made[0]

        def loss(batch: Batch) -> Tensor:
            value = phase.loss(batch)
            self.losses.append(value.item())
            self.rates += [group["lr"] for group in made[0].param_groups]
            self.decays |= {group["weight_decay"] for group in made[0].param_groups}
            return value

        return super().fit_samples(task, draw, replace(phase, loss=loss, optimizer=optimizer))


def learn(method: AsRun, task: TaskInfo, numbers: dict, skip: tuple[str, ...] = ()) -> None:
    """The steps of a task; what starts with `skip` is not as in the public code."""
    [phase], t = method.phases(task), task.index
    optimizer, losses, rates, batches = phase.optimizer(), [], [], images_of(task).split(6)
    tops = [group["lr"] for group in optimizer.param_groups]
    expected = numbers[f"cosface_{t}"]
    if t:
        orthogonality = method.likeness(directions(method.adapters[:-1])).item()
        assert orthogonality == pytest.approx(float(numbers["orth_1"][0]), rel=CLOSE)
        expected = expected + 0.05 * math.exp(-2) * numbers["orth_1"]
    for step in range(phase.passes * 2):
        for group, top in zip(optimizer.param_groups, tops, strict=True):
            group["lr"] = top * phase.rate(step // 2, group)
        rates += {group["lr"] for group in optimizer.param_groups}
        optimizer.zero_grad()
        loss = phase.loss(batches[step % 2])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            compare(numbers, f"grad_{t}", everything(method, gradient), skip)
        phase.after_backward()
        optimizer.step()
        phase.after_step()
        if step == 0:
            compare(numbers, f"step1_{t}", everything(method), skip)
    assert losses == pytest.approx(expected.tolist(), rel=CLOSE)
    assert rates == pytest.approx(numbers[f"lr_{t}"].tolist())


def gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def compare_statistics(method: AsRun, numbers: dict, t: int) -> None:
    factors = unpack(method.gaussians.factors, 48).double()
    covariances, Z = factors @ factors.mT, np.random.default_rng([3, 1]).standard_normal((48, 3))
    assert oracle.close(method.gaussians.means, numbers[f"means_{t}"], CLOSE)
    assert oracle.close(covariances.diagonal(dim1=1, dim2=2), numbers[f"cov_diag_{t}"], CLOSE)
    assert oracle.close(covariances @ torch.tensor(Z), numbers[f"cov_probe_{t}"], CLOSE)
    with torch.no_grad():
        found = method.backbone.features(oracle.images(t, IMAGES), method.adapters[-1])
    assert oracle.close(found, numbers[f"feat_end_{t}"], CLOSE)


@pytest.mark.parametrize("universal", ["latest_asis", "merged"])
def test_it_learns_aligns_and_predicts_as_the_public_code(universal, given_draws):
    """With the universal adapters too, of which the page has the features and the answers."""
    numbers, method = oracle.numbers("methods/tuna.npz"), built(**{**FAULTS, "universal": universal})
    test = oracle.images(2, IMAGES)
    for t in range(2):
        task, trainer = begin(method, t), Watching()
        learn(method, task, numbers)
        compare(numbers, f"running_{t}", of_adapters(method.adapters[-1]))
        if t:
            for i, head in enumerate(method.head.heads):
                assert oracle.close(head.weight, numbers[f"head_before_ca_{i}"], CLOSE)
        method.end_task(task, trainer)
        stored = torch.stack([probed(adapters) for adapters in method.adapters])
        assert oracle.close(stored, numbers[f"stored_probe_{t}"], CLOSE)
        assert oracle.close(probed(method.adapters[-1]), numbers[f"running_probe_{t}"], CLOSE)
        compare_statistics(method, numbers, t)
        compare(numbers, f"head_end_{t}", of_heads(method))
        if t == 0:
            with torch.no_grad():
                found = method.predict(Batch(test[torch.arange(IMAGES) % 6 < 3])) / 20
            assert oracle.close(found, numbers["score_0"], CLOSE)
    compare(numbers, "stored0_after_task1", of_adapters(method.adapters[0]))
    assert np.abs(np.array(trainer.losses) - numbers["ca_losses"]).max() < SCORES
    assert trainer.rates == pytest.approx(numbers["ca_lr"].tolist(), abs=1e-9)
    assert trainer.decays == {float(numbers["ca_wd"])}
    assert oracle.close(method.drawn().means, numbers["ca_means"], CLOSE)
    compare_predictions(method, numbers, test)


@torch.no_grad()
def compare_predictions(method: AsRun, numbers: dict, test: Tensor) -> None:
    found = method.predict(Batch(test))
    networks = {f"adapter{k}": adapters for k, adapters in enumerate(method.adapters)}
    if method.universal is None:
        expected = numbers["score_1_published"]
    else:
        expected, networks["merged"] = numbers["score_1_with_merged"], method.universal
        compare(numbers, "merged", of_adapters(method.universal))
        assert oracle.close(probed(method.universal), numbers["merged_probe"], CLOSE)
    assert np.abs(found.numpy() - expected).max() < SCORES
    for name, adapters in networks.items():
        f = method.backbone.features(test, adapters)
        assert oracle.close(f, numbers[f"feat_test_{name}"], CLOSE)
        assert oracle.close(method.head(f) / 20, numbers[f"cos_test_{name}"], CLOSE)
    uncertain = entropies(method.scores(method.features(Batch(test)))).T
    assert oracle.close(uncertain, numbers["entropies_1"], CLOSE)
    assert uncertain.argmin(dim=0).tolist() == numbers["entropy_pick_1"].tolist()


def test_as_meant_a_task_starts_as_in_the_public_code_but_for_what_is_old(given_draws):
    """Old adapters and rows stay as learned; what learns differs once those have changed in the code."""
    numbers, method, old = oracle.numbers("methods/tuna.npz"), built(), ("stored0", "head.0")
    first = begin(method, 0)
    learn(method, first, numbers)
    method.end_task(first, Watching())
    kept = [part.clone() for part in method.adapters[0].parameters()]
    rows = method.head.heads[0].weight.clone()
    learn(method, begin(method, 1), numbers, old)
    assert all(torch.equal(a, b) for a, b in zip(kept, method.adapters[0].parameters(), strict=True))
    assert torch.equal(rows, method.head.heads[0].weight)
    compare(numbers, "running_1", of_adapters(method.adapters[1]))


def test_adapters_are_united_as_in_the_public_code():
    """Of those of both tasks as the page has them."""
    numbers = oracle.numbers("methods/tuna.npz")
    for l in (0, 11):
        for kind in KINDS:
            name, stored = f"blocks.{l}.adaptmlp.{kind}", "stored0_after_task1"
            first = numbers.get(
                f"{stored}/{name}", None if "up_proj.weight" in kind else numbers[f"running_0/{name}"]
            )
            if first is not None:
                pair = torch.tensor(np.stack([first, numbers[f"running_1/{name}"]]))
                assert oracle.close(united(pair), numbers[f"merged/{name}"], CLOSE), name
