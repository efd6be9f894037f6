"""DualPrompt and DualPrompt-PGP: which prefix an image gets, what stays, and what is kept head by head."""

import pytest
import torch
import toys

from cl_bench.data.batch import Batch
from cl_bench.errors import InputError, RunFailed
from cl_bench.nn.attention import attention_with, queries, queries_keys_values, split_heads
from cl_bench.nn.edits import Watched
from cl_bench.nn.prompts import Prefixes, without_permute
from cl_bench.nn.subspaces import principal_scores

TASKS = [[2, 0], [1, 3, 4], [5, 6]]
IMAGES = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def after(upto, name="dualprompt", tasks=TASKS, per_class=12, **options):
    method = toys.method(name, len(tasks), **{"pool_size": None, **options})
    toys.learn(method, toys.stream(tasks, per_class=per_class), upto=upto)
    return method


def test_prefixes_stand_before_softmax_and_add_no_token():
    """Attention of each head over prefix and image tokens, computed by hand."""
    trunk = toys.backbone()
    attn, tokens, K, V = (
        trunk.vit.blocks[0].attn,
        torch.randn(2, 5, 32),
        torch.randn(2, 3, 32),
        torch.randn(2, 3, 32),
    )
    found = attention_with(attn, tokens, (split_heads(attn, K), split_heads(attn, V)))
    q, k, v = queries_keys_values(attn, tokens)
    heads = []
    for h in range(2):
        part = slice(16 * h, 16 * h + 16)
        keys, values = torch.cat([K[..., part], k[:, h]], 1), torch.cat([V[..., part], v[:, h]], 1)
        weights = (q[:, h] @ keys.mT / 4.0).softmax(-1)
        assert weights.shape == (2, 5, 8)
        heads.append(weights @ values)
    assert torch.allclose(found, attn.proj(torch.cat(heads, -1)), atol=1e-5)


def test_without_prefixes_it_is_the_frozen_network():
    trunk = toys.backbone()
    none = Prefixes({0: (torch.zeros(1, 0, 32), torch.zeros(1, 0, 32))})
    assert torch.allclose(trunk.features(IMAGES, none), trunk.features(IMAGES), atol=1e-6)


def test_every_image_gets_the_prefix_of_its_own_key():
    method = toys.method("dualprompt", 3)
    ids = torch.tensor([2, 0, 3, 1, 1, 0, 2, 3])
    method.E.data = torch.arange(1 * 2 * 4 * 4 * 32.0).view(1, 2, 4, 4, 32)
    K, V = method.prefixes(ids, 8).blocks[1]
    assert torch.equal(K, method.E[0, 0][ids]) and torch.equal(V, method.E[0, 1][ids])
    G_K, G_V = method.prefixes(ids, 8).blocks[0]
    assert torch.equal(G_K[0], method.G[0, 0]) and torch.equal(G_V[0], method.G[0, 1])


def test_the_missing_permute_mixes_images_as_the_card_of_the_fault_says():
    K, V = torch.arange(6.0).view(6, 1, 1), 100 + torch.arange(6.0).view(6, 1, 1)
    keys, values = (part.flatten().tolist() for part in without_permute(K, V))
    # image b gets entries 2b and 2b + 1 of all keys, then all values
    assert keys == [0, 2, 4, 100, 102, 104] and values == [1, 3, 5, 101, 103, 105]
    one = without_permute(K[:1], V[:1])
    assert torch.equal(one[0], K[:1]) and torch.equal(one[1], V[:1])


def test_the_reshape_differs_in_a_batch_and_not_for_one_image():
    right, wrong = (after(2, prefix_reshape=choice) for choice in ("permute", "reshape_asis"))
    wrong.load_state(right.state())
    assert torch.allclose(right.predict(Batch(IMAGES[:1])), wrong.predict(Batch(IMAGES[:1])), atol=1e-6)
    assert not torch.allclose(right.predict(Batch(IMAGES)), wrong.predict(Batch(IMAGES)), atol=1e-3)


def test_after_a_task_only_its_own_slice_the_general_prompt_and_its_head_changed():
    method, stream = toys.method("dualprompt", 3, pool_size=None), toys.stream(TASKS)
    toys.learn(method, stream, upto=1)
    E, k, G = method.E.detach().clone(), method.k.detach().clone(), method.G.detach().clone()
    toys.learn(method, stream, upto=2, start=1)
    assert torch.equal(method.E[:, :, [0, 2]], E[:, :, [0, 2]]) and torch.equal(method.k[[0, 2]], k[[0, 2]])
    assert (
        not torch.equal(method.E[:, :, 1], E[:, :, 1])
        and not torch.equal(method.k[1], k[1])
        and not torch.equal(method.G, G)
    )


