"""LoRA-DRS has the public code's numbers in a loop of three tasks (folder `shared/oracle`)."""

from collections.abc import Iterator

import oracle
import pytest
import torch
from cl_bench.methods.lora_drs import METHOD
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.contrast import augmented_triplet
from cl_bench.nn.projection import adam, leading_projectors

pytestmark = oracle.HERE
TASKS, CLASSES, IMAGES = 3, 4, 24
CLOSE, MOVED = 1e-4, 1e-3  # the page's tolerances; of steps, ends and triplet losses
SETTINGS = {
    "rank": 4, "learning_rate": 0.01, "head_rate": 0.02, "batch": 10, "passes": 3, "first_passes": 2,
    "margin": 2.0, "triplet": 0.2,
}  # fmt: skip
PUBLISHED = {"schedule": "lagged_asis", "adam_epsilon": "early_asis"}


def numbers() -> dict:
    return oracle.numbers("methods/lora_drs.npz")


def images_of(task: TaskInfo) -> Batch:
    labels = torch.arange(IMAGES) % CLASSES + task.first_label
    return Batch(oracle.images(task.index, IMAGES), labels)


class Images(oracle.Plain):
    """A trainer whose augmented images are the plain ones."""

    def augmented(self, task: TaskInfo, batch: int, chosen: None, pass_index: int) -> Iterator[Batch]:
        yield from self.plain(task, batch)


@torch.no_grad()
def begun(method: METHOD, index: int) -> TaskInfo:
    """Announce a task, with the page's head and pairs."""
    task = TaskInfo(index, tuple(range(CLASSES * index, CLASSES * (index + 1))), CLASSES * index)
    method.grow(task)
    for kind, part in method.head.named_parameters():
        part.copy_(oracle.filled(f"head.{index}.{kind}", tuple(part.shape)))
    for l in range(4):
        for place, target in enumerate("kv"):
            name = f"lora.{index}.blocks.{l}.{target}"
            method.edits.A[l, place] = oracle.drawn(f"{name}.A", (4, 48), 0.04)
            method.edits.B[l, place] = oracle.drawn(f"{name}.B", (48, 4), 0.04)
    method.begin_task(task, Images(images_of))
    return task


def built(**changes) -> METHOD:
    config = METHOD.Config(**{**SETTINGS, **PUBLISHED, **changes})
    return METHOD(config, oracle.backbone(), StreamInfo(0, TASKS))


def named(method: METHOD, of=lambda parameter: parameter.detach()) -> dict[str, Tensor]:
    """What is trained, under the page's names."""
    found = {f"head_{kind}": of(part) for kind, part in method.head.named_parameters()}
    for l in range(4):
        for place, target in enumerate("kv"):
            found[f"A_b{l}{target}"] = of(method.edits.A)[l, place]
            found[f"B_b{l}{target}"] = of(method.edits.B)[l, place]
    return found


def compare(found: dict[str, Tensor], page: dict, prefix: str, tolerance: float) -> None:
    assert len(found) == 18
    for key, value in found.items():
        assert oracle.close(value, page[f"{prefix}_{key}"], tolerance), (prefix, key)


def compare_projections(method: METHOD, task: TaskInfo, page: dict) -> None:
    moments = method.moments(task, Images(images_of))
    for l, (C, T) in enumerate(zip(moments, method.T, strict=True)):
        key = f"t{task.index}_b{l}"
        assert oracle.close(C @ oracle.probe(1), page[f"{key}_cov_probe"], CLOSE)
        assert oracle.close(torch.linalg.svdvals(C), page[f"{key}_eigen_values"], CLOSE)
        assert method.directions[l] == int(page[f"{key}_num_vectors"])
        assert oracle.close(T.double() @ oracle.probe(2), page[f"{key}_T_probe"], CLOSE)


def both_losses(method: METHOD, batch: Batch, task: TaskInfo) -> tuple[float, float]:
    """Cross-entropy, and the triplet loss before lambda."""
    f, old = method.features(batch), method.prototypes.means[: task.first_label]
    entropy = F.cross_entropy(method.head(f), batch.labels - task.first_label)
    return entropy.item(), augmented_triplet(f, batch.labels, old, 2.0).item()


def learn(method: METHOD, task: TaskInfo, page: dict) -> None:
    """All steps of a task, the first in detail."""
    [phase], t, found, rates = method.phases(task), f"t{task.index}", [], []
    optimizer, batches = phase.optimizer(), images_of(task).split(10)
    tops = [group["lr"] for group in optimizer.param_groups]
    assert tops == [0.01, 0.02]
    for step in range(phase.passes * len(batches)):
        done, batch = step // len(batches), batches[step % len(batches)]
        for group, top in zip(optimizer.param_groups, tops, strict=True):
            group["lr"] = top * phase.rate(done, group)
        rates.append([group["lr"] for group in optimizer.param_groups])
        entropy, triplet = both_losses(method, batch, task)
        found.append((entropy, triplet))
        optimizer.zero_grad()
        loss = phase.loss(batch)
        assert loss.item() == pytest.approx(entropy + 0.2 * triplet, rel=1e-6)
        loss.backward()
        if step < 2:
            compare(named(method, lambda parameter: parameter.grad), page, f"{t}_g{step}", CLOSE)
        optimizer.step()
        if step == 0:
            compare(named(method), page, f"{t}_step1", MOVED)
    entropies, triplets = zip(*found, strict=True)
    assert oracle.close(torch.tensor(entropies), page[f"{t}_ce_losses"], CLOSE)
    assert oracle.close(torch.tensor(triplets), page[f"{t}_atl_losses"], MOVED)
    assert [lora for lora, _ in rates[::3]] == pytest.approx(page[f"{t}_lr_lora"].tolist())
    assert [head for _, head in rates[::3]] == pytest.approx(page[f"{t}_lr_head"].tolist())


