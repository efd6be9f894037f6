"""ARCL-ViT as published has the public code's numbers in three tasks (folder `shared/oracle`)."""

from collections.abc import Iterator

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods._arcl_as_run import LowInWindows
from cl_bench.methods.arcl_vit import METHOD as ARCL
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn import gaussians
from cl_bench.nn.gaussians import ClassGaussians, unpack
from cl_bench.nn.rollout import split_points

pytestmark = oracle.HERE
NUMBERS = oracle.numbers("methods/arcl_vit.npz") if oracle.FOLDER.is_dir() else {}
CLASSES, IMAGES, BATCH, PASSES, TASKS, BLOCKS = 4, 24, 10, 3, 3, 4
# of the page in double precision, task by task: of the first two steps, and of what comes of the others, in
# which rounding grows where a ratio is cut at 10
FIRST, LATE = (1e-5, 1e-5, 1e-4), (1e-5, 1e-5, 1e-2)
MOVED = 0.1  # of the third task's weights at the end, which on two processors are as far from each other
SINGLE, SINGLE_RATIO = 1e-3, 1e-2  # in single precision


class OfTask(TaskInfo):
    """A task that knows how many images it has."""

    def __len__(self) -> int:
        return IMAGES


def task(index: int) -> OfTask:
    first = CLASSES * index
    return OfTask(index, tuple(range(first, first + CLASSES)), first)


def images_of(given: TaskInfo) -> Batch:
    labels = torch.arange(IMAGES) % CLASSES + given.first_label
    return Batch(images(given.index, IMAGES), labels)


class InOrder(oracle.Plain):
    """A trainer that hands out a task's images in order."""

    def plain(self, task: TaskInfo, batch: int, chosen=None, shared=False, networks=1) -> Iterator[Batch]:
        with torch.no_grad():
            yield from images_of(task).split(batch)


def built(**options) -> ARCL:
    sizes = {
        "temperature": 5.0, "weight_decay": 5e-3, "qkv_share": 0.1, "batch": BATCH, "passes": PASSES,
        "epoch_mode": "plain",
    }  # fmt: skip
    config = ARCL.Config(**{**ARCL.AS_PUBLISHED, **sizes, **options})
    method = ARCL(config, oracle.backbone(), StreamInfo(init_seed=0, num_tasks=TASKS + 1))
    method.to(torch.get_default_dtype())
    with torch.no_grad():
        for name, value in method.network.vit.named_parameters():
            value.copy_(drawn(name, tuple(value.shape)))
    return method


def drawn(name: str, shape: tuple[int, ...]) -> Tensor:
    """A parameter of the backbone, in which queries and keys are ten times as large, in double precision."""
    found = oracle.filled(name, shape).double()
    if name.endswith("qkv.weight"):
        found[:96] *= 10
    return found


def images(number: int, count: int = 8) -> Tensor:
    """A set of images in the precision of the test."""
    return oracle.images(number, count).to(torch.get_default_dtype())


def grow(method: ARCL, index: int) -> None:
    """Announce a task, with the page's head where the public code draws one."""
    method.grow(task(index))
    head = method.head.heads[-1]
    if index == 1:
        assert oracle.close(head.weight, NUMBERS["t1_head_start"], 1e-5)
        return
    with torch.no_grad():
        head.weight.copy_(oracle.drawn(f"head.{index}.weight", (CLASSES, 48), 0.04))
        head.bias.copy_(oracle.drawn(f"head.{index}.bias", (CLASSES,), 0.02))


class Checked:
    """Compares what the page names of a task, within its tolerance."""

    def __init__(self, index: int, first: float, late: float):
        self.t, self.tolerance, self.late = f"t{index}", first, late

    def __call__(self, key: str, found: Tensor, tolerance: float | None = None) -> None:
        name = f"{self.t}_{key}"
        assert oracle.close(found, NUMBERS[name], tolerance or self.tolerance), name


def check_ratios(method: ARCL, index: int, check: Checked) -> None:
    """R of the first step, in full for one block and by its statistics for all."""
    for i, R in enumerate(method.ratios):
        check(f"s0_Rg_probe_b{i}", (method.W[i].grad * R).double() @ oracle.probe(1))
        mean, middle, top, bottom, far = NUMBERS[f"t{index}_s0_R_stat_b{i}"].tolist()
        assert R.mean().item() == pytest.approx(mean, rel=1e-3, abs=1e-6)
        assert np.median(R.numpy()) == pytest.approx(middle, rel=1e-3, abs=1e-6)
        assert (int((R == 10).sum()), int((R == -10).sum())) == (top, bottom)
        assert (R - 1).abs().max().item() == pytest.approx(far, rel=1e-6)
    if index == 1:
        check("s0_g_full_b1", method.W[1].grad)
        check("s0_R_full_b1", method.ratios[1])


