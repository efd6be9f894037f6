"""C-LN has the public code's numbers in three tasks: with one key a task under both ways in which torch has
cleared gradients, with copied keys, and with keys at every norm."""

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.c_ln import CLN
from torch import Tensor, nn

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo
from cl_bench.nn.pool import cosines
from cl_bench.training.phase import Phase

pytestmark = oracle.HERE
TASKS, TRAIN, TEST = 3, 12, 9
SIZES = {"learning_rate": 0.01, "batch": 6, "passes": 2, "rectify_rate": 0.005, "rectify_passes": 2}
RUNS = {
    "two_": {},
    "twoold_": {"stale_gradients": True},
    "twocopy_": {"new_keys": False},
    "one_": {"routing": "layers"},
}
STAGES = {"key": "key", "training": "ln", "rectification": "rect"}
NORMS = [f"blocks.{l}.{norm}" for l in range(4) for norm in ("norm1", "norm2")] + ["norm"]


class Walk:
    """The method as it learns the oracle's tasks."""

    def __init__(self, prefix: str):
        self.prefix, self.numbers = prefix, oracle.numbers("methods/c_ln.npz")
        config = CLN.Config(**SIZES, eval_classes="all", **RUNS[prefix])
        stream = StreamInfo(0, TASKS, task_sizes=(oracle.CLASSES,) * TASKS)
        self.method = CLN(config, oracle.backbone(), stream)
        self.method.unlearned = [head(index) for index in range(TASKS)]

    def begin(self, index: int) -> None:
        """Announce a task; what starts anew starts as the oracle's."""
        method, banks = self.method, self.method.banks
        method.grow(oracle.task(index))
        method.begin_task(oracle.task(index), None)
        with torch.no_grad():
            for linear in (method.head.heads[-1], method.h):
                for parameter, value in zip(linear.parameters(), head(index), strict=True):
                    parameter.copy_(value)
            if self.prefix == "one_" and index == 0:
                for bank, part in ((banks.keys, "key"), (banks.attention, "att")):
                    rows = [oracle.drawn(f"{norm}.{part}", (TASKS, 48), 0.04)[0] for norm in NORMS]
                    bank[0].copy_(torch.stack(rows))
            elif self.prefix in ("two_", "twoold_") or index == 0:
                banks.keys[index].copy_(oracle.drawn("router.key", (TASKS, 48), 0.04)[[index]])

    def parts(self, index: int, of=lambda parameter: parameter) -> dict[str, Tensor]:
        """The task's rows, or something of theirs, under the oracle's names."""
        method, banks = self.method, self.method.banks
        found, keys = {}, of(banks.keys[index])
        for place, norm in enumerate(NORMS):
            for name, bank in (("w", banks.gamma), ("b", banks.beta)):
                found[f"{norm}.{name}"] = rows(of(bank[index]), place)
            if banks.attention is not None:
                found[f"{norm}.key"] = rows(keys, place)
                found[f"{norm}.att"] = rows(of(banks.attention[index]), place)
        if banks.attention is None:
            found["router.key"] = rows(keys, 0)
        for name, linear in (("head", method.head.heads[index]), ("fake_head", method.h)):
            if linear is not None:
                found |= {f"{name}.{part}": of(value) for part, value in linear.named_parameters()}
        return found

    def compare(self, index: int, key: str, found: dict[str, Tensor], tolerance: float) -> int:
        """Check what the oracle has of it, of heads the task's rows; how much that was."""
        compared = 0
        for name, tensor in found.items():
            expected = self.numbers.get(f"{self.prefix}t{index}_{key}_{name}")
            if expected is not None and tensor is not None:
                own = slice(3 * index, 3 * index + 3) if "head" in name else ...
                expected = expected[index] if name == "router.key" and expected.ndim == 2 else expected
                assert near(tensor, expected[own], tolerance), (index, key, name)
                compared += 1
        return compared

    def stage(self, index: int, phase: Phase) -> None:
        stage, losses = STAGES[phase.name], []
        optimizer, batches = (
            phase.optimizer(),
            Batch(oracle.images(index, TRAIN), oracle.labels(index, TRAIN)),
        )
        for step, batch in enumerate(batches.split(6) * phase.passes):
            optimizer.zero_grad(set_to_none=True)
            loss = phase.loss(batch)
            loss.backward()
            losses.append(loss.item())
            first = step == 0 and f"{self.prefix}t{index}_{stage}_grad_head.weight" in self.numbers
            if step == 0:
                gradients = self.parts(index, lambda parameter: parameter.grad)
                compared = self.compare(index, f"{stage}_grad", gradients, 3e-6)
                assert compared or not first
            phase.after_backward()
            optimizer.step()
            if step == 0:
                self.compare(index, f"{stage}_step1", self.parts(index), 5e-6)
        key = f"{self.prefix}t{index}_{stage}_losses"
        if key in self.numbers:
            assert losses == pytest.approx(self.numbers[key].tolist(), rel=2e-5, abs=5e-6)
        key = f"{self.prefix}t{index}_key_after_key_stage_epoch1"
        if stage == "key" and key in self.numbers:
            assert near(self.method.banks.keys[index][0], self.numbers[key][index], 2e-4)

    def test(self, index: int) -> None:
        """Routing, scores of all classes, and which of them are right."""
        method, t = self.method, f"{self.prefix}t{index}"
        if f"{t}_scores_all" not in self.numbers:  # the first task is that of the run `two_`
            return
        images = torch.cat([oracle.images(10 + task, TEST) for task in range(TASKS)])
        with torch.no_grad():
            scores = method.predict(Batch(images))
            assert near(scores, self.numbers[f"{t}_scores_all"], 2e-4)
            if method.queries:
                similarity = cosines(method.backbone.frozen_features(images), torch.cat([*method.banks.keys]))
                if f"{t}_cos" in self.numbers:
                    assert near(similarity, self.numbers[f"{t}_cos"], 2e-4)
                assert similarity.argmax(dim=1).tolist() == self.numbers[f"{t}_routed_row"].tolist()
            if f"{t}_feat_oracle_row" in self.numbers:
                found = method.backbone.features(images[:6], method.banks.of_task())
                assert near(found, self.numbers[f"{t}_feat_oracle_row"], 2e-4)
        right = scores.argmax(dim=1) == torch.cat([oracle.labels(task, TEST) for task in range(TASKS)])
        accuracy = 100 * right.view(TASKS, TEST)[: index + 1].double().mean(dim=1)
        expected = self.numbers[f"{self.prefix}acc_matrix"][: index + 1, index]
        assert accuracy.tolist() == pytest.approx(expected.tolist(), abs=1e-3)


