"""MOS has the public code's numbers in two tasks, as it merges and as that is meant."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods._merging import Moved
from cl_bench.methods.mos import AsRun
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.adapter import Adapters
from cl_bench.nn.gaussians import unpack
from cl_bench.training.phase import Phase

pytestmark = oracle.HERE
IMAGES, CLOSE = 12, 1e-5  # the page's tolerance
SETTINGS = {
    "bottleneck": 8, "dropout": 0.0, "batch": 6, "passes": 2, "learning_rate": 0.05, "weight_decay": 0.005,
    "align_passes": 2, "align_samples": 30, "head_decay": "all_asis",
}  # fmt: skip
MERGING = {"clean": "step", "pub": "forward_asis"}
KINDS = {
    "down_proj.weight": "down",
    "down_proj.bias": "down_bias",
    "up_proj.weight": "up",
    "up_proj.bias": "up_bias",
}
ADAPTERS = {f"blocks.{l}.adaptmlp.{kind}": (part, l) for l in range(4) for kind, part in KINDS.items()}
HEAD = {"weight": (6, 48), "bias": (6,)}


def images_of(task: TaskInfo) -> Batch:
    return Batch(oracle.images(task.index, IMAGES), oracle.labels(task.index, IMAGES))


@torch.no_grad()
def begin(method: AsRun, index: int) -> TaskInfo:
    """Announce a task; the first adapters and its rows of the head start as the oracle's."""
    task = oracle.task(index)
    task.labels = oracle.labels(index, IMAGES)
    method.grow(task)
    if index == 0:
        for name, (part, l) in ADAPTERS.items():
            value = getattr(method.adapters[0], part)[l]
            value.copy_(oracle.filled(name, tuple(value.shape)))
    for kind, shape in HEAD.items():
        rows = oracle.filled(f"head.{kind}", shape)[task.first_label :][:3]
        getattr(method.head.heads[-1], kind).copy_(rows * method.head.left)
    method.begin_task(task, None)
    return task


def of_adapters(adapters: Adapters, of=lambda parameter: parameter.detach()) -> dict[str, Tensor]:
    return {name: of(getattr(adapters, part))[l] for name, (part, l) in ADAPTERS.items()}


def of_head(method: AsRun) -> dict[str, Tensor]:
    """All six rows, those to come as weight decay has left them."""
    found = {}
    for kind, shape in HEAD.items():
        rows = [getattr(head, kind).detach() for head in method.head.heads]
        rest = oracle.filled(f"head.{kind}", shape)[3 * len(rows) :] * method.head.left.detach()
        found[kind] = torch.cat([*rows, rest])
    return found


def of_gradients(method: AsRun) -> dict[str, Tensor]:
    found = of_adapters(method.adapters[-1], lambda parameter: parameter.grad)
    for kind, shape in HEAD.items():
        rows = torch.cat([getattr(head, kind).grad for head in method.head.heads])
        found[f"head.{kind}"] = torch.cat([rows, torch.zeros(shape)[len(rows) :]])
    return found


def of_all(method: AsRun) -> dict[str, Tensor]:
    head = {f"head.{kind}": value for kind, value in of_head(method).items()}
    return of_adapters(method.adapters[-1]) | head


class Page:
    """The numbers of one variant, and what both have in common."""

    def __init__(self, variant: str):
        numbers = oracle.numbers("methods/mos.npz")
        self.numbers = {
            key.partition(":")[2]: value
            for key, value in numbers.items()
            if key.startswith((f"{variant}:", "both:"))
        }

    def __getitem__(self, key: str) -> np.ndarray:
        return self.numbers[key]

    def compare(self, prefix: str, found: dict[str, Tensor]) -> None:
        """All that the page has of one moment."""
        written = [key for key in self.numbers if key.startswith(f"{prefix}/")]
        assert written
        for key in written:
            assert oracle.close(found[key.partition("/")[2]], self[key], CLOSE), key


class Watching(oracle.Plain):
    """A trainer that may bring chosen images alone, and writes down what the alignment does."""

    def __init__(self):
        super().__init__(images_of)
        self.losses, self.rates, self.decays = [], [], set()

    def plain(self, task: TaskInfo, batch: int, chosen=None, shared=False, networks=1) -> Iterator[Batch]:
        own, chosen = images_of(task), np.arange(IMAGES) if chosen is None else chosen
        with torch.no_grad():
            yield from Batch(own.images[chosen], own.labels[chosen]).split(batch)

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


