"""The invariants of VPT-NSP2, worked out independently of its code."""

import numpy as np
import pytest
import torch
import toys
from cl_bench.methods.vpt_nsp2 import fused_projection, ln_loss
from timm.models.vision_transformer import Block

from cl_bench.nn.heads import TaskHeads
from cl_bench.nn.projection import ProjectedAdam, null_projector, nullity
from cl_bench.nn.prompts import DeepPrompts, attention
from cl_bench.nn.statistics import AttentionMoments

TASKS = [[2, 0], [1, 3, 4], [5, 6]]


def omegas(block, x, P):
    """Omega1 (H N B, D) and Omega2 (H N B, M) of one block by their definition, with explicit attention maps."""
    attn = block.attn
    B, N, D = x.shape
    H, d = attn.num_heads, D // attn.num_heads
    w_q, w_k, _ = attn.qkv.weight.chunk(3)
    b_q, b_k, _ = attn.qkv.bias.chunk(3)
    tokens, prompts = block.norm1(x), block.norm1(P)
    first, second = [], []
    for h in range(H):
        rows = slice(h * d, (h + 1) * d)
        q = tokens @ w_q[rows].T + b_q[rows]
        k = torch.cat([tokens, prompts.expand(B, -1, -1)], 1) @ w_k[rows].T + b_k[rows]
        first.append((q @ w_k[rows]).reshape(-1, D))
        second.append((q @ k.transpose(1, 2) * d**-0.5).softmax(-1)[..., N:].reshape(-1, len(P)))
    return torch.cat(first), torch.cat(second)


def moments_of(trunk, prompts, images, batch):
    moments = AttentionMoments(prompts, trunk.vit)
    with torch.no_grad():
        for part in images.split(batch):
            trunk.features(part, moments.attend)
    return moments


def test_accumulated_covariances_equal_those_of_explicit_attention_maps():
    trunk = toys.backbone()
    prompts = DeepPrompts(2, 4, 32, torch.Generator().manual_seed(1))
    images = torch.randn(6, 3, 16, 16)
    inputs = []

    def watched(index, block, x):
        inputs.append(x)
        return prompts.attend(index, block, x)

    with torch.no_grad():
        trunk.features(images, watched)
        moments = moments_of(trunk, prompts, images, 6)
        for layer, (C1, C2) in enumerate(zip(*moments.covariances(), strict=True)):
            first, second = (o.double() for o in omegas(trunk.vit.blocks[layer], inputs[layer], prompts.P[layer]))
            assert moments.rows == len(first) == 6 * 2 * 5
            assert torch.allclose(C1, first.T @ first, rtol=1e-4, atol=1e-4 * C1.abs().max().item())
            assert torch.allclose(C2, second.T @ second, rtol=1e-4)


def test_statistics_do_not_depend_on_how_images_are_batched_and_leave_features_alone():
    trunk = toys.backbone()
    prompts = DeepPrompts(2, 4, 32, torch.Generator().manual_seed(1))
    images = torch.randn(11, 3, 16, 16)
    whole, parts = moments_of(trunk, prompts, images, 11), moments_of(trunk, prompts, images, 3)
    assert whole.rows == parts.rows
    for a, b in zip(whole.covariances(), parts.covariances(), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-5 * a.abs().max().item())
    with torch.no_grad():
        assert torch.allclose(trunk.features(images, prompts.attend), trunk.features(images, AttentionMoments(prompts, trunk.vit).attend), atol=1e-5)


def test_covariances_are_positive_and_add_up_over_tasks():
    stream = toys.stream(TASKS)
    two, one = toys.method("vpt-nsp2", 3), toys.method("vpt-nsp2", 3)
    toys.learn(two, stream, upto=1)
    toys.learn(one, stream, upto=1)
    after_one = two.C1.clone()
    toys.learn(two, stream, upto=2, start=1)
    moments = AttentionMoments(two.prompts, two.backbone.vit)
    with torch.no_grad():
        for images, _ in stream.task(1).plain(7):
            two.backbone.features(images, moments.attend)
    assert torch.allclose(two.C1, after_one + moments.covariances()[0] / moments.rows, rtol=1e-4, atol=1e-5 * two.C1.abs().max().item())
    assert torch.linalg.eigvalsh(two.C1).min() > -1e-8 and torch.linalg.eigvalsh(two.C2).min() > -1e-8


@pytest.fixture
def exact_case():
    """One wide block, one old image, 32 prompts: both null spaces exist."""
    torch.manual_seed(0)
    block = Block(192, 3, qkv_bias=True).double().requires_grad_(False).eval()
    with torch.no_grad():
        block.norm1.weight.add_(0.5 * torch.randn(192))
        block.attn.qkv.weight.mul_(4.0)
        block.attn.qkv.bias.normal_(0, 0.3)
    return block, torch.randn(1, 5, 192).double(), torch.rand(32, 192).double() * 2 - 1


def block_output(block, x, prompts):
    x = x + attention(block.attn, block.norm1(x), prompts)
    return x + block.mlp(block.norm2(x))


