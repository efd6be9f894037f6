"""SSIAT has the public code's numbers in two tasks; what that code does otherwise is named."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.ssiat import AsRun
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.gaussians import closeness, unpack
from cl_bench.training.phase import Phase

pytestmark = oracle.HERE
IMAGES, CLOSE, MOVED = 12, 1e-5, 3e-6  # the page's tolerances
SETTINGS = {"bottleneck": 8, "dropout": 0.0, "batch": 6, "passes": 3, "later_passes": 2, "align_passes": 2}
KINDS = {
    "down_proj.weight": "down",
    "down_proj.bias": "down_bias",
    "up_proj.weight": "up",
    "up_proj.bias": "up_bias",
}
ADAPTERS = {f"blocks.{l}.adaptmlp.{kind}": (part, l) for l in range(4) for kind, part in KINDS.items()}


def images_of(task: TaskInfo) -> Batch:
    return Batch(oracle.images(task.index, IMAGES), oracle.labels(task.index, IMAGES))


@torch.no_grad()
def built(**options) -> AsRun:
    method = AsRun(AsRun.Config(**SETTINGS, **options), oracle.backbone(), StreamInfo(0, 2))
    for name, (part, l) in ADAPTERS.items():
        value = getattr(method.adapters, part)[l]
        value.copy_(oracle.filled(name, tuple(value.shape)))
    return method


def begin(method: AsRun, index: int, trainer=None) -> TaskInfo:
    """Announce a task; its head starts as the oracle's."""
    task = oracle.task(index)
    method.grow(task)
    with torch.no_grad():
        method.head.heads[-1].weight.copy_(oracle.filled(f"head.{index}.weight", (3, 48)))
    method.begin_task(task, trainer or Watching(images_of))
    return task


def named(method: AsRun, of=lambda parameter: parameter) -> dict[str, Tensor]:
    """Adapters and heads, under the page's names."""
    found = {name: of(getattr(method.adapters, part))[l] for name, (part, l) in ADAPTERS.items()}
    return found | {f"head.{i}.weight": of(head.weight) for i, head in enumerate(method.head.heads)}


def compare(found: dict[str, Tensor], numbers: dict, prefix: str) -> None:
    """All that the page has of one moment."""
    written = [key.removeprefix(f"{prefix}/") for key in numbers if key.startswith(f"{prefix}/")]
    assert len(written) >= 2
    for name in written:
        assert oracle.close(found[name], numbers[f"{prefix}/{name}"], CLOSE), (prefix, name)


class Watching(oracle.Plain):
    """A trainer that writes down what the alignment does."""

    def fit_samples(self, task: TaskInfo, draw, phase: Phase) -> list[float]:
        self.losses, self.grads, self.rates = [], [], []

        def loss(batch: Batch) -> Tensor:
            value = phase.loss(batch)
            self.losses.append(value.item())
            return value

        def made() -> torch.optim.Optimizer:
            self.trained = phase.optimizer()
            return self.trained

        def before_step() -> None:
            [group] = self.trained.param_groups
            self.grads.append([parameter.grad.clone() for parameter in group["params"]])
            self.rates.append(group["lr"])

        watched = replace(phase, loss=loss, optimizer=made, after_backward=before_step)
        return super().fit_samples(task, draw, watched)


