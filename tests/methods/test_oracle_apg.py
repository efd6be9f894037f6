"""APG has the public code's numbers in three tasks, library and refinement included (`shared/oracle`)."""

from collections.abc import Iterator

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.apg import AsRun
from torch import Tensor, nn

from cl_bench.data.batch import Batch
from cl_bench.nn import gaussians
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer
from cl_bench.training.warmed import warmed_cosine

pytestmark = oracle.HERE
NUMBERS = oracle.numbers("methods/apg.npz") if oracle.FOLDER.is_dir() else {}
EXACT, COVARIANCE = 2e-5, 5e-5  # of the page
IMAGES, BATCH, PASSES, TASKS = 12, 6, 3, 3
TEST = Batch(torch.cat([oracle.images(10 + t, 9) for t in range(TASKS)]))
RATES = {
    "learning_rate": 0.002, "first_learning_rate": 0.004, "start_rate": 2e-4, "end_rate": 5e-4, "warm_up": 1,
    "refine_learning_rate": 0.002, "refine_start_rate": 1e-4, "refine_end_rate": 2e-4,
}  # fmt: skip
SIZES = {"batch": BATCH, "passes": PASSES, "refine_passes": 1, "refine_growth": 1, "dropout": 0.0}


class Fixed:
    """What mixing draws: never CutMix, lambda 0.7."""

    def random(self) -> float:
        return 1.0

    def beta(self, a: float, b: float) -> float:
        return 0.7


class Plain(Trainer):
    """A trainer whose images for statistics are the task's in order."""

    def plain(self, task, batch, chosen=None, shared=False):
        with torch.no_grad():
            yield from images_of(task.index).split(batch)


def images_of(index: int) -> Batch:
    return Batch(oracle.images(index, IMAGES), oracle.labels(index, IMAGES))


def built(**options) -> AsRun:
    """The method as published, in the page's sizes."""
    published = {key: value for key, value in AsRun.AS_PUBLISHED.items() if key in AsRun.Config.model_fields}
    off = {"drop_path": 0.0, "drop_last": False, "norm_factor": 0.02}
    config = AsRun.Config(**{**published, **off, **RATES, **SIZES, "lower": 2, **options})
    method = AsRun(config, oracle.backbone(), oracle.stream(TASKS + 1, TASKS))
    with torch.no_grad():
        for name, parameter in parts(method).items():
            kind = 0.02 if name.endswith("bias") else 0.1 if "norm" in name else 0.2
            drawn = oracle.drawn(name, tuple(parameter.shape), kind)
            parameter.copy_(1 + drawn if name.endswith("norm.weight") else drawn)
    return method


def parts(method: AsRun) -> dict[str, nn.Parameter]:
    """Trained tensors by the page's names, but for tokens and proxies."""
    g = method.generator
    maps = {"q": g.q, "k": g.k, "v": g.v, "proj": g.proj, "norm": g.norm}
    for name, mlp in (("mlp_in", g.mlp_in), ("mlp_out", g.mlp_out)):
        maps |= {f"{name}.fc1": mlp[0], f"{name}.fc2": mlp[3]}
    return {
        f"apg.{name}.{key}": getattr(own, key) for name, own in maps.items() for key in ("weight", "bias")
    }


def grow(method: AsRun, index: int) -> None:
    """Announce a task, with the page's tokens and proxies for it."""
    method.grow(oracle.task(index))
    rows = slice(30 * index, 30 * index + 30)
    with torch.no_grad():
        method.generator.tokens[index].copy_(oracle.drawn(f"apg.tokens.{index}", (3, 48), 0.2))
        method.head.weight[rows] = oracle.drawn(f"head.weight.{index}", (30, 48), 0.2)


def values(method: AsRun, grad: bool = False) -> dict[str, Tensor]:
    """All that is trained, or its gradients, by the page's names."""
    own = {name: (p.grad if grad else p).detach() for name, p in parts(method).items()}
    for index, tokens in enumerate(method.generator.tokens):
        if not grad or tokens.requires_grad:
            own[f"apg.tokens.{index}"] = (tokens.grad if grad else tokens).detach()
        rows = slice(30 * index, 30 * index + 30)
        for key, value in (("weight", method.head.weight), ("bias", method.head.bias)):
            own[f"head.{key}.{index}"] = (value.grad if grad else value).detach()[rows]
    return own


