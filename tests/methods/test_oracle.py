"""VPT-NSP2's parts have the published implementation's numbers (folder `shared/oracle`, where present)."""

from pathlib import Path

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from cl_bench.data.order import class_order
from cl_bench.nn import forward
from cl_bench.nn.projection import ProjectedAdam, fused_projection, nullity
from cl_bench.nn.prompts import DeepPrompts
from cl_bench.nn.statistics import AttentionMoments
from cl_bench.nn.subspaces import grown_basis

ORACLE = Path(__file__).resolve().parents[3] / "shared" / "oracle"
pytestmark = pytest.mark.skipif(not ORACLE.is_dir(), reason="the oracle folder is not here")


def value(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A parameter's deterministic value, as the oracle's page defines it."""
    g = np.random.default_rng([7, sum(name.encode()) * 131 + len(name)])
    if "prompt" in name:
        return torch.tensor(g.uniform(-1, 1, shape), dtype=torch.float32)
    a = g.standard_normal(shape)
    if name.endswith(("norm1.weight", "norm2.weight")) or name == "norm.weight":
        a = 1 + 0.1 * a
    elif name.endswith(".bias"):
        a = 0.02 * a
    else:
        a = 0.04 * a
    return torch.tensor(a, dtype=torch.float32)


@pytest.fixture(scope="module")
def case():
    numbers = np.load(ORACLE / "vpt_nsp2.npz")
    vit = VisionTransformer(depth=2, num_classes=0).eval().requires_grad_(False)
    vit.load_state_dict({name: value(name, tuple(tensor.shape)) for name, tensor in vit.state_dict().items()})
    prompts = DeepPrompts(2, 4, 768, torch.Generator())
    with torch.no_grad():
        for layer in range(2):
            prompts.P[layer] = value(f"blocks.{layer}.prompt.prompt", (1, 4, 768))[0]
    images = torch.tensor(np.random.default_rng(11).standard_normal((8, 3, 224, 224)), dtype=torch.float32)
    moments = AttentionMoments(prompts.P, vit)
    with torch.no_grad():
        forward.tokens(vit, images, moments.observing(prompts))
    tokens = forward.tokens(vit, images, prompts)
    weights = torch.tensor(np.random.default_rng(12).standard_normal(768), dtype=torch.float32)
    (tokens[:, 0] @ weights).sum().backward()
    return numbers, prompts, tokens.detach(), moments


def test_features_equal_the_published_ones(case):
    numbers, _, tokens, _ = case
    assert np.abs(tokens[:, 0].numpy() - numbers["cls"]).max() < 2e-4
    assert np.abs(tokens[:, 5].numpy() - numbers["patch_token_5"]).max() < 2e-4


@pytest.mark.parametrize("layer", [0, 1])
def test_prompt_gradients_equal_the_published_ones(case, layer):
    numbers, prompts, _, _ = case
    expected = numbers[f"prompt_grad_{layer}"]
    assert np.abs(prompts.P.grad[layer].numpy() - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("which", [1, 2])
def test_covariances_spectra_nullities_and_projections_equal_the_published_ones(case, layer, which):
    numbers, _, _, moments = case
    covariance = moments.covariances()[which - 1][layer] / moments.rows
    n = len(covariance)
    probe = np.random.default_rng([3, which, layer]).standard_normal((n, 3))

    def close(found: torch.Tensor, key: str, tolerance: float) -> bool:
        expected = numbers[key]
        return np.abs(found.numpy() - expected).max() <= tolerance * np.abs(expected).max()

    assert close(covariance.diagonal(), f"C{which}_{layer}_diag", 1e-4)
    assert close(covariance @ torch.tensor(probe), f"C{which}_{layer}_probe", 1e-4)
    assert close(torch.linalg.eigvalsh(covariance).flip(0), f"spectrum{which}_{layer}", 1e-4)
    projection, R = fused_projection(covariance, float(numbers["eta"]), "official", "fro")
    assert int(numbers[f"R{which}_{layer}"]) == R
    assert (
        np.abs((projection @ torch.tensor(probe)).numpy() - numbers[f"P{which}_{layer}_probe"]).max() < 1e-4
    )


def test_one_projected_adam_step_equals_the_published_one(case):
    numbers, prompts, _, moments = case
    eta = float(numbers["eta"])
    B1, B2 = (
        torch.stack([fused_projection(C, eta, "official", "fro")[0] for C in sums / moments.rows]).float()
        for sums in moments.covariances()
    )
    P = torch.nn.Parameter(prompts.P.detach().clone())
    P.grad = torch.stack([torch.tensor(numbers[f"prompt_grad_{layer}"]) for layer in range(2)])
    ProjectedAdam([P], [(P, lambda U: B2 @ U @ B1)], lr=0.01, weight_decay=5e-5).step()
    for layer in range(2):
        assert np.abs(P[layer].detach().numpy() - numbers[f"prompt_after_step_{layer}"]).max() < 1e-5


def test_every_spectrum_has_the_published_nullity():
    numbers = np.load(ORACLE / "nullity.npz")
    kinds = [key.removesuffix("_spectrum") for key in numbers if key.endswith("_spectrum")]
    assert len(kinds) == 40
    assert {kind: nullity(numbers[f"{kind}_spectrum"], "official") for kind in kinds} == {
        kind: int(numbers[f"{kind}_R"]) for kind in kinds
    }


def test_class_orders_are_the_published_ones():
    import json

    orders = json.loads((ORACLE / "class_orders.json").read_text(encoding="utf-8"))
    assert orders
    for key, expected in orders.items():
        classes, seed = map(int, key.split("_"))
        assert class_order(classes, seed) == expected


@pytest.mark.parametrize("spectrum", ["flat", "decaying", "steep"])
def test_the_public_codes_bases_grow_over_five_tasks_as_published(spectrum):
    numbers = np.load(ORACLE / "pgp_growth.npz")
    M = torch.zeros(48, 0, dtype=torch.float64)
    for index in range(5):
        Z = torch.tensor(numbers[f"{spectrum}_{index}_Z"])
        M = grown_basis(
            M, Z @ Z.T, float(numbers[f"{spectrum}_threshold"]), "sigma4_asis", "lt_asis", first=index == 0
        )
        assert M.shape[1] == int(numbers[f"{spectrum}_{index}_rank"])
        assert np.abs((M @ M.T).numpy() - numbers[f"{spectrum}_{index}_projector"]).max() < 1e-10