def error_after_projected_steps(case, exact: bool) -> float:
    """Change of the old image's output after 20 random projected steps, prompts normalised with their old mean and deviation."""
    block, x, P = case
    alpha, beta = block.norm1.weight, block.norm1.bias
    mean, sigma = P.mean(1, keepdim=True), (P.var(1, keepdim=True, correction=0) + block.norm1.eps).sqrt()
    first, second = omegas(block, x, P)
    C1, C2 = first.T @ first, second.T @ second
    if exact:
        C1, C2 = alpha[:, None] * C1 * alpha, C2 / (sigma * sigma.T)
    B1, _ = null_projector(C1, 192 - 15)
    B2, _ = null_projector(C2, 32 - 15)
    update = sum(B2 @ torch.randn_like(P) @ B1 for _ in range(20)) * 0.1
    before, after = (block_output(block, x, (prompts - mean) / sigma * alpha + beta) for prompts in (P, P + update))
    assert update.abs().max() > 0.1
    return (before - after).abs().max().item()


def test_the_exact_conditions_keep_an_old_images_output_and_the_published_ones_do_not(exact_case):
    assert error_after_projected_steps(exact_case, exact=True) < 1e-10
    assert error_after_projected_steps(exact_case, exact=False) > 1e-3


def test_affine_exact_scales_the_covariances_by_alpha_and_by_the_prompts_deviation():
    stream = toys.stream(TASKS)
    plain, exact = toys.method("vpt-nsp2", 3), toys.method("vpt-nsp2", 3, affine="exact")
    for method in (plain, exact):
        toys.learn(method, stream, upto=1)
    alpha = torch.stack([block.norm1.weight for block in plain.backbone.vit.blocks]).double()
    sigma = plain.P.detach().double().var(2, correction=0).sqrt()
    assert torch.allclose(exact.C1, plain.C1 * alpha[:, :, None] * alpha[:, None, :])
    assert torch.allclose(exact.C2, plain.C2 / sigma[:, :, None] / sigma[:, None, :])


def test_cov_norm_sum_is_rows_times_the_number_of_rows():
    stream = toys.stream(TASKS)
    rows, total = toys.method("vpt-nsp2", 3), toys.method("vpt-nsp2", 3, cov_norm="sum")
    for method in (rows, total):
        toys.learn(method, stream, upto=1)
    assert torch.allclose(total.C1, rows.C1 * len(stream.task(0)) * 2 * 5)


def covariance(n: int, seed: int = 0) -> torch.Tensor:
    basis = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))[0]
    return basis @ torch.diag(torch.exp(-torch.arange(n, dtype=torch.float64) / 3)) @ basis.T


@pytest.mark.parametrize("eta", [0.0, 0.9, 1.0])
def test_the_fused_projection_has_two_eigenvalues(eta):
    B, R = fused_projection(covariance(20), eta, "official", "fro")
    expected = sorted([1 - eta] * (20 - R) + [eta / R**0.5 + 1 - eta] * R)
    assert torch.allclose(B, B.T)
    assert np.allclose(torch.linalg.eigvalsh(B).numpy(), expected)
    if eta == 1:
        assert torch.linalg.norm(B).item() == pytest.approx(1.0)


def test_the_controls_shrink_as_much_as_a_null_direction():
    C, generator = covariance(20), torch.Generator().manual_seed(3)
    null, R = fused_projection(C, 0.9, "official", "fro")
    iso, _ = fused_projection(C, 0.9, "official", "fro", "iso")
    random, _ = fused_projection(C, 0.9, "official", "fro", "random", generator)
    assert torch.allclose(iso, torch.eye(20, dtype=torch.float64) * (0.9 / R**0.5 + 0.1))
    assert torch.allclose(torch.linalg.eigvalsh(random), torch.linalg.eigvalsh(null))
    assert not torch.allclose(random, null, atol=1e-2)


@pytest.mark.parametrize(
    ("spectrum", "official", "paper"),
    [
        ((10, 1, 0.5, 0.1), 3, 2),
        ((10, 8, 0.1, 0.05), 2, 1),
        (1 / np.arange(1, 769), 750, 766),
        (np.exp(-np.arange(1, 769) / 40), 739, 766),
    ],
)
def test_nullities_worked_out_by_hand(spectrum, official, paper):
    assert nullity(np.array(spectrum), "official") == official
    assert nullity(np.array(spectrum), "paper") == paper


def test_two_singular_values_have_no_corner():
    with pytest.raises(ValueError, match="at least 3"):
        nullity(np.array([2.0, 1.0]), "paper")


def test_adams_moments_see_the_unprojected_gradient_and_only_the_update_is_projected():
    B1, B2 = covariance(6).float(), covariance(3, 1).float()
    P = torch.nn.Parameter(torch.randn(3, 6))
    twin = torch.nn.Parameter(P.detach().clone())
    optimizer = ProjectedAdam([P], P, lambda U: B2 @ U @ B1, lr=0.1, weight_decay=0.01)
    m, v, expected = torch.zeros(3, 6), torch.zeros(3, 6), twin.detach().clone()
    for step in range(1, 4):
        gradient = torch.randn(3, 6, generator=torch.Generator().manual_seed(step))
        P.grad = gradient.clone()
        optimizer.step()
        g = gradient + 0.01 * expected
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        U = -0.1 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
        expected = expected + B2 @ U @ B1
        assert torch.allclose(P.detach(), expected, atol=1e-6)
    projected_gradient = torch.nn.Parameter(twin.detach().clone())
    wrong = torch.optim.Adam([projected_gradient], lr=0.1, weight_decay=0.01)
    for step in range(1, 4):
        projected_gradient.grad = B2 @ torch.randn(3, 6, generator=torch.Generator().manual_seed(step)) @ B1
        wrong.step()
    assert not torch.allclose(projected_gradient, P, atol=1e-2)