def learn(method: AsRun, task: TaskInfo, numbers: dict) -> None:
    """The steps of a task."""
    [phase], t = method.phases(task), task.index
    optimizer, losses, rates, batches = phase.optimizer(), [], [], images_of(task).split(6)
    for step in range(phase.passes * 2):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * phase.rate(step // 2, group)
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        loss = phase.loss(batches[step % 2])
        loss.backward()
        phase.after_backward()
        losses.append(loss.item())
        if step == 0:
            compare(named(method, lambda parameter: parameter.grad), numbers, f"grad_{t}")
        optimizer.step()
        if step == 0:
            compare(named(method), numbers, f"step1_{t}")
    assert losses == pytest.approx(numbers[f"losses_{t}"].tolist(), rel=CLOSE)
    assert rates == pytest.approx(numbers[f"lr_{t}"].tolist())


def compare_statistics(method: AsRun, numbers: dict, t: int) -> None:
    factors = unpack(method.gaussians.factors, 48).double()
    covariances, Z = factors @ factors.mT, np.random.default_rng([3, 1]).standard_normal((48, 3))
    assert oracle.close(method.gaussians.means, numbers[f"means_{t}"], CLOSE)
    assert oracle.close(covariances.diagonal(dim1=1, dim2=2), numbers[f"cov_diag_{t}"], CLOSE)
    assert oracle.close(covariances @ torch.tensor(Z), numbers[f"cov_probe_{t}"], CLOSE)


@torch.no_grad()
def compare_task(method: AsRun, numbers: dict, t: int) -> None:
    scale, test = method.config.scale, Batch(oracle.images(2, IMAGES))
    ends = {name: value for name, value in named(method).items() if name.startswith("blocks")}
    ends |= {f"head.{i}.weight": head.weight for i, head in enumerate(method.aligned.heads)}
    compare(ends, numbers, f"end_{t}")
    first = Batch(oracle.images(0, IMAGES))
    assert oracle.close(method.features(first), numbers[f"feat_after_{t}"], CLOSE)
    assert oracle.close(method.predict(test) / scale, numbers[f"score_{t}"], CLOSE)
    compare_statistics(method, numbers, t)


def test_it_learns_shifts_aligns_and_predicts_as_the_public_code(given_draws):
    """The page's images are paired, since they are neither shuffled nor augmented."""
    numbers, method = oracle.numbers("methods/ssiat.npz"), built(old_heads="carried_asis")
    with torch.no_grad():
        for number in range(2):
            found = method.features(Batch(oracle.images(number, IMAGES)))
            assert oracle.close(found, numbers[f"feat_{number}"], CLOSE)
    for index in range(2):
        trainer = Watching(images_of)
        task = begin(method, index, trainer)
        Y = method.Y
        learn(method, task, numbers)
        unaligned = [head.weight.detach().clone() for head in method.head.heads]
        method.end_task(task, trainer)
        compare_task(method, numbers, index)
    assert oracle.close(Y, numbers["Y1"], CLOSE)
    for i, weight in enumerate(unaligned):
        assert oracle.close(weight, numbers[f"head_before_ca_{i}"], CLOSE)
        assert oracle.close(trainer.grads[0][i], numbers[f"ca_grad/head.{i}.weight"], CLOSE)
    assert trainer.losses == pytest.approx(numbers["losses_ca"].tolist(), rel=CLOSE)
    assert trainer.rates == pytest.approx(numbers["lr_ca"].tolist())
    moved = method.gaussians.means[:3].double() - torch.tensor(numbers["means_before_shift"])
    assert (moved - torch.tensor(numbers["shift"])).abs().max() < MOVED


@pytest.mark.parametrize("sigma", [0.7, 1.0])
def test_the_shift_has_the_public_codes_numbers_where_weights_are_far_from_equal(sigma):
    numbers = oracle.numbers("methods/ssiat.npz")
    Y1, Y2, means = (torch.tensor(numbers[key]) for key in ("Y1", "Y2", "means_before_shift"))
    found = closeness(means, Y1, sigma) @ (Y2 - Y1).double()
    assert (found - torch.tensor(numbers[f"shift_paired_sigma{sigma}"])).abs().max() < MOVED


class Unpaired(Watching):
    """A trainer whose augmented images are the task's in order, and later in the page's."""

    turns = 0

    def augmented(self, task: TaskInfo, batch: int, chosen, pass_index: int) -> Iterator[Batch]:
        order = np.random.default_rng([31, 0]).permutation(IMAGES) if self.turns else np.arange(IMAGES)
        self.turns += 1
        own = images_of(task)
        with torch.no_grad():
            yield from Batch(own.images[order], own.labels[order]).split(5)


class Sized(TaskInfo):
    def __len__(self) -> int:
        return IMAGES


@pytest.mark.parametrize("sigma", [1.0, 4.0])
def test_as_published_the_shift_is_of_features_of_different_images(sigma):
    """Y and Y' are features of the page's second task, with the adapters from before and after it."""
    numbers, trainer = oracle.numbers("methods/ssiat.npz"), Unpaired(images_of)
    method, means = built(pairs="unpaired_asis", sigma=sigma), torch.tensor(numbers["means_before_shift"])
    method.grow(oracle.task(0))
    method.gaussians.means[:] = means.float()
    method.grow(oracle.task(1))
    task = Sized(**vars(oracle.task(1)))
    for t, learned in ((0, method.begin_task), (1, method.end_task)):
        set_adapters(method, numbers, t)
        learned(task, trainer)
    moved = method.gaussians.means[:3].double() - means
    assert (moved - torch.tensor(numbers[f"shift_unpaired_sigma{sigma}"])).abs().max() < MOVED
    assert trainer.turns == 2


@torch.no_grad()
def set_adapters(method: AsRun, numbers: dict, t: int) -> None:
    """Adapters as they are after a task."""
    for name, (part, l) in ADAPTERS.items():
        getattr(method.adapters, part)[l] = torch.tensor(numbers[f"end_{t}/{name}"])