def learn(method: AsRun, task: TaskInfo, page: Page) -> None:
    """The steps of a task."""
    [phase], t = method.phases(task), task.index
    optimizer, losses, rates, batches = phase.optimizer(), [], [], images_of(task).split(6)
    tops = [group["lr"] for group in optimizer.param_groups]
    for step in range(phase.passes * 2):
        for group, top in zip(optimizer.param_groups, tops, strict=True):
            group["lr"] = top * phase.rate(step // 2, group)
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.zero_grad()
        loss = phase.loss(batches[step % 2])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            page.compare(f"grad_{t}", of_gradients(method))
        phase.after_backward()
        optimizer.step()
        if step == 0:
            page.compare(f"step1_{t}", of_all(method))
        phase.after_step()
        if step == 0 and t:
            page.compare(f"step1_merged_{t}", of_all(method))
    assert losses == pytest.approx((page[f"ce_{t}"] + page[f"con_{t}"]).tolist(), rel=CLOSE)
    assert np.allclose(rates, page[f"lr_{t}"], rtol=1e-6)


def compare_statistics(method: AsRun, page: Page, t: int) -> None:
    factors = unpack(method.gaussians.factors, 48).double()
    covariances, Z = factors @ factors.mT, np.random.default_rng([3, 1]).standard_normal((48, 3))
    assert oracle.close(method.gaussians.means, page[f"means_{t}"], CLOSE)
    assert oracle.close(covariances.diagonal(dim1=1, dim2=2), page[f"cov_diag_{t}"], CLOSE)
    assert oracle.close(covariances @ torch.tensor(Z), page[f"cov_probe_{t}"], CLOSE)
    assert oracle.close(method.P.means, page[f"protos_{t}"], CLOSE)


@torch.no_grad()
def compare_predictions(method: AsRun, page: Page, t: int) -> None:
    """Under the adapters as they are kept."""
    images = oracle.images(2, IMAGES)
    f = torch.stack([method.backbone.features(images, adapters) for adapters in method.adapters], dim=1)
    for k in range(t + 1):
        if f"feat_test_{t}_adapter{k}" in page.numbers:
            assert oracle.close(f[:, k], page[f"feat_test_{t}_adapter{k}"], CLOSE)
        assert oracle.close(method.head(f[:, k]), page[f"head_logits_{t}_adapter{k}"], CLOSE)
    s = method.P(f[:, 0])
    assert oracle.close(s, page[f"proto_logits_{t}"], CLOSE)
    if t:
        assert method.head.tasks()[s.argmax(dim=1)].tolist() == page["retrieval_first"].tolist()
        assert method.guessed(s, method.scores(f)).tolist() == page["retrieval_last"].tolist()


@pytest.mark.parametrize("variant", MERGING)
def test_it_learns_merges_aligns_and_predicts_as_the_public_code(variant, given_draws):
    page, config = Page(variant), AsRun.Config(**SETTINGS, merging=MERGING[variant])
    method, test, labels = AsRun(config, oracle.backbone(), StreamInfo(0, 2)), *shown_images()
    for t in range(2):
        task, trainer = begin(method, t), Watching()
        learn(method, task, page)
        page.compare(f"snapshot_{t}", of_adapters(method.adapters[t]))
        if t:
            page.compare("head_before_ca", of_head(method))
        method.end_task(task, trainer)
        compare_statistics(method, page, t)
        page.compare(f"head_end_{t}", of_head(method))
        compare_predictions(method, page, t)
        if t == 0 or variant == "clean":
            shown = Batch(test[labels < 3 * (t + 1)])
            assert oracle.close(method.predict(shown), page[f"score_{t}"], CLOSE)
    assert trainer.losses == pytest.approx(page["ca_losses"].tolist(), rel=CLOSE)
    assert trainer.rates == pytest.approx(page["ca_lr"].tolist())
    assert trainer.decays == {float(page["ca_wd"])}
    if variant == "pub":
        page.compare("running_after_stats_1", of_adapters(method.start()))
        compare_evaluations(method, page)


def shown_images() -> tuple[Tensor, Tensor]:
    return oracle.images(2, IMAGES), torch.arange(IMAGES) % 6


@torch.no_grad()
def compare_evaluations(method: AsRun, page: Page) -> None:
    """Of two batches, and once more: block l of the second adapters has merged 4 b + l + 1 times."""
    test, _ = shown_images()
    first, second = method.adapters
    found = []
    for number, images in enumerate([*test.split(6)] * 2):
        merged = Moved(second, [first], [0.9 ** (4 * number + l + 1) for l in range(4)])
        f = [method.backbone.features(images, edits) for edits in (first, merged)]
        found.append(method.answer(torch.stack(f, dim=1)))
    assert oracle.close(torch.cat(found[:2]), page["score_1"], CLOSE)
    assert oracle.close(torch.cat(found[2:]), page["score_1_second_pass"], CLOSE)
