"""L2P-NSP²: what its projections keep, worked out independently of their code."""

import pytest
import torch
import toys
from attention_maps import block_output, omegas
from lessons import TASKS, after, alike
from timm.models.vision_transformer import Block
from torch.nn import functional as F

from cl_bench.errors import InputError
from cl_bench.nn.pool import Chosen
from cl_bench.nn.projection import null_projector
from cl_bench.nn.statistics import AttentionMoments


def test_with_one_entry_it_is_vpt_nsp2_in_the_same_blocks():
    pool, vpt = (
        toys.method("l2p-nsp2", 3, pool_size=1, top_k=1, prompt_length=4),
        toys.method("vpt-nsp2", 3, layers=2),
    )
    vpt.P.data = pool.P.data.clone()
    stream = toys.stream(TASKS)
    for method in (pool, vpt):
        method.grow(stream.task(0))
        method.end_task(stream.task(0), toys.Trainer(data_seed=3))
    for name in ("C1", "C2", "B1", "B2"):
        assert torch.allclose(
            getattr(pool, name),
            getattr(vpt, name),
            rtol=1e-4,
            atol=1e-6 * getattr(vpt, name).abs().max().item(),
        )
    U = torch.randn_like(pool.P)
    by_pool, by_vpt = (method.projections(stream.task(1))[0][1](U) for method in (pool, vpt))
    assert torch.allclose(by_pool, by_vpt, atol=1e-4)


@pytest.mark.parametrize(
    "options", [{}, {"b2": False, "ln": False}, {"subspace": "iso"}, {"key_proj": False}], ids=str
)
def test_the_first_task_is_that_of_l2p_and_the_second_is_not(options):
    assert alike(after(1, "l2p-nsp2", **options), after(1, "l2p"), ["P", "K"])
    assert not torch.equal(after(2, "l2p-nsp2", **options).P, after(2, "l2p").P)


def test_all_projections_off_is_l2p_bit_for_bit():
    off = after(3, "l2p-nsp2", b1=False, b2=False, ln=False, key_proj=False)
    assert alike(off, after(3, "l2p"), ["P", "K"])
    eta = after(3, "l2p-nsp2", eta1=0.0, b2=False, ln=False, key_proj=False)
    assert torch.allclose(eta.P, off.P, atol=1e-5)


def test_b1_alone_is_the_full_method_with_nothing_else_on():
    """B2 = I is eta2 = 0."""
    b1, full = after(3, "l2p-nsp2", b2=False, ln=False), after(3, "l2p-nsp2", eta2=0.0, ln_weight=0.0)
    assert torch.allclose(b1.P, full.P, atol=1e-5) and torch.allclose(b1.K, full.K, atol=1e-5)


def test_rows_never_chosen_have_no_part_in_c2_and_b2_only_scales_them():
    method = toys.method("l2p-nsp2", 3, pool_size=6, top_k=2, nsp_norm="none", eta2=1.0)
    stream = toys.stream(TASKS)
    toys.learn(method, stream, upto=1)
    chosen = torch.zeros(6, dtype=torch.bool)
    for images in (batch.images for batch in stream.task(0).plain(9)):
        chosen[
            method.choose(
                F.normalize(method.backbone.features(images), dim=1) @ F.normalize(method.K, dim=1).T, False
            ).ids.unique()
        ] = True
    never = (~chosen).repeat_interleave(4)
    assert never.any() and not never.all()
    assert (
        (method.C2[:, never] == 0).all()
        and (method.C2[:, :, never] == 0).all()
        and (method.C2[:, ~never][:, :, ~never] != 0).any()
    )
    identity = torch.eye(24, dtype=torch.float64)[never]
    assert torch.allclose(method.B2[0][never], identity, atol=1e-8) and torch.allclose(
        method.B2[1][never], identity, atol=1e-8
    )


def test_the_scattered_moments_have_the_trace_of_the_unscattered_ones():
    method, P = toys.method("l2p-nsp2", 3), torch.rand(2, 16, 32) * 2 - 1
    ids = torch.tensor([[2, 0], [1, 3], [0, 1]])
    images = torch.randn(3, 3, 16, 16)
    moments = AttentionMoments(P, method.backbone.vit)
    method.backbone.features(images, moments.observing(Chosen(P, ids, 4)))
    total = torch.zeros(2, dtype=torch.float64)
    scattered = torch.zeros(2, 16, 16, dtype=torch.float64)
    for image, chosen in zip(images, ids, strict=True):
        rows = torch.cat([torch.arange(4 * i, 4 * i + 4) for i in chosen])
        alone = AttentionMoments(P[:, rows], method.backbone.vit)
        method.backbone.features(image[None], alone.observing(Chosen(P[:, rows], torch.tensor([[0, 1]]), 2)))
        total += alone.weights.diagonal(dim1=1, dim2=2).sum(1)
        scattered[:, rows[:, None], rows] += alone.weights
    assert torch.allclose(moments.weights.diagonal(dim1=1, dim2=2).sum(1), total, rtol=1e-5)
    assert torch.allclose(moments.weights, scattered, atol=1e-5)