@torch.no_grad()
def compare_task(method: METHOD, page: dict, index: int) -> None:
    """Ends, the sum of all products, class means, and what they say of test images."""
    t, edits, test = f"t{index}", method.edits, Batch(oracle.images(9))
    compare(named(method), page, f"{t}_end", MOVED)
    for l in range(4):
        for place, target in enumerate("kv"):
            rows = slice(48 * (1 + place), 48 * (2 + place))
            S = edits.sums(l)[rows] + edits.B[l, place] @ edits.A[l, place]
            assert oracle.close(S.double() @ oracle.probe(3), page[f"{t}_S_b{l}{target}_probe"], MOVED)
        assert not edits.sums(l)[:48].any()
    assert oracle.close(method.prototypes.means, page[f"{t}_protos"], CLOSE)
    f = method.features(test)
    assert oracle.close(f, page[f"{t}_test_features"], CLOSE)
    assert oracle.close(method.head(f), page[f"{t}_test_head_logits"], CLOSE)
    scores = method.predict(test)
    assert oracle.close(2 - 2 * scores, page[f"{t}_test_dist"], CLOSE)
    assert scores.argmax(1).tolist() == page[f"{t}_test_dist"].argmin(1).tolist()


def test_three_tasks_are_learned_as_the_public_code_learns_them():
    """The page's pairs stand for those that the code draws."""
    page, method = numbers(), built()
    for index in range(TASKS):
        task = begun(method, index)
        if index:
            compare_projections(method, task, page)
        learn(method, task, page)
        method.end_task(task, Images(images_of))
        compare_task(method, page, index)


def test_what_is_trained_is_what_the_public_code_trains():
    method = built()
    begun(method, 0)
    names = numbers()["t0_trained"].tolist()
    assert {*named(method)} == {*names}
    assert {*method.trained()} == {"edits.A", "edits.B", "head.weight", "head.bias"}


def test_as_published_one_entry_of_every_column_of_B_is_not_zero():
    sparse, plain = built(start="sparse_asis"), built()
    for method in (sparse, plain):
        method.grow(TaskInfo(0, (0, 1), 0))
    counts = sparse.edits.B.ne(0).sum(dim=2)
    assert counts.tolist() == [[numbers()["sparse_nnz"].tolist()] * 2] * 4 and not plain.edits.B.any()
    assert sparse.edits.B.abs().max() < 0.05


@pytest.mark.parametrize("case", [0, 1, 2])
def test_projectors_are_those_of_the_public_code(case):
    page = numbers()
    C = torch.tensor(page[f"syn{case}_C"], dtype=torch.float64)
    [T], [count] = leading_projectors(C[None], 0.99, "fro")
    assert count == int(page[f"syn{case}_num_vectors"])
    assert oracle.close(T, page[f"syn{case}_T"], CLOSE)


@pytest.mark.parametrize("case", [0, 1])
def test_projected_steps_are_those_of_the_public_code(case):
    page = numbers()
    T = torch.tensor(page[f"syn{case}_T"])
    A, B = nn.Parameter(torch.zeros(4, 24)), nn.Parameter(torch.zeros(24, 4))
    optimizer = adam([A, B], [(A, lambda U: U @ T), (B, lambda U: T @ U)], lr=0.01)
    for step in range(3):
        A.grad, B.grad = (torch.tensor(page[f"syn{case}_g{name}{step}"]) for name in "AB")
        optimizer.step()
    assert oracle.close(A, page[f"syn{case}_A_end"], CLOSE)
    assert oracle.close(B, page[f"syn{case}_B_end"], CLOSE)


@pytest.mark.parametrize("case", range(4))
def test_the_triplet_loss_is_that_of_the_public_code(case):
    page = numbers()
    features = torch.tensor(page[f"atl{case}_feat"], requires_grad=True)
    old = torch.tensor(page[f"atl{case}_protos"]) if f"atl{case}_protos" in page else torch.zeros(0, 8)
    labels, margin = torch.tensor(page[f"atl{case}_labels"]), float(page[f"atl{case}_margin"])
    loss = augmented_triplet(features, labels, old, margin)
    loss.backward()
    assert loss.item() == pytest.approx(float(page[f"atl{case}_loss"]), rel=CLOSE)
    assert oracle.close(features.grad, page[f"atl{case}_grad"], MOVED)
