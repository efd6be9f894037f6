"""L2P-PGP and L2P-NSP2: what their projections keep, worked out independently of their code."""

import numpy as np
import pytest
import torch
import toys
from attention_maps import block_output, omegas
from timm.models.vision_transformer import Block
from torch.nn import functional as F

from cl_bench.errors import InputError, RunFailed
from cl_bench.nn.pool import Chosen
from cl_bench.nn.projection import null_projector
from cl_bench.nn.statistics import AttentionMoments
from cl_bench.nn.subspaces import Subspaces, principal_scores

TASKS = [[2, 0], [1, 3, 4], [5, 6]]


def after(upto, name, **options):
    method = toys.method(name, 3, **options)
    toys.learn(method, toys.stream(TASKS), upto=upto)
    return method


def equal(one, two, names):
    return all(torch.equal(getattr(one, name), getattr(two, name)) for name in names)


# --- PGP


def test_bases_are_orthonormal_nested_and_leave_a_direction_free():
    one, two = after(1, "l2p-pgp", energy=0.9), after(2, "l2p-pgp", energy=0.9)
    for name in ("prompt_space", "key_space"):
        for M, later, rank, more in zip(
            getattr(one, name).M,
            getattr(two, name).M,
            getattr(one, name).ranks(),
            getattr(two, name).ranks(),
            strict=True,
        ):
            M, later = M[:, :rank], later[:, :more]
            assert torch.allclose(M.T @ M, torch.eye(rank, dtype=M.dtype), atol=1e-6) and rank <= more <= 31
            assert torch.allclose(later @ (later.T @ M), M, atol=1e-6)


def test_key_bases_hold_the_queries_and_prompt_bases_the_tokens_and_the_chosen_prompts():
    method = after(1, "l2p-pgp", energy=1.0, key_energy=0.999, top_k=1, prompt_length=1)
    batches = toys.stream(TASKS).task(0).plain(9)
    queries = torch.cat(
        [F.normalize(method.backbone.features(batch.images), dim=1) for batch in batches]
    ).double()
    M = method.key_space.M[0][:, : method.key_space.ranks()[0]]
    assert (queries - queries @ M @ M.T).norm() ** 2 < 0.0011 * queries.norm() ** 2
    alone = after(1, "l2p-pgp", energy=0.5, pgp_combine="x_only")
    assert not torch.allclose(alone.prompt_space.M, after(1, "l2p-pgp", energy=0.5).prompt_space.M)


def test_stacked_rows_protect_both_and_added_ones_neither():
    """x v = 1 and p v = -1: in x + p the direction v is free, stacked it is not."""
    x, p, v = (
        torch.tensor([[1.0, 1, 0]]).double(),
        torch.tensor([[1.0, -1, 0]]).double(),
        torch.tensor([0, 1.0, 0]).double(),
    )

    def freedom(rows):
        space = Subspaces((1, 3, 3), torch.device("cpu"))
        space.grow((rows.T @ rows)[None], 1.0, "sigma2", "geq", True)
        space.refresh()
        return space.outside(v[None, None].float()).norm().item()

    assert freedom(x + p) == pytest.approx(1.0) and freedom(torch.cat([x, p])) < 1e-6


def test_projected_gradients_leave_old_tokens_alone_under_plain_steps_and_not_under_adam():
    plain, adam, update = (
        after(2, "l2p-pgp", energy=0.9, **options) for options in ({}, {}, {"pgp_stage": "update"})
    )
    assert (
        adam.diagnostics()["update_inside_protected"] > 1e-3
        and adam.diagnostics()["key_update_inside_protected"] > 1e-4
    )
    assert (
        update.diagnostics()["update_inside_protected"] < 1e-4
        and update.diagnostics()["key_update_inside_protected"] < 1e-4
    )
    task = toys.stream(TASKS).task(2)
    plain.grow(task)
    plain.begin_task(task, None)
    plain.loss(next(task.plain(20)), task).backward()
    plain.after_backward(task)
    for parameter, space in ((plain.P, plain.prompt_space), (plain.K, plain.key_space)):
        grad = parameter.grad if parameter is plain.P else parameter.grad[None]
        assert (grad.double() @ space.M).abs().max() < 1e-5 * grad.abs().max() + 1e-7


def test_key_exact_keeps_old_cosines_and_the_plain_projection_does_not():
    kept, plain = (
        after(1, "l2p-pgp", key_energy=0.99, pgp_stage="update", key_exact=exact, pull=5.0)
        for exact in (True, False)
    )
    queries = kept.key_space.M[0][:, : kept.key_space.ranks()[0]].T.float()
    for method, exact in ((kept, True), (plain, False)):
        before, K = F.normalize(method.K.detach(), dim=1) @ queries.T, method.K.detach().clone()
        toys.learn(method, toys.stream(TASKS), upto=2, start=1)
        assert not torch.equal(K, method.K) and ((method.K.detach() - K) @ queries.T).abs().max() < 1e-5
        change = (F.normalize(method.K.detach(), dim=1) @ queries.T - before).abs().max()
        assert change < 1e-5 if exact else change > 1e-4


@pytest.mark.parametrize("stage", ["grad", "update"])
def test_without_energy_it_is_l2p_bit_for_bit(stage):
    free, l2p = after(3, "l2p-pgp", energy=0.0, key_energy=0.0, pgp_stage=stage), after(3, "l2p")
    assert equal(free, l2p, ["P", "K"]) and torch.equal(free.head.heads[2].weight, l2p.head.heads[2].weight)


