"""SLCA and SLCA++ have the public code's numbers in two tasks, and what that code does otherwise is named."""

from dataclasses import replace

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.slca import AsRun
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.gaussians import ClassGaussians, unpack
from cl_bench.training.phase import Phase

pytestmark = oracle.HERE
IMAGES, RATE = 12, 0.02
CLOSE, DRAWN, SCORED = 5e-5, 2e-4, 5e-4  # the page's tolerances
SETTINGS = {
    "learning_rate": RATE, "slow": 0.4, "milestone": 0.5, "batch": 6, "passes": 2, "align_passes": 2,
    "align_rate": RATE, "hybrid_rate": 0.4,
}  # fmt: skip
RUNS = pytest.mark.parametrize("name", ["slca", "pp"])
PUBLISHED = {key: value for key, value in AsRun.AS_PUBLISHED.items() if key != "normalisation"}


def images_of(task: TaskInfo) -> Batch:
    return Batch(oracle.images(task.index, IMAGES), oracle.labels(task.index, IMAGES))


def built(name: str, **options) -> AsRun:
    config = AsRun.Config(plusplus=name == "pp", **{**SETTINGS, **PUBLISHED, **options})
    return AsRun(config, oracle.backbone(), StreamInfo(0, 2))


def begin(method: AsRun, index: int) -> TaskInfo:
    """Announce a task; its head starts as the oracle's."""
    task = oracle.task(index)
    method.grow(task)
    with torch.no_grad():
        for kind, parameter in method.head.heads[-1].named_parameters():
            parameter.copy_(oracle.filled(f"heads.{index}.{kind}", tuple(parameter.shape)))
    method.begin_task(task, None)
    return task


def shown(tensor: Tensor, name: str) -> Tensor:
    """Vectors and heads in full, others of the network as their probe."""
    if tensor.ndim < 2 or name.startswith("heads"):
        return tensor
    rows = tensor.reshape(1 if name in ("cls_token", "pos_embed") else len(tensor), -1)
    return rows.double() @ oracle.probe(0, rows.shape[1], 1)


class Numbers:
    """The page's arrays of one method."""

    def __init__(self, name: str):
        self.name, self.arrays = name, oracle.numbers("methods/slca.npz")

    def __getitem__(self, key: str) -> np.ndarray:
        return self.arrays[f"{self.name}/{key}"]

    def under(self, prefix: str) -> list[str]:
        """Names below a prefix."""
        start = f"{self.name}/{prefix}/"
        return [key.removeprefix(start) for key in self.arrays if key.startswith(start)]

    def close(self, key: str, found: Tensor, tolerance: float = CLOSE) -> bool:
        return oracle.close(found, self[key], tolerance)


def own(method: AsRun, name: str) -> Tensor:
    """The parameter that the page calls so."""
    if name.startswith("heads"):
        _, index, kind = name.split(".")
        return getattr(method.head.heads[int(index)], kind)
    return method.slow.network.vit.get_parameter(name)


def lora(method: AsRun, name: str) -> dict[str, Tensor]:
    """B A, (dL/dB) A and B dL/dA of a map, as the page names them; zero for one that has no LoRA."""
    _, _, block, _, kind, product = name.split(".")
    if kind not in method.slow.edits.A:
        return {product: torch.zeros(48 if kind == "fc2" else 192, 1)}
    A, B = (part[kind] for part in (method.slow.edits.A, method.slow.edits.B))
    pairs = {"B_A": (B, A), "gradB_A": (B.grad, A), "B_gradA": (B, A.grad)}
    return {key: b[int(block)] @ a[int(block)] for key, (b, a) in pairs.items() if None not in (b, a)}


def compare(method: AsRun, numbers: Numbers, prefix: str, of=lambda parameter: parameter) -> None:
    """All that the page has of one moment."""
    names = numbers.under(prefix)
    assert names
    for name in names:
        if name.endswith("gradB_A") and ".mlp." in name:
            continue  # what its gradient would be
        if name.startswith("lora"):
            found = shown(lora(method, name)[name.split(".")[-1]].detach(), name)
        else:
            found = shown(of(own(method, name)).detach(), name)
        assert numbers.close(f"{prefix}/{name}", found), (prefix, name)


