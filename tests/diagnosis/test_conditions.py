"""Both conditions of NSP2, measured from moments, against attention written out; and when they hold."""

import pytest
import torch
import toys
from attention_maps import omegas

from cl_bench.diagnosis.conditions import BlockConditions, changed_statistics
from cl_bench.diagnosis.measure import Measuring
from cl_bench.nn import projection
from cl_bench.nn.forward import embedded
from cl_bench.nn.head_moments import HeadMoments, affinity_covariances
from cl_bench.nn.pool import Chosen
from cl_bench.nn.prompts import DeepPrompts

TASKS = [[2, 0], [1, 3, 4]]


@pytest.fixture(scope="module")
def observed():
    """The first block of the toy ViT, tokens of five images, prompts before and after, and their moments."""
    vit, generator = toys.vit(), torch.Generator().manual_seed(1)
    prompts = DeepPrompts(1, 4, 32, generator)
    images = torch.randn(5, 3, 16, 16, generator=generator)
    moments = HeadMoments(prompts.P, vit)
    with torch.no_grad():
        toys.Backbone(vit, toys.backbone().spec, "").features(images, moments.observing(prompts))
        tokens, old = embedded(vit, images), prompts.P[0].detach()
    return vit.blocks[0], tokens, old, old + 0.1 * torch.randn(4, 32, generator=generator), moments


def test_published_residuals_are_those_of_the_stacked_matrices(observed):
    block, tokens, old, new, moments = observed
    first, second = (omega.detach() for omega in omegas(block, tokens, old))
    found = BlockConditions(block, moments.queries[0], moments.weights[0]).residuals(old, new)
    delta = new - old
    expected = (
        (first @ delta.T).norm() / (first @ old.T).norm(),
        (second @ delta).norm() / (second @ old).norm(),
    )
    assert found["affinity_published"] == pytest.approx(expected[0].item(), rel=1e-4)
    assert found["aggregation_published"] == pytest.approx(expected[1].item(), rel=1e-4)
    draws = torch.randn(2000, 4, 32, generator=torch.Generator().manual_seed(2))
    draws *= delta.norm() / draws.flatten(1).norm(dim=1)[:, None, None]
    for name, images, at_old in (
        ("affinity_random", draws @ first.T, old @ first.T),
        ("aggregation_random", second @ draws, second @ old),
    ):
        energy = images.square().sum((1, 2)).mean() / at_old.square().sum()
        assert found[name] == pytest.approx(energy.sqrt().item(), rel=0.05)


def test_changes_are_those_of_keys_and_values_head_by_head(observed):
    block, tokens, old, new, moments = observed
    found = BlockConditions(block, moments.queries[0], moments.weights[0]).residuals(old, new)
    _, second = omegas(block, tokens, old)
    w_q, w_k, w_v = block.attn.qkv.weight.chunk(3)
    b_q, b_k, b_v = block.attn.qkv.bias.chunk(3)
    mean, sigma = old.mean(1, keepdim=True), (old.var(1, keepdim=True, correction=0) + block.norm1.eps).sqrt()
    held = (new - mean) / sigma * block.norm1.weight + block.norm1.bias
    for name, prompts in (("change", block.norm1(new)), ("exact", held)):
        whole, changed = [0.0, 0.0], [0.0, 0.0]
        for h in range(2):
            rows = slice(16 * h, 16 * h + 16)
            q = block.norm1(tokens) @ w_q[rows].T + b_q[rows]
            s = second[len(second) // 2 * h : len(second) // 2 * (h + 1)]
            for place, attended in (
                (0, lambda P, q=q, rows=rows: q @ (P @ w_k[rows].T + b_k[rows]).T),
                (1, lambda P, s=s, rows=rows: s @ (P @ w_v[rows].T + b_v[rows])),
            ):
                before, after = attended(block.norm1(old)), attended(prompts)
                whole[place] += before.square().sum().item()
                changed[place] += (after - before).square().sum().item()
        for place, condition in enumerate(("affinity", "aggregation")):
            expected = (changed[place] / whole[place]) ** 0.5
            assert found[f"{condition}_{name}"] == pytest.approx(expected, rel=1e-4)


def test_a_pools_moments_are_those_of_the_prompts_that_each_image_was_given(observed):
    block, tokens, *_ = observed
    vit, P = toys.vit(), torch.rand(1, 6, 32, generator=torch.Generator().manual_seed(3))
    images, ids = (
        torch.randn(2, 3, 16, 16),
        torch.tensor([[2, 0], [1, 2]]),
    )  # two of three entries of two rows
    moments, expected = HeadMoments(P, vit), torch.zeros(6, 6)
    backbone = toys.Backbone(vit, toys.backbone().spec, "")
    backbone.features(images, moments.observing(Chosen(P, ids, 3)))
    for image, chosen in zip(images, ids, strict=True):
        rows = torch.cat([torch.arange(2 * entry, 2 * entry + 2) for entry in chosen])
        _, second = omegas(vit.blocks[0], embedded(vit, image[None]), P[0][rows])
        expected[rows[:, None], rows] += second.T @ second
    assert torch.allclose(moments.weights[0].sum(0), expected.double(), atol=1e-5)
    first, _ = omegas(vit.blocks[0], embedded(vit, images), P[0])
    covariance = affinity_covariances(vit, moments.queries)[0]
    assert torch.allclose(
        covariance, (first.T @ first).double(), rtol=1e-4, atol=1e-4 * covariance.abs().max()
    )


def test_statistics_of_prompts_by_hand():
    old, new = torch.tensor([[1.0, -1, 1, -1]]), torch.tensor([[3.5, -0.5, 3.5, -0.5]])  # 0 and 1, 1.5 and 2
    found = changed_statistics(old, new)
    assert found["mean_change"] == pytest.approx(1.5) and found["deviation_change"] == pytest.approx(1.0)


def residuals(name: str, **options) -> dict[str, float]:
    """The largest of each in two blocks by the second of two tasks, of two images of the first.

    They are all that the first task has: with ten rows for each head and image at most 20 of 32 dimensions.
    """
    stream = toys.stream(TASKS, per_class=1)
    method = toys.method(name, 2, prompts=32, passes=10, **options)
    toys.learn(method, stream, upto=1)
    measuring = Measuring(method, stream)
    measuring.begin(1)
    toys.learn(method, stream, upto=2, start=1)
    return {name: max(values) for name, values in measuring.end().blocks.items()}


def test_with_an_exact_null_space_each_form_of_the_conditions_is_met_by_its_own_projection(monkeypatch):
    monkeypatch.setattr(projection, "nullity", lambda spectrum, rule: len(spectrum) - 20)
    true = {"eta": 1.0, "nsp_norm": "none", "ln": False}
    free, published, exact = (
        residuals(name, **options)
        for name, options in (("vpt-seq", {}), ("vpt-nsp2", true), ("vpt-nsp2", {**true, "affine": "exact"}))
    )
    for condition in ("affinity", "aggregation"):
        assert published[f"{condition}_published"] < 1e-4 < 4e-4 < published[f"{condition}_exact"]
        assert exact[f"{condition}_exact"] < 1e-4 < 1e-3 < exact[f"{condition}_published"]
        assert all(free[f"{condition}_{form}"] > 0.03 for form in ("published", "exact", "change"))
        # what is left is LayerNorm's: mean and deviation move
        assert 1e-3 < exact[f"{condition}_change"] < 0.2 * free[f"{condition}_change"]
    assert min(exact["mean_change"], exact["deviation_change"]) > 1e-3
