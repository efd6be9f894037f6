"""CLIP-NSP2 has the published implementation's numbers (folder `shared/oracle`, where present)."""

from functools import partial

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.clip_nsp2 import ClipNSP2
from timm.layers import QuickGELU
from torch import Tensor, nn

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.gaussians import ClassGaussians, unpack
from cl_bench.training import alignment
from cl_bench.training.trainer import Trainer

pytestmark = oracle.HERE
IMAGES, CLASSES, STEPS = 24, 2, 12  # of a task
EXACT = 1e-5


class Text(nn.Module):
    """The oracle's text vectors in the place of a text tower."""

    def __init__(self, vectors: Tensor, scale: float):
        super().__init__()
        self.projection, self.scale, self.vectors = oracle.drawn("head.weight", (32, 48), 0.2), scale, vectors

    def encode(self, names: tuple[str, ...], templates: tuple[str, ...]) -> Tensor:
        return self.vectors[[int(name) for name in names]]


class Place(TaskInfo):
    def __len__(self) -> int:
        return IMAGES


class Plain(Trainer):
    """A trainer whose images for statistics are the task's in order."""

    def plain(self, task: TaskInfo, batch: int):
        with torch.no_grad():
            yield from Batch(
                oracle.images(task.index, IMAGES), torch.arange(IMAGES) % CLASSES + task.first_label
            ).split(batch)


def built(tag: str, numbers: dict) -> ClipNSP2:
    eta, lr, _, temperature, scale, decay, samples, _, passes = numbers["hyper"].tolist()
    config = ClipNSP2.Config(
        prompts=4, layers=3, temperature=temperature, learning_rate=lr, weight_decay=decay, eta=eta,
        refine_passes=int(passes), refine_samples=int(samples),
        **(ClipNSP2.AS_PUBLISHED if tag == "pub" else {}),
    )  # fmt: skip
    norm = partial(nn.LayerNorm, eps=1e-5)
    backbone = oracle.backbone(pre_norm=True, norm_layer=norm, act_layer=QuickGELU)
    backbone.text = Text(torch.tensor(numbers["text"]), scale).eval()
    method = ClipNSP2(config, backbone, StreamInfo(init_seed=0, num_tasks=3))
    method.P.data = torch.cat(
        [oracle.drawn(f"blocks.{layer}.prompt.prompt", (1, 4, 48), 0.5) for layer in range(3)]
    )
    method.head.bias.data = oracle.drawn("head.bias", (32,), 0.02)
    method.statistics_batch = 10 if tag == "pub" else IMAGES
    return method


@pytest.fixture
def given_draws(monkeypatch):
    """The page's normal draws and orders in the place of random ones."""
    state = {"task": 0, "epoch": 0}

    def sample(known: ClassGaussians, count: int, generator) -> Tensor:
        key = [5, state["task"], state["epoch"]]
        z = torch.stack(
            [
                torch.tensor(np.random.default_rng([*key, k]).standard_normal((count, 48)))
                for k in range(len(known.means))
            ]
        ).float()
        return known.means[:, None] + z @ unpack(known.factors, 48).mT

    def permutation(count: int, **options) -> Tensor:
        order = np.random.default_rng([6, state["task"], state["epoch"]]).permutation(count)
        state["epoch"] += 1
        return torch.tensor(order)

    monkeypatch.setattr(ClassGaussians, "sample", sample)
    monkeypatch.setattr(torch, "randperm", permutation)
    monkeypatch.setattr(alignment, "BATCH", 40)
    return state


@pytest.mark.parametrize("tag", ["pub", "fixed"])
def test_clip_nsp2_learns_and_predicts_as_the_published_code(tag, given_draws):
    numbers = oracle.numbers("methods/clip_nsp2.npz")
    method, probe = built(tag, numbers), oracle.probe(1)
    test = oracle.images(9, 10)

    def close(key: str, found: Tensor, tolerance: float = EXACT) -> bool:
        return oracle.close(found, numbers[f"{tag}:{key}"], tolerance)

    for index in range(3):
        task, t = (
            Place(index, (2 * index, 2 * index + 1), 2 * index, (str(2 * index), str(2 * index + 1))),
            f"t{index}",
        )
        method.grow(task)
        method.begin_task(task, None)
        optimizer, rate, losses = method.make_optimizer(task), method.config.learning_rate, []
        images, labels = oracle.images(index, IMAGES), torch.arange(IMAGES) % CLASSES + task.first_label
        for step in range(STEPS):
            for group in optimizer.param_groups:
                group["lr"] = rate * float(numbers[f"{tag}:{t}_lr_factor"][step // 3])
            batch = slice(8 * (step % 3), 8 * (step % 3) + 8)
            optimizer.zero_grad()
            loss = method.loss(Batch(images[batch], labels[batch]), task)
            loss.backward()
            losses.append(loss.item())
            if step == 0:
                assert close(f"{t}_grad_P", method.P.grad) and close(f"{t}_grad_s", method.logit_scale.grad)
            method.after_backward(task)
            optimizer.step()
            if step == 0:
                assert close(f"{t}_step1_P", method.P) and close(f"{t}_step1_s", method.logit_scale)
        assert losses == pytest.approx(numbers[f"{tag}:{t}_losses"].tolist(), rel=EXACT)
        assert close(f"{t}_P_end", method.P) and close(f"{t}_s_end", method.logit_scale)
        with torch.no_grad():
            assert close(f"{t}_test_feature", method.backbone.features(test, method.prompts))
            assert close(f"{t}_test_logits_unrefined", method.predict(Batch(test)))
        given_draws.update(task=index, epoch=0)
        method.end_task(task, Plain(data_seed=0))
        own = slice(task.first_label, task.first_label + CLASSES)
        factors = unpack(method.gaussians.factors[own], 48).double()
        assert close(f"{t}_mean", method.gaussians.means[own]) and close(
            f"{t}_cov", factors @ factors.mT @ probe
        )
        drawn = 32 * CLASSES * (index + 1)
        sizes = [min(40, drawn - start) for start in range(0, drawn, 40)]
        refined = numbers[f"{tag}:{t}_refine_losses"].reshape(3, len(sizes)) @ np.array(sizes) / drawn
        assert method.diagnostics()["refinement_losses"] == pytest.approx(
            [refined[0], refined[-1]], rel=EXACT
        )
        assert close(f"{t}_head_weight", method.head.weight) and close(f"{t}_head_bias", method.head.bias)
        with torch.no_grad():
            assert close(f"{t}_test_logits", method.predict(Batch(test)))
        for layer in range(3) if index < 2 else ():
            key = f"{t}_l{layer}"
            assert close(f"{key}_C1", method.C1[layer] @ probe) and close(f"{key}_C2", method.C2[layer])
            assert close(f"{key}_B1", method.B1[layer] @ probe) and close(f"{key}_B2", method.B2[layer])
            ranks = [int(numbers[f"{tag}:{key}_{R}"]) for R in ("R1", "R2")]
            assert [method.R1[layer], method.R2[layer]] == ranks
