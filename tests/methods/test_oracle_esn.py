"""ESN has the public code's numbers in three tasks, with prompts that learn in all of them and as meant."""

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.esn import CANDIDATES, ESN
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.class_attention import normalized
from cl_bench.nn.energies import majority_vote, surest
from cl_bench.nn.prompts import JoinedPrompts
from cl_bench.training.trainer import Trainer

pytestmark = oracle.HERE
IMAGES, TASKS = 12, 3
SIZES = {"prompts": 5, "learning_rate": 0.02, "batch": 6, "passes": 4, "energy_sign": "code"}
RUNS = pytest.mark.parametrize(("prefix", "frozen"), [("", False), ("frozen_", True)])


class Plain(Trainer):
    """A trainer whose images for statistics are those of the task, in order."""

    def plain(self, task, batch, chosen=None, shared=False):
        with torch.no_grad():
            yield from task_images(task.index).split(batch)


def task_images(index: int, offset: int = 0) -> Batch:
    return Batch(oracle.images(offset + index, IMAGES), oracle.labels(index, IMAGES))


def unseen_images(tasks: int) -> Batch:
    """The test images of the first tasks by class, those of a class in order."""
    parts = [task_images(index, 10) for index in range(tasks)]
    labels = torch.cat([part.labels for part in parts])
    order = labels.argsort(stable=True)
    return Batch(torch.cat([part.images for part in parts])[order], labels[order])


def built(frozen: bool) -> ESN:
    method = ESN(ESN.Config(**SIZES, freeze_prompts=frozen), oracle.backbone(), StreamInfo(0, TASKS))
    method.P.data = oracle.filled("prompt", (5, 48))
    return method


def parts(method: ESN) -> dict[str, torch.nn.Parameter]:
    """What the newest task trains, under the oracle's names."""
    tab, head = method.tabs[-1], method.head.heads[-1]
    found = {"task_tokens": tab.token, "classifiers.weight": head.weight, "classifiers.bias": head.bias}
    names = {"q": "attn.q", "k": "attn.k", "v": "attn.v", "proj": "attn.proj", "fc1": "mlp.fc1"}
    for name, parameter in tab.named_parameters():
        layer, _, kind = name.partition(".")
        layer = {**names, "fc2": "mlp.fc2"}.get(layer, layer)
        if kind:
            found[f"tabs.{layer}.{kind}"] = parameter
    return found | ({"vitprompt.weight": method.P} if method.P.requires_grad else {})


def begin(method: ESN, index: int) -> None:
    """Announce a task; its parameters start as the oracle's, its token as the network's."""
    method.grow(oracle.task(index))
    with torch.no_grad():
        for name, parameter in parts(method).items():
            kind, _, rest = name.partition(".")
            prefix = {"tabs": f"task{index}.tab", "classifiers": f"task{index}.head"}.get(kind)
            if prefix:
                parameter.copy_(oracle.filled(f"{prefix}.{rest}", tuple(parameter.shape)))


def shown(tensor: Tensor, number: int) -> Tensor:
    """Large matrices as their probe."""
    matrix = tensor.ndim == 2 and tensor.numel() > 400
    return tensor.double() @ oracle.probe(number, tensor.shape[1], 3) if matrix else tensor


def tokens(method: ESN, images: Tensor) -> Tensor:
    return method.backbone.hidden(images, 4, JoinedPrompts({0: method.P}))


@RUNS
def test_it_learns_votes_and_predicts_as_the_public_code(prefix, frozen):
    numbers, method = oracle.numbers("methods/esn.npz"), built(frozen)
    for index in range(TASKS):
        t = f"{prefix}t{index}"
        begin(method, index)
        learn(method, index, numbers, t)
        method.end_task(oracle.task(index), Plain(data_seed=0))
        compare_state(method, numbers, t)
        if index:
            compare_choice(method, index, numbers, t)
        assert method.T.tolist() == pytest.approx(numbers[f"{t}_selected_temperatures"].tolist())
        compare_predictions(method, index, numbers, t)
    everything = torch.cat([task_images(index, 10).images for index in range(TASKS)])
    with torch.no_grad():
        for index, z in enumerate(method.scores(everything)):
            assert oracle.close(z, numbers[f"{prefix}final_logits_branch{index}"], 5e-6)


