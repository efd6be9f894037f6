"""L2P-PGP: what its bases keep, worked out independently of their code."""

import numpy as np
import pytest
import torch
import toys
from lessons import TASKS, after, alike
from torch.nn import functional as F

from cl_bench.errors import InputError, RunFailed
from cl_bench.nn.subspaces import Subspaces, principal_scores


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
    assert alike(free, l2p, ["P", "K"]) and torch.equal(free.head.heads[2].weight, l2p.head.heads[2].weight)


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
