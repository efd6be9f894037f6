"""Prompt pools have the public code's numbers in loops of three or four tasks (folder `shared/oracle`)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import oracle
import pytest
import torch
from torch import Tensor, nn

from cl_bench.data.batch import Batch
from cl_bench.data.stream import TaskInfo
from cl_bench.nn.attention import queries
from cl_bench.nn.edits import Watched
from cl_bench.nn.pool import cosines, majority, nearest
from cl_bench.nn.statistics import QueryMoments
from cl_bench.plugins import registry
from cl_bench.training.query_method import QueryTuning

pytestmark = oracle.HERE
STATISTICS, TEST = 48, 10  # images
L2P = {"pool_size": 6, "prompt_length": 3, "top_k": 2, "learning_rate": 0.01}
DUAL = {"pool_size": 3, "g_layers": 1, "e_layers": 2, "g_length": 2, "e_length": 3, "learning_rate": 0.01}
DUAL_PGP = {**DUAL, "pool_size": 2, "g_layers": 2, "e_layers": 3}
PER_IMAGE = {"batchwise_train": False, "batchwise_eval": False}


class Statistics(TaskInfo):
    """A task that is only asked how many images it has."""

    def __len__(self) -> int:
        return STATISTICS


@dataclass
class Images:
    """In the place of a trainer: the statistics' images of a task, in order."""

    data_seed: int = 0

    def augmented(self, task: TaskInfo, batch: int, chosen: np.ndarray, pass_index: int) -> Iterator[Batch]:
        assert len(chosen) == STATISTICS
        with torch.no_grad():
            yield from Batch(oracle.images(200 + task.index, STATISTICS)).split(batch)

    def plain(self, task: TaskInfo, batch: int, chosen: np.ndarray) -> Iterator[Batch]:
        return self.augmented(task, batch, chosen, 0)


@dataclass
class Walk:
    """A method that learns the oracle's tasks, batch by batch, and is compared with what is written."""

    name: str
    tag: str
    sizes: dict
    tasks: int
    depth: int = 4
    tolerance: float = 1e-5
    changes: dict = field(default_factory=dict)

    def __post_init__(self):
        self.numbers = oracle.numbers(f"methods/{self.name.replace('-', '_')}.npz")
        self.method = self.build({})

    def build(self, changes: dict) -> QueryTuning:
        """The method as published, in the oracle's sizes and with its initial values.

        It is never at its last task, after which it looks at nothing.
        """
        kind = registry.method_class(self.name)
        published = {
            key: value for key, value in kind.AS_PUBLISHED.items() if key in kind.Config.model_fields
        }
        info = oracle.stream(self.tasks + 1, self.tasks)
        return set_up(
            kind(
                kind.Config(**{**published, **self.sizes, **self.changes, **changes}),
                oracle.backbone(self.depth),
                info,
            ),
            self.numbers,
        )

    def like(self, changes: dict) -> QueryTuning:
        """The same state under other options."""
        other = self.build(changes)
        for index in range(self.method.tasks_seen):
            other.grow(oracle.task(index))
        other.load_state(self.method.state())
        return other

    def close(self, key: str, found: Tensor, tolerance: float | None = None) -> bool:
        return oracle.close(found, self.numbers[f"{self.tag}:{key}"], tolerance or self.tolerance)

    def learn(self, index: int, parts: dict, **checks) -> None:
        """One task: three batches, the first one in detail.

        `parts` name what is trained, as arrays of the oracle's shapes.
        """
        method, task, t = self.method, Statistics(**vars(oracle.task(index))), f"t{index}"
        method.grow(task)
        with torch.no_grad():
            for parameter, value in zip(method.head.heads[-1].parameters(), head(index), strict=True):
                parameter.copy_(value)
        method.begin_task(task, None)
        optimizer, rows = (
            method.make_optimizer(task),
            slice(oracle.CLASSES * index, oracle.CLASSES * (index + 1)),
        )
        current = method.head.heads[-1]
        for number, chosen in enumerate(self.numbers[f"{self.tag}:{t}_sets"]):
            optimizer.zero_grad()
            loss = method.loss(Batch(oracle.images(chosen), oracle.labels(index)), task)
            loss.backward()
            terms = [float(self.numbers[f"{self.tag}:{t}_s{number}_{term}"]) for term in ("ce", "pull")]
            assert loss.item() == pytest.approx(
                terms[0] - method.config.pull * terms[1], rel=2 * self.tolerance
            )
            grads = [parameter.grad for parameter in method.trained_parameters()]
            norm = torch.stack([grad.norm() for grad in grads if grad is not None]).norm()
            assert self.close(f"{t}_s{number}_gradnorm", norm)
            if number == 0:
                for part, (parameter, shaped) in parts.items():
                    assert self.close(f"{t}_grad_{part}", shaped(parameter.grad)), (index, part)
                assert oracle.close(
                    current.weight.grad, self.numbers[f"{self.tag}:{t}_grad_Hw"][rows], self.tolerance
                )
            method.after_backward(task)
            if number == 0 and index:
                for key, projected in checks.items():
                    assert self.close(f"{t}_{key}", projected()), (index, key)
            optimizer.step()
            if number == 0:
                self.compare(f"{t}_step1", parts, rows)
        self.compare(f"{t}_end", parts, rows)
        method.end_task(task, Images())

    def compare(self, key: str, parts: dict, rows: slice) -> None:
        for part, (parameter, shaped) in parts.items():
            assert self.close(f"{key}_{part}", shaped(parameter)), (key, part)
        for part, parameter in zip(("Hw", "Hb"), self.method.head.heads[-1].parameters(), strict=True):
            assert oracle.close(parameter, self.numbers[f"{self.tag}:{key}_{part}"][rows], self.tolerance), (
                key,
                part,
            )

    def test(self, index: int, key: str, method: QueryTuning, columns: int | None = None) -> None:
        """Queries, features and scores of the test batch."""
        images = oracle.images(self.numbers[f"{self.tag}:t{index}_testset"], TEST)
        with torch.no_grad():
            q = method.backbone.frozen_features(images)
            assert self.close(f"t{index}_test_query", q)
            assert self.close(f"t{index}_{key}_feature", method.represent(images, q)), (index, key)
            assert oracle.close(
                method.predict(Batch(images)),
                self.numbers[f"{self.tag}:t{index}_{key}_logits"][:, :columns],
                self.tolerance,
            )