def near(found: Tensor, expected: np.ndarray, tolerance: float) -> bool:
    """Whether all differences are at most the tolerance, as the page states them."""
    found = found.detach().double()
    return found.shape == expected.shape and (found - torch.tensor(expected)).abs().max() <= tolerance


def rows(bank: Tensor | None, place: int) -> Tensor | None:
    return None if bank is None else bank[place]


def head(index: int) -> tuple[Tensor, Tensor]:
    """Weight and bias with which a task's rows of the head start."""
    own = slice(3 * index, 3 * index + 3)
    return oracle.filled("head.weight", (9, 48))[own], oracle.filled("head.bias", (9,))[own]


@pytest.mark.parametrize("prefix", RUNS)
def test_it_learns_routes_and_predicts_as_the_public_code(prefix):
    walk = Walk(prefix)
    for index in range(TASKS):
        walk.begin(index)
        task = oracle.task(index)
        phases = walk.method.phases(task)
        assert [STAGES[phase.name] for phase in phases] == ["key", "ln", "rect"][prefix == "one_" :]
        for phase in phases:
            walk.stage(index, phase)
        compared = walk.compare(index, "after", walk.parts(index), 2e-4)
        assert compared > 10 or f"{prefix}t{index}_after_blocks.0.norm1.w" not in walk.numbers
        walk.method.end_task(task, None)
        walk.test(index)


def test_the_query_and_the_parts_of_the_single_stages_loss_are_the_public_codes():
    walk = Walk("one_")
    walk.begin(0)
    batch = Batch(oracle.images(0, 6), oracle.labels(0, 6))
    method, edits = walk.method, walk.method.banks.routed(-1)
    assert oracle.close(method.backbone.frozen_features(batch.images), walk.numbers["query"], 2e-5)
    z = method.h(method.backbone.features(batch.images, edits))
    assert edits.mean_similarity().item() == pytest.approx(float(walk.numbers["one_t0_first_sim"]), abs=5e-6)
    ce = nn.functional.cross_entropy(z, batch.labels).item()
    assert ce == pytest.approx(float(walk.numbers["one_t0_first_ce"]), rel=5e-6)