def prompts_after(name, upto, **options):
    stream = toys.stream(TASKS)
    method = toys.method(name, 3, **options)
    toys.learn(method, stream, upto=upto)
    return method


def test_all_toggles_off_is_vpt_seq_bit_for_bit():
    off, seq = prompts_after("vpt-nsp2", 3, b1=False, b2=False, ln=False), prompts_after("vpt-seq", 3)
    assert all(torch.equal(value, off.state()[key]) for key, value in seq.state().items())


VARIANTS = [{}, {"b1": False}, {"b2": False}, {"ln": False}, {"subspace": "iso"}, {"subspace": "random"}, {"affine": "exact"}, {"nsp_norm": "none"}]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_the_first_task_is_that_of_vpt_seq_and_the_second_is_not(options):
    first, seq = prompts_after("vpt-nsp2", 1, **options), prompts_after("vpt-seq", 1)
    assert torch.equal(first.P, seq.P) and torch.equal(first.head.heads[0].weight, seq.head.heads[0].weight)
    assert not torch.equal(prompts_after("vpt-nsp2", 2, **options).P, prompts_after("vpt-seq", 2).P)


@pytest.mark.parametrize("toggle", ["b1", "b2", "ln"])
def test_each_toggle_changes_what_is_learned(toggle):
    assert not torch.equal(prompts_after("vpt-nsp2", 2, **{toggle: False}).P, prompts_after("vpt-nsp2", 2).P)


def test_with_eta_0_the_projection_is_the_identity():
    free = prompts_after("vpt-nsp2", 3, eta=0.0, ln=False)
    seq = prompts_after("vpt-seq", 3)
    assert torch.allclose(free.P, seq.P, atol=1e-5)


def test_the_true_projector_moves_prompts_in_the_null_space_only():
    method = prompts_after("vpt-nsp2", 1, eta=1.0, nsp_norm="none", ln=False)
    before, B1, B2 = method.P.detach().clone(), method.B1.clone(), method.B2.clone()
    toys.learn(method, toys.stream(TASKS), upto=2, start=1)
    delta = (method.P.detach() - before).double()
    assert delta.abs().max() > 1e-3
    assert torch.allclose(B2 @ delta @ B1, delta, atol=1e-5)


def test_the_distribution_loss_starts_at_zero_and_ignores_the_order_of_entries():
    P = torch.randn(2, 4, 32, generator=torch.Generator().manual_seed(0))
    moved = P * 1.5 + 0.25
    assert ln_loss(P, P, "mean") == 0
    permuted = moved[:, :, torch.randperm(32)]
    assert ln_loss(permuted, P, "mean").item() == pytest.approx(ln_loss(moved, P, "mean").item(), rel=1e-5)
    by_hand = sum(
        abs((moved[l, m].mean() - P[l, m].mean()).item()) + abs((moved[l, m].numpy().std() - P[l, m].numpy().std()).item())
        for l in range(2)
        for m in range(4)
    )
    assert ln_loss(moved, P, "l1").item() == pytest.approx(by_hand, rel=1e-5)
    assert ln_loss(moved, P, "mean").item() == pytest.approx(by_hand / 4, rel=1e-5)


def test_backbones_and_prompt_numbers_without_the_needed_null_spaces_are_refused():
    from cl_bench.errors import InputError

    with pytest.raises(InputError, match="at least 3 prompts"):
        toys.method("vpt-nsp2", 2, prompts=2)
    toys.method("vpt-nsp2", 2, prompts=2, b2=False)
    with pytest.raises(InputError, match="normalises its keys"):
        toys.method("vpt-nsp2", 2, toys.backbone(qk_norm=True))


def test_heads_start_as_published():
    heads = TaskHeads(32)
    generator = torch.Generator().manual_seed(0)
    for classes in (3, 3, 3):
        heads.grow(classes, generator, warm=True, device=torch.device("cpu"))
        if len(heads.heads) == 1:
            assert heads.heads[0].bias.abs().max() == 0 and heads.heads[0].weight.std() < 0.03
            with torch.no_grad():
                heads.heads[0].bias += 1.0  # stands for training
    assert torch.equal(heads.heads[1].weight, heads.heads[0].weight) and torch.equal(heads.heads[1].bias, heads.heads[0].bias)
    assert not torch.equal(heads.heads[2].weight, heads.heads[0].weight)
    assert heads.heads[2].weight.abs().max() <= 32**-0.5
    assert [p.requires_grad for head in heads.heads for p in head.parameters()] == [False] * 4 + [True] * 2