def set_up(method: QueryTuning, numbers: dict) -> QueryTuning:
    """Give it the oracle's prompts, keys and rows of the head to come."""
    own = {"P": "l2p.prompt", "G": "dual.g", "E": "dual.e"}
    for name, drawn in own.items():
        if hasattr(method, name):
            parameter = getattr(method, name)
            parameter.data = oracle.drawn(drawn, tuple(parameter.shape), 0.5)
    keys = method.K if hasattr(method, "K") else method.k
    keys.data = torch.tensor(numbers["K0"])
    method.unlearned = [head(index) for index in range(len(method.unlearned))]
    return method


def head(index: int) -> tuple[Tensor, Tensor]:
    """Weight and bias of a task's rows, before it is learned."""
    rows = slice(oracle.CLASSES * index, oracle.CLASSES * (index + 1))
    return oracle.drawn("head.weight", (12, 48), 0.2)[rows], oracle.drawn("head.bias", (12,), 0.02)[rows]


def pool(parameter: nn.Parameter, probed: bool = False):
    """A pool's rows (1, S m, D) as entries (S, m, D)."""
    return (
        parameter,
        lambda P: P[0].unflatten(0, (6, 3)) @ (oracle.probe(1).float() if probed else torch.eye(48)),
    )


def chosen(ids: Tensor) -> list:
    return ids.sort(dim=1).values.tolist()


@pytest.mark.parametrize("tag", ["pub", "fixed"])
def test_l2p_learns_and_predicts_as_the_public_code(tag):
    walk = Walk("l2p", tag, L2P, 3, changes=PER_IMAGE if tag == "fixed" else {})
    method, parts = walk.method, {"P": pool(walk.method.P), "K": (walk.method.K, lambda K: K)}
    assert method.predicts_together == (16 if tag == "pub" else None)
    for index in range(3):
        images = oracle.images(walk.numbers[f"{tag}:t{index}_sets"][0])
        similarity = cosines(method.backbone.frozen_features(images), method.K.detach())
        assert walk.close(f"t{index}_s0_sim", similarity)
        ids = method.choose(similarity, tag == "pub").ids.expand(8, -1)
        assert chosen(ids) == chosen(torch.tensor(walk.numbers[f"{tag}:t{index}_s0_idx"]))
        walk.learn(index, parts)
        walk.test(index, "test_each", walk.like(PER_IMAGE))
        if tag == "pub":
            walk.test(index, "test_vote", method)


@pytest.mark.parametrize("tag", ["pub", "fixed"])
def test_l2p_pgp_learns_and_predicts_as_the_public_code(tag):
    walk = Walk(
        "l2p-pgp",
        tag,
        {**L2P, "images": STATISTICS},
        3,
        tolerance=1e-4,
        changes=PER_IMAGE if tag == "fixed" else {},
    )
    method = walk.method
    parts = {"K": (method.K, lambda K: K)}
    for index in range(3):
        projected = {
            "projgrad_P": lambda: pool(method.P)[1](method.P.grad),
            "projgrad_K": lambda: method.K.grad,
        }
        walk.learn(index, parts, **projected)
        assert walk.close(f"t{index}_end_P", pool(method.P, probed=True)[1](method.P))
        for kind, space in (("p", method.prompt_space), ("k", method.key_space)):
            assert space.ranks() == [int(walk.numbers[f"{tag}:t{index}_{kind}_rank"])]
            expected = walk.numbers[f"{tag}:t{index}_{kind}_projector_after"]
            projector = space.M[0] @ space.M[0].T
            assert oracle.close(
                projector if expected.shape[1] == 48 else projector @ oracle.probe(1), expected, 1e-4
            ), (index, kind)
        walk.test(index, "test_each", walk.like(PER_IMAGE))
        if tag == "pub":
            walk.test(index, "test_vote", method)