def test_a_tasks_prompt_starts_as_the_one_before():
    method = after(1)
    task = toys.stream(TASKS).task(1)
    method.grow(task)
    method.begin_task(task, None)
    assert torch.equal(method.E[:, :, 1], method.E[:, :, 0])


def test_the_keys_of_tasks_to_come_are_compared_only_as_published():
    seen, everything = after(1), after(1, eval_keys="all")
    for method in (seen, everything):
        method.k.data[2] = method.backbone.frozen_features(IMAGES[:1])[
            0
        ]  # a future task's key that fits the image exactly
    q = seen.backbone.frozen_features(IMAGES[:1])
    own, future = (seen.backbone.features(IMAGES[:1], seen.prefixes(torch.tensor([i]), 1)) for i in (0, 2))
    assert torch.allclose(seen.represent(IMAGES[:1], q), own, atol=1e-6)
    assert torch.allclose(everything.represent(IMAGES[:1], q), future, atol=1e-6)


def test_training_counts_the_forced_prompt_and_what_keys_alone_would_choose():
    found = after(2).diagnostics()
    assert (
        found["selected"] == [0, 3 * 36, 0] and sum(found["nearest"]) == 3 * 36 and found["nearest"][2] == 0
    )


def test_more_tasks_than_prompts_are_refused_or_vote_as_published():
    with pytest.raises(
        InputError, match="pool_size=2 has no E-prompt for each of 3 tasks; leave out pool_size"
    ):
        toys.method("dualprompt", 3, pool_size=2)
    method = after(3, pool_size=2, overflow="vote")
    assert sum(method.diagnostics()["selected"]) == 3 * 24 and all(
        count % 8 == 0 for count in method.diagnostics()["selected"]
    )


def test_half_a_prompt_is_keys_and_half_values_as_in_the_paper():
    method = toys.method("dualprompt", 3, kv_split="half", e_length=6, g_length=4)
    assert method.E.shape == (1, 2, 4, 3, 32) and method.G.shape == (1, 2, 2, 32)
    with pytest.raises(InputError, match="even lengths"):
        toys.method("dualprompt", 3, kv_split="half")


def test_prompts_for_blocks_that_do_not_exist_are_refused():
    with pytest.raises(InputError, match="need 3 blocks, backbone 'toy' has 2"):
        toys.method("dualprompt", 3, e_layers=2)


# --- PGP


def old_queries(method, tasks=TASKS):
    """q (H, rows, d) of the first task's images in each block under their own prompts."""
    found = [[], []]
    prefixes = method.prefixes(torch.tensor([0]), 1)

    def attend(index, block, x, read):
        found[index].append(queries(block.attn, block.norm1(x)).transpose(0, 1).flatten(1, 2))
        return prefixes.attend(index, block, x, read)

    for images in (batch.images for batch in toys.stream(tasks).task(0).plain(24)):
        method.backbone.features(images, Watched(prefixes, attend))
    return [torch.cat(parts, dim=1).detach() for parts in found]


def by_head(keys):
    return keys.flatten(0, -2).unflatten(1, (2, 16)).transpose(0, 1)


def test_updates_of_keys_leave_every_heads_old_logits_alone():
    method = after(1, "dualprompt-pgp", energy=0.9, pgp_stage="update")
    G, E = method.G.detach().clone(), method.E.detach().clone()
    M = [M.float() for M in method.space.M]
    toys.learn(method, toys.stream(TASKS), upto=2, start=1)
    start = E.clone()
    start[:, :, 1] = start[:, :, 0]
    for block, delta in enumerate((method.G.detach()[0, 0] - G[0, 0], method.E.detach()[0, 0] - start[0, 0])):
        heads = by_head(delta)
        assert heads.abs().max() > 1e-3 and (heads @ M[block]).abs().max() < 1e-5
    assert method.diagnostics()["update_inside_protected"] < 1e-4


def test_low_rank_queries_keep_their_logits_exactly():
    """With a basis of all energy of few tokens, new prefix keys give old queries the same logits."""
    method = toys.method("dualprompt-pgp", 3, pool_size=None, pgp_stage="update", energy=1.0)
    Q = torch.randn(
        2, 2, 5, 16, dtype=torch.float64
    )  # five queries of 16 dimensions in every head of two blocks
    method.space.grow(Q.mT @ Q, 1.0, "sigma2", "geq", True)
    method.space.refresh()
    U = method.outside(torch.randn_like(method.G), 0)
    assert (Q[0].float() @ by_head(U[0, 0]).mT).abs().max() < 1e-5 and by_head(U[0, 0]).abs().max() > 0.1