def close(key: str, found: Tensor, tolerance: float = EXACT) -> bool:
    """Large matrices are written as their product with a probe."""
    expected = NUMBERS[key]
    if found.numel() > 500 and found.shape != expected.shape:
        found = found.double() @ oracle.probe(2, found.shape[1], 3)
    return oracle.close(found, expected, tolerance)


def compare(prefix: str, found: dict[str, Tensor]) -> None:
    known = [name for name in found if f"{prefix}_{name}" in NUMBERS]
    assert len(known) >= 3
    for name in known:
        assert close(f"{prefix}_{name}", found[name]), (prefix, name)


def soft_triplet(A: Tensor, labels: Tensor) -> Tensor:
    """The published term without gradient: of Kullback-Leibler distances between rows of attention (n, K).

    With the farthest row d_p of the same class and the nearest d_n of another, it is the entropy of
    softmax(d_p, d_n).
    """
    p = A.softmax(dim=1)
    logs = A.log_softmax(dim=1)
    distance = (p * logs).sum(dim=1)[None] - logs @ p.T  # [i, j]: KL(p_j || p_i)
    same = labels[:, None] == labels[None]
    farthest = distance.masked_fill(~same, -np.inf).amax(dim=1)
    nearest = distance.masked_fill(same, np.inf).amin(dim=1)
    r = torch.stack([farthest, nearest], dim=1).softmax(dim=1)
    return -(r * r.log()).sum(dim=1).mean()


def check_network(method: AsRun, index: int) -> None:
    """Tokens, prompts, attention, features and scores before the task is learned."""
    t, images = f"t{index}", images_of(index).images[:BATCH]
    with torch.no_grad():
        x = method.tokens(images)
        p, A = method.generator(x[:, 0])
        f = method.features(x, p)
        assert close(f"{t}_h", x[:, 0]) and close(f"{t}_prompt", p) and close(f"{t}_feat", f)
        assert close(f"{t}_logits", method.head(f))
        assert close(f"{t}_logits_no_prompt", method.head(method.backbone.features(images)))
    expected = NUMBERS[f"{t}_raw_attn"][..., 1:]
    if index:  # the bias of the keys adds a constant to a row, of which only rounding decides
        A, expected = A - A.mean(dim=2, keepdim=True), expected - expected.mean(axis=2, keepdims=True)
    assert oracle.close(A, expected, EXACT)


def check_library(method: AsRun, key: str, index: int) -> None:
    library, ridge = method.library, method.config.ridge * torch.eye(48, dtype=torch.float64)
    for label in range(3 * index, 3 * index + 3):
        name = f"{key}_lib{label}"
        assert close(f"{name}_pbar", library.prompts[label]), name
        for part, kept in (("h", library.h), ("f", library.f)):
            assert close(f"{name}_{part}_mean", kept.means[label]), name
            if f"{name}_{part}_cov_probe" in NUMBERS:
                L = gaussians.unpack(kept.factors[label][None], 48)[0].double()
                found = (L @ L.T - ridge) @ oracle.probe(4, 48, 3)
                assert oracle.close(found, NUMBERS[f"{name}_{part}_cov_probe"], COVARIANCE), name


def drawn(key: str) -> list[Batch]:
    """The pairs that the public code drew, step by step."""
    pairs = np.stack([NUMBERS[f"{key}_h"], NUMBERS[f"{key}_f"]], axis=2)
    return [Batch(torch.tensor(a), torch.tensor(y)) for a, y in zip(pairs, NUMBERS[f"{key}_y"], strict=True)]