def learn(method: ARCL, index: int, check: Checked) -> None:
    """The steps of a task, the first two in detail."""
    given, losses = task(index), []
    [phase] = method.phases(given)
    optimizer, batches = phase.optimizer(), images_of(given).split(BATCH)
    head = method.head.heads[-1]
    for step in range(PASSES * len(batches)):
        number = step // len(batches)
        slow, fast = optimizer.param_groups
        slow["lr"], fast["lr"] = (float(NUMBERS[f"t{index}_lr_{name}"][number]) for name in ("qkv", "head"))
        optimizer.zero_grad()
        loss = phase.loss(batches[step % len(batches)])
        loss.backward()
        losses.append(loss.item())
        phase.after_backward()
        before = [W.detach().clone() for W in method.W]
        if step < 2:
            for i, W in enumerate(method.W):
                check(f"s{step}_g_probe_b{i}", W.grad.double() @ oracle.probe(1))
        if step == 0:
            check("s0_g_head_weight", head.weight.grad)
            check("s0_g_head_bias", head.bias.grad)
            if index:
                check_ratios(method, index, check)
        optimizer.step()
        if step < 2:
            for i, (W, old) in enumerate(zip(method.W, before, strict=True)):
                check(f"s{step}_dW_probe_b{i}", (W - old).double() @ oracle.probe(2))
        if step == 0:
            check("s0_head_weight", head.weight)
    check.tolerance = check.late
    check("ce_losses", torch.tensor(losses))