def heads_apart(X: Tensor) -> Tensor:
    return X.unflatten(-1, (4, 12))


def dual_parts(method: QueryTuning) -> dict:
    return {"G": (method.G, heads_apart), "K": (method.k, lambda K: K)}


def probed(E: Tensor) -> Tensor:
    return E @ oracle.probe(1).float()


FIXED = {**PER_IMAGE, "prefix_reshape": "permute"}


@pytest.mark.parametrize("tag", ["pub", "fixed"])
def test_dualprompt_learns_and_predicts_as_the_public_code(tag):
    walk = Walk("dualprompt", tag, DUAL, 4, changes=FIXED if tag == "fixed" else {})
    method = walk.method
    assert method.predicts_together == (24 if tag == "pub" else None)
    for index in range(4):
        images = oracle.images(walk.numbers[f"{tag}:t{index}_sets"][0])
        similarity = cosines(method.backbone.frozen_features(images), method.k.detach())
        assert walk.close(f"t{index}_s0_sim", similarity, 1e-5)
        if index == 3:
            ids = nearest(similarity, 1)
            ids = (majority(ids, 3) if tag == "pub" else ids).expand(8, -1)
            assert ids.tolist() == walk.numbers[f"{tag}:t3_s0_idx"].tolist()
        walk.learn(index, dual_parts(method))
        assert walk.close(f"t{index}_end_E", probed(method.E))
        if tag == "pub":
            walk.test(index, "test_vote", method)
            walk.test(index, "test_each_asis", walk.like(PER_IMAGE))
            walk.test(index, "test_each_permute", walk.like(FIXED))
        else:
            walk.test(index, "test_each", method)
            walk.test(index, "test_each_seen", walk.like({"eval_keys": "seen"}))


def compare_statistics(walk: Walk, index: int) -> None:
    """Queries of the first images under the statistics' prompts, and second moments of all, head by head."""
    method, moments = walk.method, QueryMoments(5, walk.method.backbone.vit)
    images = oracle.images(200 + index, STATISTICS)
    with torch.no_grad():
        prefixes, seen = method.statistics_prefixes(images, oracle.task(index)), {}

        def attend(block: int, module: nn.Module, x: Tensor, read: int | None) -> Tensor:
            seen[block] = queries(module.attn, module.norm1(x))  # (B, H, N, d)
            return prefixes.attend(block, module, x, read)

        method.backbone.features(images, Watched(prefixes, attend))
        method.backbone.features(images, moments.observing(prefixes))
    for block, q in seen.items():
        found = q[:3].flatten(2) @ oracle.probe(3, 204, 3).float()
        assert walk.close(f"t{index}_b{block}_query_probe", found), (index, block)
        if walk.tag == "fixed":
            assert walk.close(f"t{index}_b{block}_Qmoment", moments.means()[block])


@pytest.mark.parametrize("tag", ["pub", "fixed"])
def test_dualprompt_pgp_learns_and_predicts_as_the_public_code(tag, monkeypatch):
    import cl_bench.methods.dualprompt_pgp as plugin

    monkeypatch.setattr(plugin, "SCORES", 20)
    sizes = {**DUAL_PGP, "images": STATISTICS}
    walk = Walk(
        "dualprompt-pgp",
        tag,
        sizes,
        3,
        depth=5,
        tolerance=1e-4,
        changes={**FIXED, "stat_prompt": "task"} if tag == "fixed" else {},
    )
    method = walk.method
    for index in range(3):
        projected = {
            "projgrad_G": lambda: heads_apart(method.G.grad[:, 0]),
            "projgrad_Ekey": lambda: heads_apart(method.E.grad[:, 0]),
        }  # fmt: skip
        walk.learn(index, dual_parts(method), **projected)
        assert walk.close(f"t{index}_end_E", probed(method.E))
        compare_statistics(walk, index)
        assert method.space.ranks() == [
            int(walk.numbers[f"{tag}:t{index}_b{block}_rank"]) for block in range(5)
        ]
        for block, M in enumerate(method.space.M[:, 0]):
            assert walk.close(f"t{index}_b{block}_projector", M @ M.T @ oracle.probe(1)), (index, block)
        if tag == "pub":
            walk.test(index, "test_vote", method)
        else:
            walk.test(index, "test_each", method)
