"""HiDe-Prompt has the public code's numbers in two tasks, with prompts as chosen and as it mixes them."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.hide_prompt import AsRun
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import TaskInfo
from cl_bench.nn import centroids
from cl_bench.nn.gaussians import ClassGaussians, unpack
from cl_bench.training.phase import Phase

pytestmark = oracle.HERE
IMAGES, EXACT, CLOSE = 12, 1e-5, 2e-4  # images of a set; the page's tolerances, the last behind Adam
SETTINGS = {
    "tii_rate": 0.005, "tii_passes": 3, "batch": 6, "learning_rate": 0.01, "passes": 3, "step_passes": 1,
    "step_decay": 0.5, "layers": 3, "centroids": 2, "tii_align_rate": 0.05, "tii_samples": 6, "samples": 30,
    "align_passes": 2, "ensemble": 0.05, "schedule_lag": "pass_asis", "eval_classes": "all",
}  # fmt: skip
RUNS = pytest.mark.parametrize("name", ["pub", "pub_cov", "fixed", "fixed_cov"])
TII = {"mlp.net.0.0": "up", "mlp.net.1.0": "down", "mlp.norm": "norm"}


def numbers() -> dict:
    return oracle.numbers("methods/hide_prompt.npz")


def images_of(task: TaskInfo) -> Batch:
    return Batch(oracle.images(task.index, IMAGES), oracle.labels(task.index, IMAGES))


def prompts() -> Tensor:
    """Those with which both tasks would start, (2, L, 2, M, D)."""
    name = "e_prompt.prompt"
    generator = np.random.default_rng([7, sum(name.encode()) * 131 + len(name)])
    drawn = torch.tensor(generator.uniform(-1, 1, (3, 2, 2, 5, 4, 12)), dtype=torch.float32)
    return drawn.flatten(4).movedim(2, 0)


@torch.no_grad()
def built(name: str) -> AsRun:
    variant = {
        "prefix_reshape": "reshape_asis" if name.startswith("pub") else "permute",
        "statistics": "gaussian" if name.endswith("cov") else "centroids",
    }
    method = AsRun(AsRun.Config(**SETTINGS, **variant), oracle.backbone(), oracle.stream(2, 2))
    for part, own in TII.items():
        for kind, parameter in getattr(method.tii, own).named_parameters():
            filled = f"{part}.{kind}" if part == "mlp.norm" and kind == "weight" else f"tii.{part}.{kind}"
            parameter.copy_(oracle.filled(filled, tuple(parameter.shape)))
    return method


@torch.no_grad()
def begin(method: AsRun, index: int) -> TaskInfo:
    """Announce a task; its rows of both heads start as the oracle's, and so does the first prompt."""
    task = oracle.task(index)
    method.grow(task)
    if index == 0:
        method.p[0].copy_(prompts()[0])
    for prefix, heads in (("tii.head", method.tii.head), ("head", method.head)):
        heads.heads[-1].weight.copy_(oracle.filled(f"{prefix}.weight", (6, 48))[task.first_label :][:3])
        heads.heads[-1].bias.copy_(oracle.filled(f"{prefix}.bias", (6,))[task.first_label :][:3])
    method.begin_task(task, None)
    return task


def rows_of(heads, kind: str, of) -> Tensor:
    """All six rows of a head; those to come have no values."""
    return torch.cat([of(getattr(head, kind)) for head in heads.heads])


def named(method: AsRun, of=lambda parameter: parameter.detach()) -> dict[str, Tensor]:
    """What is trained, under the page's names."""
    found = {"prompt": of(method.p[-1]).unflatten(3, (4, 12))}
    for part, own in TII.items():
        for kind, parameter in getattr(method.tii, own).named_parameters():
            found[f"tii/{part}.{kind}"] = of(parameter)
    for kind in ("weight", "bias"):
        found[f"tii/head.{kind}"] = rows_of(method.tii.head, kind, of)
        found[f"head.{kind}"] = rows_of(method.head, kind, of)
    return found


def gradient(parameter: Tensor) -> Tensor:
    known = parameter.requires_grad and parameter.grad is not None  # not of old rows, from their own task
    return parameter.grad if known else torch.zeros_like(parameter)


def compare(found: dict[str, Tensor], page: dict, prefix: str, tolerance: float, tii: bool) -> None:
    """All that the page has of one moment; of heads the rows that there are."""
    written = [key.removeprefix(f"{prefix}/") for key in page if key.startswith(f"{prefix}/")]
    written = [key for key in written if key != "prompt_others_abs"]
    assert written
    for key in written:
        own, expected = found[f"tii/{key}" if tii else key], page[f"{prefix}/{key}"]
        expected = expected[: len(own)] if key.startswith("head") else expected
        assert oracle.close(own, expected, tolerance), (prefix, key)