def test_a_basis_over_all_heads_side_by_side_does_not_keep_them():
    """The sum over heads of <q_h, p_h> stays, the logits of single heads do not.

    A block-diagonal basis equals one for each head.
    """
    Q, delta = torch.randn(2, 5, 16), torch.randn(3, 32)
    flat = torch.linalg.qr(torch.cat(list(Q), dim=1).T)[0]  # (32, 5)
    kept = delta - delta @ flat @ flat.T
    assert (torch.cat(list(Q), 1) @ kept.T).abs().max() < 1e-5 and (Q @ by_head(kept).mT).abs().max() > 0.1
    bases = [torch.linalg.qr(q.T)[0] for q in Q]
    diagonal = torch.block_diag(*bases)
    heads = torch.cat([part - part @ M @ M.T for part, M in zip(by_head(delta), bases, strict=True)], dim=1)
    assert torch.allclose(delta - delta @ diagonal @ diagonal.T, heads, atol=1e-5)


def test_only_keys_lose_part_of_their_gradient_unless_values_are_projected_too():
    for values in (False, True):
        method = after(1, "dualprompt-pgp", energy=0.9, project_values=values)
        free = after(1, "dualprompt")
        free.load_state({key: value for key, value in method.state().items() if key in free.state()})
        task = toys.stream(TASKS).task(1)
        for built in (method, free):
            built.grow(task)
            built.begin_task(task, None)
            built.loss(next(task.plain(20)), task).backward()
            built.after_backward(task)
        assert not torch.equal(method.G.grad[:, 0], free.G.grad[:, 0]) and not torch.equal(
            method.E.grad[:, 0], free.E.grad[:, 0]
        )
        assert torch.equal(method.G.grad[:, 1], free.G.grad[:, 1]) != values and torch.equal(
            method.k.grad, free.k.grad
        )


def test_without_energy_it_is_dualprompt_bit_for_bit():
    free, dual = after(3, "dualprompt-pgp", energy=0.0), after(3)
    assert all(torch.equal(getattr(free, name), getattr(dual, name)) for name in ("G", "E", "k"))


def test_bases_are_one_for_each_head_and_their_ranks_are_recorded():
    method = after(2, "dualprompt-pgp", energy=0.9)
    ranks = method.diagnostics()["rank"]
    assert len(ranks) == 2 * 2 and all(0 < rank <= 15 for rank in ranks)
    Q = old_queries(after(1, "dualprompt-pgp", energy=0.9))
    first = after(1, "dualprompt-pgp", energy=0.9)
    for block in range(2):
        for head in range(2):
            values = torch.linalg.eigvalsh((Q[block][head].T @ Q[block][head]).double()).flip(0)
            expected = int((values.cumsum(0) < 0.9 * values.sum()).sum()) + 1
            assert first.diagnostics()["rank"][2 * block + head] == expected


AS_IS = {
    "pgp_space": "sample_asis",
    "pgp_energy": "sigma4_asis",
    "pgp_rank_rule": "lt_asis",
    "stat_prompt": "fallback_asis",
}


def test_the_published_statistics_are_scores_of_as_many_images_as_features():
    from cl_bench import seeds

    method = after(1, "dualprompt-pgp", per_class=20, energy=0.9, **AS_IS)
    assert method.space.M.shape == (2, 1, 32, 32)
    rows = seeds.permutation(40, 3, "pgp images", 0)[:32]
    images = toys.stream(TASKS, per_class=20).task(0).augmented(rows, 3).images
    vit = method.backbone.vit
    first = vit.blocks[0]
    Z = principal_scores(
        queries(first.attn, first.norm1(vit._pos_embed(vit.patch_embed(images)))).flatten(1), 50
    )
    values, vectors = torch.linalg.eigh(Z @ Z.T)
    energies = values.flip(0).square()
    rank = int((energies.cumsum(0) < 0.9 * energies.sum()).sum())
    assert method.space.ranks()[0] == rank
    M, expected = method.space.M[0, 0][:, :rank], vectors.flip(1)[:, :rank]
    assert torch.allclose(M @ M.T, expected @ expected.T, atol=1e-5)


def test_the_published_statistics_need_exactly_as_many_images():
    with pytest.raises(InputError, match="got images=768"):
        toys.method("dualprompt-pgp", 3, pool_size=None, images=768, **AS_IS)
    with pytest.raises(RunFailed, match="needs 32 images of every task"):
        after(1, "dualprompt-pgp", **AS_IS)