def steps(phase: Phase, batches: list[Batch], key: str) -> Iterator[tuple[int, float]]:
    """Every step's number and loss, before it is done; learning rates are compared on the way."""
    optimizer = phase.optimizer()
    [base] = {group["lr"] for group in optimizer.param_groups}
    each = len(batches) // phase.passes
    for number, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = base * phase.rate(number // each, group)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(NUMBERS[f"{key}_lr"][number], rel=1e-6)
        optimizer.zero_grad()
        loss = phase.loss(batch)
        loss.backward()
        yield number, loss.item()
        optimizer.step()


def learn(method: AsRun, index: int, key: str, phase: Phase, batches: list[Batch]) -> None:
    """The steps of one stage, the first in detail."""
    extra = [0.0] * len(batches)
    for number, loss in steps(phase, batches, key):
        if "main" in key:
            with torch.no_grad():
                images = 0.7 * batches[number].images + 0.3 * batches[number].images.flip(0)
                _, A = method.generator(method.tokens(images)[:, 0])
                labels = batches[number].labels.repeat_interleave(A.shape[1])
                extra[number] = soft_triplet(A.flatten(0, 1), labels).item()
        expected = float(NUMBERS[f"{key}_loss"][number]) - extra[number]
        assert loss == pytest.approx(expected, rel=EXACT), (key, number)
        if number == 0 and index < 2:
            compare(f"{key}_grad", values(method, grad=True))
        if number == 1 and index < 2:
            compare(f"{key}_step1", values(method))


def test_the_first_attention_losses_are_the_published_ones():
    method = built()
    grow(method, 0)
    batch = images_of(0).split(BATCH)[0]
    with torch.no_grad():
        images = 0.7 * batch.images + 0.3 * batch.images.flip(0)
        _, A = method.generator(method.tokens(images)[:, 0])
    labels = batch.labels.repeat_interleave(4)
    found = nn.functional.cross_entropy(A.flatten(0, 1), labels).item()
    assert found == pytest.approx(float(NUMBERS["t0_main_first_attn_ce"]), rel=EXACT)
    assert soft_triplet(A.flatten(0, 1), labels).item() == pytest.approx(
        float(NUMBERS["t0_main_first_soft_triplet"]), rel=EXACT
    )


def test_images_and_drawn_pairs_are_learned_and_described_as_by_the_public_code():
    method, trainer = built(), Plain(data_seed=0)
    for index in range(TASKS):
        t, task = f"t{index}", oracle.task(index)
        grow(method, index)
        method.begin_task(task, trainer)
        method.random = Fixed()
        assert [one.requires_grad for one in method.generator.tokens] == NUMBERS[
            f"{t}_token_trainable"
        ].tolist()
        check_network(method, index)
        if index:
            method.old = iter(drawn(f"{t}_main_lib"))
        [phase] = method.phases(task)
        learn(method, index, f"{t}_main", phase, images_of(index).split(BATCH) * PASSES)
        method.describe(task, trainer)
        if index < 2:
            compare(f"{t}_main_after", values(method))
            check_library(method, f"{t}_main", index)
        if index:
            pairs = drawn(f"{t}_fine_lib")
            learn(method, index, f"{t}_fine", method.refinement(task), pairs)
            compare(f"{t}_fine_after", values(method))
            method.describe(task, trainer)
            check_library(method, f"{t}_fine", index)
        key = "t0_test_probs_no_prompt" if index == 0 else f"{t}_test_probs"
        with torch.no_grad():
            assert close(key, method.predict(TEST).softmax(dim=1))
            x = method.tokens(TEST.images)
            prompted = method.head(method.features(x, method.generator(x[:, 0])[0]))
        assert close(f"{t}_test_probs", prompted.softmax(dim=1))


def test_the_default_takes_the_mean_prompts_of_each_class():
    published, right = built(), built(prompt_mean="true")
    for method in (published, right):
        grow(method, 0)
        method.describe(oracle.task(0), Plain(data_seed=0))
    order = torch.tensor(NUMBERS["library_permutation"])
    batch = images_of(0)
    with torch.no_grad():
        p, _ = right.generator(right.tokens(batch.images)[:, 0])
    for label in range(3):
        own = batch.labels == label
        assert torch.allclose(right.library.prompts[label], p[own].mean(0), atol=1e-6)
        assert torch.allclose(published.library.prompts[label], p[order][own].mean(0), atol=1e-6)


@pytest.mark.parametrize(
    ("key", "passes", "rates"),
    [("lr_main_100", 100, (1e-3, 1e-4, 5e-4)), ("lr_fine_25", 25, (1e-3, 1e-5, 1e-4)),
     ("lr_fine_65", 65, (1e-3, 1e-5, 1e-4))],
)  # fmt: skip
def test_the_learning_rate_rises_and_falls_a_pass_late_as_in_the_public_code(key, passes, rates):
    top, start, end = rates
    found = [
        top * warmed_cosine(max(0, done - 1), passes, start / top, end / top, 5) for done in range(passes)
    ]
    assert found == pytest.approx(NUMBERS[key].tolist(), rel=1e-6)
