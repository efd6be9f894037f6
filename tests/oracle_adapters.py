"""Tasks of four classes, and the steps of adapters and a cosine head on their images in order."""

import oracle
import pytest
import torch

from cl_bench.data.batch import Batch
from cl_bench.data.stream import TaskInfo
from cl_bench.nn.adapter import Adapters
from cl_bench.nn.heads import CosineHeads
from cl_bench.training.phase import Phase

IMAGES, CLASSES, TASKS = 24, 4, 3
BATCH, PASSES, RATE = 10, 3, 0.2
OPTIONS = {"bottleneck": 8, "dropout": 0.0, "learning_rate": RATE, "batch": BATCH, "passes": PASSES}
CLOSE = 2e-5  # of the largest value


class Place(TaskInfo):
    def __len__(self) -> int:
        return IMAGES


def place(index: int) -> Place:
    return Place(index, tuple(range(CLASSES * index, CLASSES * (index + 1))), CLASSES * index)


def batch_of(task: TaskInfo) -> Batch:
    return Batch(oracle.images(task.index, IMAGES), torch.arange(IMAGES) % CLASSES + task.first_label)


def parts(adapters: Adapters) -> dict[str, tuple[torch.nn.Parameter, int]]:
    """The oracle's name of every adapter tensor, with the parameter and the block of it."""
    named = {
        "down_weight": adapters.down,
        "down_bias": adapters.down_bias,
        "up_weight": adapters.up,
        "up_bias": adapters.up_bias,
    }
    return {f"l{l}_{name}": (part, l) for l in range(4) for name, part in named.items()}


@torch.no_grad()
def fill(adapters: Adapters, index: int) -> None:
    """The values from which a task's adapters start."""
    for key, (part, l) in parts(adapters).items():
        name = f"adapter.{index}.blocks.{l}.{key.partition('_')[2].replace('_', '.')}"
        part[l] = oracle.filled(name, tuple(part[l].shape))


def learn(adapters: Adapters, head: CosineHeads, phase: Phase, task: Place, numbers: dict) -> None:
    """Nine steps of a task, compared with the oracle's: the first gradients, two steps, and the end."""
    with torch.no_grad():
        head.weight.copy_(oracle.filled(f"head.{task.index}.weight", (CLASSES, oracle.WIDTH)))
    optimizer, losses, batches, t = phase.optimizer(), [], batch_of(task).split(BATCH), f"t{task.index}"
    for step in range(PASSES * len(batches)):
        factor = phase.rate(step // len(batches), {})
        assert factor == pytest.approx(float(numbers[f"{t}_lr_factor"][step // len(batches)]))
        optimizer.param_groups[0]["lr"] = RATE * factor
        optimizer.zero_grad()
        loss = phase.loss(batches[step % len(batches)])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            compare(adapters, head, numbers, t, "grad", lambda parameter: parameter.grad)
        optimizer.step()
        if step == 1 and task.index == 0:
            compare(adapters, head, numbers, t, "step2")
    compare(adapters, head, numbers, t, "end")
    assert losses == pytest.approx(numbers[f"{t}_losses"].tolist(), rel=CLOSE)


def compare(adapters, head, numbers, t, when, of=lambda parameter: parameter) -> None:
    """All arrays that the oracle has of this moment."""
    found = {key: of(part)[l] for key, (part, l) in parts(adapters).items()}
    found |= {"head_weight": of(head.weight), "head_sigma": of(head.sigma)[None]}
    written = [key for key in numbers if key.startswith(f"{t}_") and key.endswith(f"_{when}")]
    assert len(written) >= len(parts(adapters))
    for key in written:
        name = key.removeprefix(f"{t}_").removesuffix(f"_{when}")
        assert oracle.close(found[name], numbers[key], CLOSE), key