def test_layer_0_covariance_does_not_depend_on_training():
    stream, trained, fresh = toys.stream(TASKS), after(1, "l2p-nsp2"), toys.method("l2p-nsp2", 3)
    fresh.grow(stream.task(0))
    fresh.end_task(stream.task(0), toys.Trainer(data_seed=3))
    assert torch.allclose(trained.C1[0], fresh.C1[0], rtol=1e-5) and not torch.allclose(
        trained.C1[1], fresh.C1[1], rtol=1e-2
    )


def test_exact_projections_keep_the_output_for_every_images_own_choice():
    """B1 and B2 of the scattered attention keep the outputs of two old images with different choices."""
    torch.manual_seed(0)
    block = Block(192, 3, qkv_bias=True).double().requires_grad_(False).eval()
    with torch.no_grad():
        block.norm1.weight.add_(0.5 * torch.randn(192))
        block.attn.qkv.weight.mul_(4.0)
    pool, choices = torch.rand(60, 192).double() * 2 - 1, (torch.arange(0, 40), torch.arange(15, 55))
    images, alpha = torch.randn(2, 1, 3, 192).double(), block.norm1.weight
    mean, sigma = (
        pool.mean(1, keepdim=True),
        (pool.var(1, keepdim=True, correction=0) + block.norm1.eps).sqrt(),
    )
    C1, C2 = torch.zeros(192, 192).double(), torch.zeros(60, 60).double()
    for x, rows in zip(images, choices, strict=True):
        first, second = omegas(block, x, pool[rows])
        C1 += alpha[:, None] * (first.T @ first) * alpha
        C2[rows[:, None], rows] += second.T @ second / (sigma[rows] * sigma[rows].T)
    B1, B2 = null_projector(C1, 192 - 18)[0], null_projector(C2, 60 - 18)[0]
    moved = pool + B2 @ torch.randn_like(pool) @ B1

    def outputs(prompts):
        normalized = (prompts - mean) / sigma * alpha + block.norm1.bias
        return [block_output(block, x, normalized[rows]) for x, rows in zip(images, choices, strict=True)]

    assert (moved - pool).abs().max() > 0.1
    for before, later in zip(outputs(pool), outputs(moved), strict=True):
        assert (before - later).abs().max() < 1e-9


def test_exact_key_projection_keeps_products_and_with_key_exact_cosines():
    for exact in (False, True):
        method = after(1, "l2p-nsp2", eta_q=1.0, nsp_norm="none", key_exact=exact, pull=5.0)
        Pi = null_projector(method.Cq[0], "official")[0].float()
        protected = torch.linalg.eigh(torch.eye(32) - Pi)[1][:, -(32 - method.Rq[0]) :].T
        K, before = method.K.detach().clone(), F.normalize(method.K.detach(), dim=1) @ protected.T
        toys.learn(method, toys.stream(TASKS), upto=2, start=1)
        assert (method.K.detach() - K).abs().max() > 1e-3 and (
            (method.K.detach() - K) @ protected.T
        ).abs().max() < 1e-5
        change = (F.normalize(method.K.detach(), dim=1) @ protected.T - before).abs().max()
        assert change < 1e-5 if exact else change > 1e-4
        assert method.diagnostics()["key_update_inside_protected"] < 1e-3


def test_b2_of_each_prompt_alone_mixes_no_two_prompts():
    method = after(1, "l2p-nsp2", b2_scope="per_prompt")
    blocks = torch.block_diag(*[torch.ones(4, 4)] * 4).bool()
    assert (method.B2[:, ~blocks] == 0).all() and (method.B2[:, blocks] != 0).any()
    assert (after(1, "l2p-nsp2").B2[:, ~blocks] != 0).any()


def test_frozen_after_the_first_task_only_the_head_learns():
    first, frozen = (
        after(1, "l2p-nsp2", freeze_after_task1=True),
        after(3, "l2p-nsp2", freeze_after_task1=True),
    )
    assert alike(first, frozen, ["P", "K"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"carry": "accumulate"}, "which no projection of L2P-NSP² protects; give carry=drop"),
        ({"b2_scope": "per_prompt", "prompt_length": 2}, "at least 3 prompts"),
    ],
)
def test_pools_without_a_null_space_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        toys.method("l2p-nsp2", 3, **options)


@pytest.mark.parametrize("name", ["l2p-pgp", "dualprompt-pgp"])
def test_checkpoints_hold_no_copy_of_what_is_trained(name):
    """Prompts as they were before a task are for the diagnostics alone, and taken anew in every task."""
    state = toys.method(name, 4).state()
    trained = {"l2p-pgp": {"P", "K"}, "dualprompt-pgp": {"G", "E", "k"}}[name]
    assert set(state) == trained | ({"prompt_space.M", "key_space.M"} if name == "l2p-pgp" else {"space.M"})