def test_unprojected_keys_move_as_the_option_says():
    off, on = after(2, "l2p-pgp", pgp_keys=False), after(2, "l2p-pgp")
    assert off.key_space.ranks() == [0] and on.key_space.ranks()[0] > 0 and not torch.equal(off.K, on.K)


def test_the_random_control_has_the_ranks_of_the_feature_space_and_other_directions():
    feature, random = after(1, "l2p-pgp", energy=0.9), after(1, "l2p-pgp", energy=0.9, pgp_space="random")
    assert (
        feature.prompt_space.ranks() == random.prompt_space.ranks()
        and feature.key_space.ranks() == random.key_space.ranks()
    )
    for method in (feature, random):
        method.prompt_space.refresh()
    active, M = random.prompt_space.active, feature.prompt_space.M.float()
    for layer, rank in enumerate(random.prompt_space.ranks()):
        R = active[layer, :, :rank]
        assert (
            torch.allclose(R.T @ R, torch.eye(rank), atol=1e-5)
            and (R.T @ M[layer, :, :rank]).norm() ** 2 < 0.9 * rank
        )


def test_principal_scores_are_those_of_centred_data():
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(12, 40)))
    centred = X - X.mean(0)
    U, S, _ = torch.linalg.svd(centred, full_matrices=False)
    scores = principal_scores(X, 3)
    assert torch.allclose(scores.abs(), (U * S)[:, :3].abs(), atol=1e-9)
    assert (scores.gather(0, scores.abs().argmax(0, keepdim=True)) > 0).all() and principal_scores(
        X.T, 30
    ).shape == (40, 12)


AS_IS = {"pgp_space": "sample_asis", "pgp_energy": "sigma4_asis", "pgp_rank_rule": "lt_asis"}


def test_the_published_statistics_take_as_many_images_as_features():
    """40 images, 32 features: the first 32 of a seeded choice, whose patch embeddings are the basis."""
    stream, method = toys.stream(TASKS, per_class=20), toys.method("l2p-pgp", 3, energy=0.9, **AS_IS)
    toys.learn(method, stream, upto=1)
    from cl_bench import seeds

    rows = seeds.permutation(40, 3, "pgp images", 0)[:32]
    images = stream.task(0).augmented(rows, 3).images
    Z = principal_scores(method.backbone.vit.patch_embed(images).flatten(1), 9)
    values, vectors = torch.linalg.eigh(Z @ Z.T)
    energies = values.flip(0) ** 2
    rank = int((energies.cumsum(0) < 0.9 * energies.sum()).sum())
    assert method.prompt_space.ranks() == [rank, rank]
    M, expected = method.prompt_space.M[0][:, :rank], vectors.flip(1)[:, :rank]
    assert torch.allclose(M @ M.T, expected @ expected.T, atol=1e-6)


def test_the_published_statistics_add_the_prompts_scores_from_the_second_task_on():
    ranks = []
    for combine in ("sum_asis", "x_only"):
        method = toys.method("l2p-pgp", 3, energy=0.9, pgp_combine=combine, **AS_IS)
        toys.learn(method, toys.stream(TASKS, per_class=20), upto=2)
        ranks.append(method.prompt_space.M.clone())
    assert not torch.allclose(*ranks)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**AS_IS, "images": 33}, "as many images as the backbone has features \\(32\\), got images=33"),
        ({"pgp_combine": "sum_asis"}, "pgp_combine=sum_asis and pgp_space=feature exclude each other"),
        ({**AS_IS, "pgp_combine": "stack"}, "exclude each other"),
        ({"key_exact": True}, "key_exact=on needs pgp_stage=update"),
    ],
)
def test_choices_that_exclude_each_other_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        toys.method("l2p-pgp", 3, **options)


def test_too_few_images_for_the_published_statistics_fail_the_run_with_a_reason():
    with pytest.raises(
        RunFailed, match="needs 32 images of every task, task 1 has 24; give pgp_space=feature"
    ):
        after(1, "l2p-pgp", **AS_IS)


def test_projection_works_in_the_original_form_too_on_image_tokens_alone():
    method = after(2, "l2p-pgp", layers=1, carry="accumulate", head="prompt", energy=0.9)
    assert method.prompt_space.ranks()[0] > 0
    X = []
    for images in (batch.images for batch in toys.stream(TASKS).task(0).plain(24)):
        vit = method.backbone.vit
        X.append(
            vit._pos_embed(vit.patch_embed(images)).flatten(0, 1)
        )  # tokens that enter the first block do not depend on prompts
    X = torch.cat(X).double()
    first = after(
        1, "l2p-pgp", layers=1, carry="accumulate", head="prompt", energy=0.9, pgp_combine="x_only"
    ).prompt_space
    values = torch.linalg.eigvalsh(X.T @ X).flip(0)
    assert first.ranks() == [int((values.cumsum(0) < 0.9 * values.sum()).sum()) + 1]


# --- NSP2


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
    assert equal(after(1, "l2p-nsp2", **options), after(1, "l2p"), ["P", "K"])
    assert not torch.equal(after(2, "l2p-nsp2", **options).P, after(2, "l2p").P)


def test_all_projections_off_is_l2p_bit_for_bit():
    off = after(3, "l2p-nsp2", b1=False, b2=False, ln=False, key_proj=False)
    assert equal(off, after(3, "l2p"), ["P", "K"])
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
    assert equal(first, frozen, ["P", "K"])


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
