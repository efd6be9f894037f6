"""The invariants of VPT-NSP2, worked out independently of its code."""

import pytest
import torch
import toys
from attention_maps import block_output, omegas
from timm.models.vision_transformer import Block

from cl_bench.nn.projection import ln_loss, null_projector
from cl_bench.nn.statistics import AttentionMoments

TASKS = [[2, 0], [1, 3, 4], [5, 6]]


def test_covariances_are_positive_and_add_up_over_tasks():
    stream = toys.stream(TASKS)
    two, one = toys.method("vpt-nsp2", 3), toys.method("vpt-nsp2", 3)
    toys.learn(two, stream, upto=1)
    toys.learn(one, stream, upto=1)
    after_one = two.C1.clone()
    toys.learn(two, stream, upto=2, start=1)
    moments = AttentionMoments(two.P, two.backbone.vit)
    with torch.no_grad():
        for images in (batch.images for batch in stream.task(1).plain(7)):
            two.backbone.features(images, moments.observing(two.prompts))
    assert torch.allclose(
        two.C1,
        after_one + moments.covariances()[0] / moments.rows,
        rtol=1e-4,
        atol=1e-5 * two.C1.abs().max().item(),
    )
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


def error_after_projected_steps(case, exact: bool) -> float:
    """Change of the old image's output after 20 random projected steps.

    The prompts are normalized with their old mean and deviation.
    """
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
    before, after = (
        block_output(block, x, (prompts - mean) / sigma * alpha + beta) for prompts in (P, P + update)
    )
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


def test_published_covariances_weigh_a_task_by_its_number_of_batches():
    stream = toys.stream(TASKS)  # 24 images in the first task
    rows, batches, whole = (
        toys.method("vpt-nsp2", 3, cov_norm=norm) for norm in ("rows", "batches", "batches")
    )
    batches.statistics_batch = 12
    for method in (rows, batches, whole):
        toys.learn(method, stream, upto=1)
    for name in ("C1", "C2"):
        assert torch.allclose(getattr(batches, name), 2 * getattr(rows, name), rtol=1e-5)
        assert torch.allclose(getattr(whole, name), getattr(rows, name), rtol=1e-5)
    assert batches.statistics_name != rows.statistics_name


def prompts_after(name, upto, **options):
    stream = toys.stream(TASKS)
    method = toys.method(name, 3, **options)
    toys.learn(method, stream, upto=upto)
    return method


def test_all_toggles_off_is_vpt_seq_bit_for_bit():
    off, seq = prompts_after("vpt-nsp2", 3, b1=False, b2=False, ln=False), prompts_after("vpt-seq", 3)
    assert all(torch.equal(value, off.state()[key]) for key, value in seq.state().items())


VARIANTS = [
    {},
    {"b1": False},
    {"b2": False},
    {"ln": False},
    {"subspace": "iso"},
    {"subspace": "random"},
    {"affine": "exact"},
    {"nsp_norm": "none"},
]


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
        abs((moved[l, m].mean() - P[l, m].mean()).item())
        + abs((moved[l, m].numpy().std() - P[l, m].numpy().std()).item())
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
    with pytest.raises(InputError, match="normalizes its keys"):
        toys.method("vpt-nsp2", 2, toys.backbone(qk_norm=True))