@pytest.fixture
def doubles(monkeypatch):
    """New heads and Gaussians are in double precision too: masked steps enlarge what is rounded before."""
    rounded = gaussians.fit

    def fit(features: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
        mean, covariance = features.mean(0), torch.cov(features.T) + ridge * torch.eye(features.shape[1])
        rows, columns = torch.tril_indices(*covariance.shape)
        found = mean, torch.linalg.cholesky(covariance)[rows, columns]
        for exact, usual in zip(found, rounded(features, ridge), strict=True):
            assert torch.allclose(exact, usual.double(), rtol=1e-6, atol=1e-7)
        return found

    monkeypatch.setattr(gaussians, "fit", fit)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def watched(monkeypatch):
    """Rollouts, thresholds and classes in the order in which they were looked at."""
    seen, original = [], LowInWindows.limits

    def limits(self, rows: Tensor, labels: Tensor) -> Tensor:
        found = original(self, rows, labels)
        seen.extend(zip(labels.tolist(), rows, found, strict=True))
        return found

    monkeypatch.setattr(LowInWindows, "limits", limits)
    return seen


@pytest.fixture
def given_draws(monkeypatch):
    """The page's numbers in the place of random ones; a pass has the classes one after another."""
    state = {"task": 0, "pass": 0}

    def normals(known: ClassGaussians, count: int, generator) -> Tensor:
        keys = [[3, 100 + state["task"], state["pass"], c] for c in range(len(known.means))]
        state["pass"] += 1
        z = torch.stack([torch.tensor(np.random.default_rng(k).standard_normal((count, 48))) for k in keys])
        return known.means[:, None] + z.to(known.means) @ unpack(known.factors, 48).mT

    monkeypatch.setattr(ClassGaussians, "sample", normals)
    monkeypatch.setattr(torch, "randperm", lambda count, **options: torch.arange(count))
    return state


def check_masks(method: ARCL, before: Tensor, seen: list, check: Checked) -> None:
    """Where attention was little, by the windows of the public code and by an image's own rollout."""
    seen.sort(key=lambda one: one[0])  # class by class, in each as they came
    rollouts, limits = (torch.stack([one[place] for one in seen]) for place in (1, 2))
    check("rollout", rollouts)
    check("split", limits)
    own = split_points(rollouts, method.config.margin)
    exact = check.late < SINGLE_RATIO
    if exact:  # a threshold is one of an image's values, and jumps to another where two are as good
        check("split_own", own)
    counted = 1e-6 if exact else 2 / IMAGES
    check("mask_own_this_task", (rollouts <= own[..., None]).double().mean(0), counted)
    check("mask_this_task", (method.low.total - before) / IMAGES, counted)
    check("mask", method.low.mean(), counted)
    assert int(method.low.images) == int(NUMBERS[f"{check.t}_count"])


def check_heads(method: ARCL, index: int, check: Checked) -> None:
    """Heads as they are trained and refined, class statistics, and predictions."""
    raw = method.head.heads[-1]
    check("raw_head_weight", raw.weight)
    check("raw_head_bias", raw.bias)
    own = slice(CLASSES * index, CLASSES * (index + 1))
    factors = unpack(method.gaussians.factors[own], 48)
    check("class_mean", method.gaussians.means[own])
    check("class_cov_probe", (factors @ factors.mT).double() @ oracle.probe(4))
    losses = NUMBERS[f"t{index}_refine_losses"].reshape(20, -1).mean(axis=1)
    assert method.refine_losses == pytest.approx(losses[[0, -1]].tolist(), rel=check.tolerance)
    check("refined_weight", torch.cat([head.weight for head in method.refined.heads]))
    check("refined_bias", torch.cat([head.bias for head in method.refined.heads]))
    test = Batch(images(9))
    with torch.no_grad():
        check("test_features", method.features(test))
        check("test_logits", method.predict(test))


def run(method: ARCL, tasks: int, checks: list[Checked], seen: list, draws: dict) -> None:
    """So many tasks from one end to the other."""
    trainer, start = InOrder(images_of), [W.detach().clone() for W in method.W]
    for index in range(tasks):
        check = checks[index]
        seen.clear()
        draws.update({"task": index, "pass": 0})
        grow(method, index)
        before = method.low.total.clone()
        method.begin_task(task(index), trainer)
        learn(method, index, check)
        for i, W in enumerate(method.W):
            drifted = MOVED if index == 2 else None
            check(f"end_W_probe_b{i}", (W - start[i]).double() @ oracle.probe(3), drifted)
        method.end_task(task(index), trainer)
        check_masks(method, before, seen, check)
        check_heads(method, index, check)


def test_three_tasks_are_learned_looked_at_and_refined_as_by_the_public_code(doubles, watched, given_draws):
    method = built()
    biases = [block.attn.qkv.bias.clone() for block in method.network.vit.blocks]
    checks = [Checked(index, FIRST[index], LATE[index]) for index in range(TASKS)]
    run(method, TASKS, checks, watched, given_draws)
    for bias, block in zip(biases, method.network.vit.blocks, strict=True):
        assert torch.equal(bias, block.attn.qkv.bias)


def test_in_single_precision_the_first_task_and_the_first_ratios_are_the_public_codes(watched, given_draws):
    method = built()
    run(method, 1, [Checked(0, SINGLE, SINGLE)], watched, given_draws)
    grow(method, 1)
    method.begin_task(task(1), InOrder(images_of))
    [phase] = method.phases(task(1))
    phase.optimizer().zero_grad()
    phase.loss(images_of(task(1)).split(BATCH)[0]).backward()
    phase.after_backward()
    check = Checked(1, 1e-4, 1e-4)
    for i, (W, R) in enumerate(zip(method.W, method.ratios, strict=True)):
        check(f"s0_g_probe_b{i}", W.grad.double() @ oracle.probe(1))
        # the code's own in single precision is within 1e-4; what is left of g enlarges the rounding of g
        check(f"s0_Rg_probe_b{i}", (W.grad * R).double() @ oracle.probe(1), SINGLE)
    check("s0_R_full_b1", method.ratios[1], SINGLE_RATIO)


@pytest.mark.parametrize("case", range(4))
def test_a_threshold_alone_is_the_public_codes(case):
    x = torch.tensor(NUMBERS[f"split{case}_x"]).double()
    found = split_points(x[None], 1e-3)
    assert found.item() == pytest.approx(float(NUMBERS[f"split{case}_value"]), rel=1e-6)
    assert int((x <= found).sum()) == int(NUMBERS[f"split{case}_count"])


def test_rates_fall_when_the_public_codes_do():
    published = ARCL(ARCL.Config(**ARCL.AS_PUBLISHED), oracle.backbone(), oracle.stream(1, 1))
    assert [published.rate(10 * epoch) for epoch in range(5)] == pytest.approx([1.0] * 4 + [0.1])
    meant = ARCL(ARCL.Config(), oracle.backbone(), oracle.stream(1, 1))
    assert [meant.rate(10 * epoch) for epoch in range(5)] == [1.0] * 5