def learn(method: AsRun, task: TaskInfo, numbers: Numbers) -> None:
    """The four steps of a task."""
    [phase], t = method.phases(task), f"t{task.index}"
    optimizer, losses, rates, batches = phase.optimizer(), [], [], images_of(task).split(6)
    starts = [group["lr"] for group in optimizer.param_groups]
    for step in range(4):
        for group, start in zip(optimizer.param_groups, starts, strict=True):
            group["lr"] = start * phase.rate(step // 2, group)
        rates.append(sorted({round(group["lr"], 9) for group in optimizer.param_groups}))
        optimizer.zero_grad()
        loss = phase.loss(batches[step % 2])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            compare(method, numbers, f"{t}s0/grad", lambda parameter: parameter.grad)
        optimizer.step()
        if step == 0:
            compare(method, numbers, f"{t}s0/after")
    assert losses == pytest.approx(numbers[f"{t}/stage1_losses"].tolist(), rel=CLOSE)
    for found, expected in zip(rates[::2], numbers[f"{t}/stage1_lrs"], strict=True):
        assert found == pytest.approx(sorted({round(float(rate), 9) for rate in expected}), rel=1e-6)
    sizes = [sum(p.numel() for p in group["params"]) for group in optimizer.param_groups]
    groups = numbers[f"{t}/s_group_sizes"]
    assert sizes == (groups.tolist() if len(groups) == 2 else [groups[0] + groups[1], *groups[2:]])


class Watching(oracle.Plain):
    """A trainer that writes down what the alignment does."""

    def fit_samples(self, task: TaskInfo, draw, phase: Phase) -> list[float]:
        self.losses, self.batches, self.grads, self.after, self.rates = [], [], [], [], []

        def loss(batch: Batch) -> Tensor:
            self.batches.append(batch)
            value = phase.loss(batch)
            self.losses.append(value.item())
            return value

        def made() -> torch.optim.Optimizer:
            self.trained = phase.optimizer()
            return self.trained

        def parameters() -> list[Tensor]:
            return self.trained.param_groups[0]["params"]

        def step() -> None:
            self.after.append([parameter.detach().clone() for parameter in parameters()])
            self.rates.append(self.trained.param_groups[0]["lr"])

        watched = replace(
            phase,
            loss=loss,
            optimizer=made,
            after_backward=lambda: self.grads.append([p.grad.clone() for p in parameters()]),
            after_step=step,
        )
        return super().fit_samples(task, draw, watched)


@pytest.fixture
def given_draws(monkeypatch):
    """The page's numbers in the place of random ones, of the alignment's passes one after another."""
    state = {"pass": 0}

    def normals(known: ClassGaussians, count: int, generator) -> Tensor:
        keys = [[5, 1, state["pass"], k] for k in range(len(known.means))]
        z = torch.stack(
            [torch.tensor(np.random.default_rng(key).standard_normal((count, 48))) for key in keys]
        )
        return known.means[:, None] + z.float() @ unpack(known.factors, 48).mT

    def uniforms(shape: tuple[int, int], **options) -> Tensor:
        keys = [[8, 1, state["pass"], k] for k in range(shape[0])]
        return torch.stack(
            [torch.tensor(np.random.default_rng(key).random(shape[1])) for key in keys]
        ).float()

    def permutation(count: int, **options) -> Tensor:
        order = np.random.default_rng([6, 1, state["pass"]]).permutation(count)
        state["pass"] += 1
        return torch.tensor(order)

    monkeypatch.setattr(ClassGaussians, "sample", normals)
    monkeypatch.setattr(torch, "rand", uniforms)
    monkeypatch.setattr(torch, "randperm", permutation)


def compare_statistics(method: AsRun, numbers: Numbers, t: str) -> None:
    factors = unpack(method.gaussians.factors, 48).double()
    covariances = factors @ factors.mT
    assert numbers.close(f"{t}/class_means", method.gaussians.means)
    assert numbers.close(f"{t}/class_covs_diag", covariances.diagonal(dim1=1, dim2=2))
    assert numbers.close(f"{t}/class_covs_probe", covariances @ oracle.probe(0, 48, 2))


def compare_alignment(method: AsRun, numbers: Numbers, trainer: Watching) -> None:
    names = [f"heads.{i}.{kind}" for i in range(2) for kind in ("weight", "bias")]
    first = trainer.batches[0].images[:16]
    assert numbers.close("t1/ca_first_batch_inputs", first, DRAWN)
    for i, name in enumerate(names):
        assert numbers.close(f"t1ca0/grad/{name}", trainer.grads[0][i], DRAWN), name
        assert numbers.close(f"t1ca0/after/{name}", trainer.after[0][i], DRAWN), name
        assert numbers.close(f"t1/aligned/{name}", trainer.after[-1][i], DRAWN), name
    assert trainer.losses == pytest.approx(numbers["t1/ca_losses"].tolist(), rel=DRAWN)
    assert trainer.rates[::6] == pytest.approx(numbers["t1/ca_lrs"].tolist())
    assert [parameter.tolist() for parameter in method.aligned.parameters()] == [
        parameter.tolist() for parameter in trainer.after[-1]
    ]


@RUNS
def test_it_learns_aligns_and_predicts_as_the_public_code(name, given_draws):
    numbers, method, test = Numbers(name), built(name), Batch(oracle.images(2, 6))
    with torch.no_grad():
        assert numbers.close("init/features_fresh_norm", method.features(test))
    for index in range(2):
        task, t = begin(method, index), f"t{index}"
        learn(method, task, numbers)
        compare(method, numbers, f"{t}/final")
        trainer, before = Watching(images_of), [p.clone() for p in method.head.parameters()]
        method.end_task(task, trainer)
        assert all(torch.equal(*pair) for pair in zip(before, method.head.parameters(), strict=True))
        with torch.no_grad():
            f = method.features(test)
            assert numbers.close(f"{t}/features", f)
            assert numbers.close(f"{t}/scores_before_ca", method.head(f))
            assert numbers.close(f"{t}/scores", method.predict(test), SCORED)
        compare_statistics(method, numbers, t)
    compare_alignment(method, numbers, trainer)


@RUNS
def test_as_meant_the_last_norm_is_the_pretrained_one(name):
    method = built(name, final_norm="pretrained")
    with torch.no_grad():
        found = method.features(Batch(oracle.images(2, 6)))
    assert Numbers(name).close("init/features_pretrained_norm", found)


def test_as_meant_the_mlps_lora_gets_the_gradient_that_the_public_code_leaves_unused():
    numbers, method = Numbers("pp"), built("pp", lora_maps="all")
    task = begin(method, 0)
    method.loss(images_of(task).split(6)[0], task).backward()
    names = [name for name in numbers.under("t0s0/grad") if ".mlp." in name and name.startswith("lora")]
    assert len(names) == 4
    for name in names:  # the code's singular vectors are of single precision
        assert numbers.close(f"t0s0/grad/{name}", shown(lora(method, name)["gradB_A"], name), DRAWN), name