def learn(method: ESN, index: int, numbers: dict, t: str) -> None:
    task, batches = oracle.task(index), task_images(index).split(6)
    [phase] = method.phases(task)
    assert phase.passes == 4 and phase.batch == 6
    if not t.startswith("frozen"):
        with torch.no_grad():
            Z = tokens(method, batches[0].images)
            assert oracle.close(Z.double() @ oracle.probe(0, 48, 3), numbers[f"{t}_tokens_prenorm"], 3e-5)
            assert oracle.close(method.tabs[-1](normalized(Z)), numbers[f"{t}_tab_out"], 5e-6)
            [z] = method.scores(batches[0].images, index)
            assert oracle.close(z, numbers[f"{t}_logits_init"], 5e-6)
    optimizer, losses = phase.optimizer(), []
    for step in range(8):
        optimizer.param_groups[0]["lr"] = 0.02 * phase.rate(step // 2, {})
        assert optimizer.param_groups[0]["lr"] == pytest.approx(float(numbers[f"{t}_lr"][step // 2]))
        optimizer.zero_grad()
        loss = phase.loss(batches[step % 2])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            for name, parameter in parts(method).items():
                expected = numbers[f"{t}_grad_{name}"].reshape(shown(parameter, 1).shape)
                assert oracle.close(shown(parameter.grad, 1), expected, 5e-6), name
        optimizer.step()
        if step == 0 and f"{t}_step1_task_tokens" in numbers:
            for name, parameter in parts(method).items():
                expected = numbers[f"{t}_step1_{name}"].reshape(shown(parameter, 2).shape)
                assert oracle.close(shown(parameter, 2), expected, 5e-6), name
    assert losses == pytest.approx(numbers[f"{t}_losses"].tolist(), rel=2e-5)


def compare_state(method: ESN, numbers: dict, t: str) -> None:
    tab = method.tabs[-1]
    assert oracle.close(method.P, numbers[f"{t}_after_prompt"], 5e-6)
    assert oracle.close(method.head.heads[-1].weight, numbers[f"{t}_after_head"], 5e-6)
    assert oracle.close(tab.token, numbers[f"{t}_after_token"].reshape(48), 5e-6)
    assert oracle.close(tab.fc2.weight, numbers[f"{t}_after_fc2"], 5e-6)


def compare_choice(method: ESN, index: int, numbers: dict, t: str) -> None:
    """Energies of the task's training images by class, and which share each candidate wins."""
    batch = task_images(index)
    with torch.no_grad():
        z = method.scores(batch.images[batch.labels.argsort(stable=True)])
    for T in ("0.1", "1"):
        energies = torch.stack([torch.logsumexp(scores / float(T), dim=1) for scores in z], dim=1)
        assert oracle.close(energies, numbers[f"{t}_energies_T{T}"], 3e-5)
    shares = (surest(z, torch.tensor(CANDIDATES)) == index).double().mean(dim=1)
    assert shares.tolist() == pytest.approx(numbers[f"{t}_candidate_scores"].tolist())


def compare_predictions(method: ESN, index: int, numbers: dict, t: str) -> None:
    batch = unseen_images(index + 1)
    assert batch.labels.tolist() == numbers[f"{t}_true"].tolist()
    with torch.no_grad():
        z = method.scores(batch.images)
        branches = torch.stack([scores.argmax(dim=1) + 3 * i for i, scores in enumerate(z)], dim=1)
        votes = majority_vote(surest(z, method.T.unique()), len(z))
        assert branches.tolist() == numbers[f"{t}_branch_pred"].tolist()
        assert votes.tolist() == numbers[f"{t}_votes_task"].tolist()
        assert method.predict(batch).argmax(dim=1).tolist() == numbers[f"{t}_pred"].tolist()


def test_the_parts_of_the_loss_are_the_public_codes():
    numbers, method = oracle.numbers("methods/esn.npz"), built(frozen=False)
    begin(method, 0)
    learn(method, 0, numbers, "t0")
    begin(method, 1)
    batch = task_images(1).split(6)[0]
    alone = ESN(ESN.Config(**SIZES, energy_weight=0.0), oracle.backbone(), StreamInfo(0, TASKS))
    for index in range(2):
        alone.grow(oracle.task(index))
    alone.load_state(method.state())
    ce = alone.loss(batch, oracle.task(1)).item()
    assert ce == pytest.approx(float(numbers["t1_first_ce"]), rel=2e-5)
    both = method.loss(batch, oracle.task(1)).item()
    assert both - ce == pytest.approx(float(numbers["t1_first_align"]), rel=2e-5)


class Given(ESN):
    """ESN whose images are the scores (B, tasks, c) themselves."""

    def scores(self, images: Tensor, first: int = 0) -> list[Tensor]:
        return [*images.unbind(1)][first : len(self.tabs)]


class GivenScores(Trainer):
    def plain(self, task, batch, chosen=None, shared=False):
        train = oracle.numbers("methods/esn.npz")["vote_train_logits"][task.index]
        yield from Batch(torch.tensor(train)).split(batch)


def test_temperatures_are_chosen_and_vote_as_in_the_public_code_ties_included():
    numbers = oracle.numbers("methods/esn.npz")
    method = Given(ESN.Config(prompts=1, batch=7), oracle.backbone(), StreamInfo(0, 5))
    test, within = torch.tensor(numbers["vote_test_logits"]), np.arange(60) % 5
    for index in range(5):
        task = TaskInfo(index, tuple(range(5 * index, 5 * index + 5)), 5 * index)
        method.grow(task)
        method.end_task(task, GivenScores(data_seed=0))
        assert method.T.tolist() == pytest.approx(numbers[f"vote_t{index}_selected_temperatures"].tolist())
        rows = np.concatenate([within + 5 * i for i in range(index + 1)]).argsort(kind="stable")
        found = method.predict(Batch(test[: index + 1].flatten(0, 1)[rows])).argmax(dim=1)
        assert found.tolist() == numbers[f"vote_t{index}_pred"].tolist()