def learn(method: AsRun, task: TaskInfo, phase: Phase, page: dict, name: str, rates: bool) -> None:
    """The six steps of a phase."""
    t, tii, optimizer = task.index, name == "tii", phase.optimizer()
    tops, losses, found, norms = [group["lr"] for group in optimizer.param_groups], [], [], []
    for step in range(phase.passes * 2):
        for group, top in zip(optimizer.param_groups, tops, strict=True):
            group["lr"] = top * phase.rate(step // 2, group)
        found.append([group["lr"] for group in optimizer.param_groups])
        optimizer.zero_grad()
        loss = phase.loss(images_of(task).split(6)[step % 2])
        loss.backward()
        losses.append(loss.item())
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        norms.append(torch.stack([p.grad.norm() for p in parameters]).norm().item())
        phase.after_backward()
        if step == 0 and f"{name}/grad_{t}/head.bias" in page:
            compare(named(method, gradient), page, f"{name}/grad_{t}", CLOSE if t else EXACT, tii)
        optimizer.step()
        if step == 0 and f"{name}/step1_{t}/head.weight" in page:
            compare(named(method), page, f"{name}/step1_{t}", CLOSE, tii)
    con = page.get(f"{name}/con_{t}", 0.0)
    assert losses == pytest.approx((page[f"{name}/ce_{t}"] + con).tolist(), rel=CLOSE)
    assert losses[0] == pytest.approx(float((page[f"{name}/ce_{t}"] + con)[0]), rel=CLOSE if t else EXACT)
    assert norms == pytest.approx(page[f"{name}/gradnorm_{t}"].tolist(), rel=CLOSE)
    if rates:
        assert np.allclose(found, page[f"{name}/lr_{t}"], rtol=1e-6)


class Watching(oracle.Plain):
    """A trainer that brings the images of a class together, and writes down what alignments do."""

    def __init__(self):
        super().__init__(images_of)
        self.losses, self.rates, self.grads = [], [], []

    def plain(self, task: TaskInfo, batch: int, chosen=None, shared=False, networks=1) -> Iterator[Batch]:
        own = images_of(task)
        with torch.no_grad():
            for label in own.labels.unique():
                yield Batch(own.images[own.labels == label], own.labels[own.labels == label])

    def fit_samples(self, task: TaskInfo, draw, phase: Phase) -> list[float]:
        losses, rates, optimizers = [], [], []

        def made() -> torch.optim.Optimizer:
            optimizers.append(phase.optimizer())
            return optimizers[-1]

        def loss(batch: Batch) -> Tensor:
            value = phase.loss(batch)
            losses.append(value.item())
            return value

        def before_step() -> None:
            [group] = optimizers[-1].param_groups
            assert group["weight_decay"] == 0 and group["momentum"] == 0.9
            rates.append(group["lr"])
            if len(rates) == 1:
                self.grads.append([parameter.grad.clone() for parameter in group["params"]])

        watched = replace(phase, loss=loss, optimizer=made, after_backward=before_step)
        found = super().fit_samples(task, draw, watched)
        self.losses.append(losses)
        self.rates.append(rates)
        return found


@pytest.fixture
def given_draws(monkeypatch):
    """The page's numbers in the place of random ones, of both alignments' passes one after another."""
    state = {"pass": -1}

    def component(c: int, count: int) -> Tensor:
        drawn = np.random.default_rng([23, state["pass"] % 2, c]).standard_normal((count, 48))
        return torch.tensor(drawn).float()

    def permutation(count: int, **options) -> Tensor:
        if "gaussian" not in state:
            state["pass"] += 1
        state["order"] = torch.tensor(np.random.default_rng([29, state["pass"] % 2]).permutation(count))
        return state["order"]

    def normals(count: int, width: int, **options) -> Tensor:
        each = count // 3  # three batches, of as many features as are drawn of each component
        whole = torch.cat([component(c, each) for c in range(len(state["order"]) // each)])
        return whole[state["order"][:count]]

    def sample(known: ClassGaussians, count: int, generator) -> Tensor:
        state["gaussian"], state["pass"] = True, state["pass"] + 1
        z = torch.stack([component(c, count) for c in range(len(known.means))])
        return known.means[:, None] + z @ unpack(known.factors, 48).mT

    monkeypatch.setattr(torch, "randperm", permutation)
    monkeypatch.setattr(centroids.torch, "randn", normals)
    monkeypatch.setattr(ClassGaussians, "sample", sample)
    monkeypatch.setattr(centroids, "k_means", lambda own, count, seed: torch.arange(len(own)) % 2)


def compare_statistics(known, page: dict, prefix: str, t: int) -> None:
    if isinstance(known, ClassGaussians):
        factors = unpack(known.factors, 48).double()
        covariances, Z = factors @ factors.mT, np.random.default_rng([3, 1]).standard_normal((48, 3))
        assert oracle.close(known.means, page[f"{prefix}/means_{t}"], CLOSE)
        assert oracle.close(covariances.diagonal(dim1=1, dim2=2), page[f"{prefix}/cov_diag_{t}"], CLOSE)
        assert oracle.close(covariances @ torch.tensor(Z), page[f"{prefix}/cov_probe_{t}"], CLOSE)
    else:
        assert oracle.close(known.means, page[f"{prefix}/centroids_{t}"], CLOSE)
        assert oracle.close(known.variances, page[f"{prefix}/centroid_vars_{t}"], CLOSE)


def compare_alignments(method: AsRun, page: dict, tii: str, name: str, trainer: Watching) -> None:
    for place, prefix in enumerate((tii, name)):
        assert trainer.losses[place] == pytest.approx(page[f"{prefix}/ca_losses"].tolist(), rel=CLOSE)
        if f"{prefix}/ca_lr" in page:
            assert trainer.rates[place] == pytest.approx(page[f"{prefix}/ca_lr"].tolist())
        compare(named(method), page, f"{prefix}/after_ca", CLOSE, place == 0)
    if tii == "tii":
        parameters = [*method.tii.named_parameters()]
        grads = {key: grad for (key, _), grad in zip(parameters, trainer.grads[0], strict=True)}
        for kind in ("weight", "bias"):
            assert oracle.close(grads[f"norm.{kind}"], page[f"tii/ca_grad/mlp.norm.{kind}"], CLOSE)
            rows = torch.cat([grads[f"head.heads.{i}.{kind}"] for i in range(2)])
            assert oracle.close(rows, page[f"tii/ca_grad/head.{kind}"], CLOSE)


@RUNS
def test_it_learns_keeps_aligns_and_predicts_as_the_public_code(name, given_draws):
    page, method = numbers(), built(name)
    tii = "tii_cov" if name.endswith("cov") else "tii"
    for index in range(2):
        task, trainer = begin(method, index), Watching()
        first, second = method.phases(task)
        learn(method, task, first, page, "tii", True)
        if tii == "tii":
            compare(named(method), page, f"tii/end_{index}", CLOSE, True)
        learn(method, task, second, page, name, f"{name}/lr_{index}" in page)
        ends = {f"head_end_{index}/{kind}": named(method)[f"head.{kind}"] for kind in ("weight", "bias")}
        method.end_task(task, trainer)
        ends[f"prompt_end_{index}"] = named(method)["prompt"]
        for key, value in ends.items() if f"{name}/prompt_end_0" in page else ():
            expected = page[f"{name}/{key}"]
            assert oracle.close(value, expected[: len(value)] if "head" in key else expected, CLOSE), key
        compare_statistics(method.of_q, page, tii, index)
        compare_statistics(method.of_f, page, name, index)
    compare_alignments(method, page, tii, name, trainer)
    test, labels = oracle.images(2, IMAGES), torch.arange(IMAGES) % 6
    for t in range(2):
        batch = Batch(test[labels // 3 == t])
        with torch.no_grad():
            tasks = method.tii.tasks(method.query(batch))
            assert oracle.close(method.tii(method.query(batch)), page[f"{tii}/score"][t], CLOSE)
            assert oracle.close(method.predict(batch), page[f"{name}/score"][t], CLOSE)
        assert tasks.tolist() == page[f"{name}/prompt_id_test"][t].tolist()


@pytest.mark.parametrize("name", ["pub", "fixed"])
def test_untrained_features_and_scores_are_those_of_the_public_code(name):
    page, method = numbers(), built(name)
    begin(method, 0)
    P, first, mixed = prompts(), oracle.images(0, IMAGES), torch.arange(IMAGES) % 2
    with torch.no_grad():
        q = method.query(Batch(first))
        assert oracle.close(q, page["tii/feat_0"], EXACT)
        assert oracle.close(method.tii(q), page["tii/logits_start"][:, :3], EXACT)
        assert oracle.close(method.features(first, P[:1]), page[f"{name}/feat_start_task0"], EXACT)
        found = method.features(oracle.images(2, IMAGES), P[mixed])
    assert oracle.close(found, page[f"{name}/feat_start_mixed"], EXACT)


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("lr_cifar_step50", {"schedule": "step", "passes": 50}),
        ("lr_inr_cosine150", {"schedule": "cosine", "passes": 150}),
    ],
)
def test_rates_fall_as_in_the_published_runs_a_pass_late(key, options):
    config = AsRun.Config(schedule_lag="pass_asis", **options)
    method = AsRun(config, oracle.backbone(depth=5), oracle.stream(2, 2))
    method.grow(oracle.task(0))
    group = method.phases(oracle.task(0))[1].optimizer().param_groups[0]
    rate = method.phases(oracle.task(0))[1].rate
    found = [group["lr"] * rate(done, group) for done in range(config.passes)]
    assert found == pytest.approx(numbers()[key].tolist(), rel=1e-6)
