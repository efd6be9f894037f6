"""LAE has the public code's numbers in two tasks, with each of its modules (folder `shared/oracle`)."""

from collections.abc import Iterator

import oracle
import pytest
import torch
from cl_bench.methods.lae import LAE
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.training.phase import Phase

pytestmark = oracle.HERE
TOLERANCE = 2e-5  # of the page
# Adam divides a gradient by its own size: an entry whose gradient is mostly rounding moves by what a
# processor makes of that, and one of 240 does
BEHIND_ADAM = 1e-4
TASKS = [TaskInfo(0, (0, 1, 2), 0), TaskInfo(1, (3, 4), 3)]
LABELS = [[0, 1, 2, 0, 1, 2, 0, 1], [3, 4, 3, 4, 3, 4, 3, 4]]
TEST = Batch(oracle.images(2, 6))
NUMBERS = oracle.numbers("methods/lae.npz") if oracle.FOLDER.is_dir() else {}


def built(pet: str) -> LAE:
    """The method in the sizes of the page, with its initial values."""
    sizes = {"rank": 5, "prompt_length": 10, "layers": 3, "batch": 4, "passes": 3}
    config = LAE.Config(pet=pet, frozen_share=1 / 3, decay=0.9, **sizes)
    method = LAE(config, oracle.backbone(), StreamInfo(0, len(TASKS)))
    with torch.no_grad():
        for name, value in parts(pet, method.edits).items():
            scale = 1 + oracle.drawn(name, (), 0.1) if name.endswith("scale") else None
            value.copy_(oracle.filled(name, tuple(value.shape)) if scale is None else scale)
    return method


def parts(pet: str, module: torch.nn.Module, grad: bool = False) -> dict[str, Tensor]:
    """The module's values, or their gradients, by the page's names."""
    own = {name: value.grad if grad else value for name, value in module.named_parameters()}
    named = {
        "adapter": {"down.weight": "down", "down.bias": "down_bias", "up.weight": "up", "up.bias": "up_bias"},
        "lora": {},
        "prefix": {"key.tokens": "K", "val.tokens": "V"},
    }[pet]
    found = {}
    for i in range(3):
        found |= {f"{pet}.{i}.{key}": own[name][i] for key, name in named.items()}
        scales = {"adapter": ["scale"], "lora": ["k.scale", "v.scale"], "prefix": ["key.scale", "val.scale"]}
        for place, key in enumerate(scales[pet]):
            found[f"{pet}.{i}.{key}"] = own["scale"][i].reshape(-1)[place]
        for place, key in enumerate("kv" if pet == "lora" else ""):
            found |= {f"{pet}.{i}.{key}.{name}": own[name][i, place] for name in ("A", "B")}
    return found


def head(index: int) -> tuple[Tensor, Tensor]:
    rows = len(TASKS[index].classes)
    return tuple(
        oracle.filled(f"heads.{index}.{name}", shape)
        for name, shape in (("weight", (rows, oracle.WIDTH)), ("bias", (rows,)))
    )


def close(key: str, found: Tensor, tolerance: float = TOLERANCE) -> bool:
    return oracle.close(found, NUMBERS[key], tolerance)


def every(prefix: str, found: dict[str, Tensor], tolerance: float = TOLERANCE) -> None:
    for name, value in found.items():
        assert close(f"{prefix}/{name}", value, tolerance), (prefix, name)


def batches(index: int) -> Iterator[Batch]:
    yield from Batch(oracle.images(index), torch.tensor(LABELS[index])).split(4)


def steps(phases: list[Phase], index: int) -> Iterator[tuple[int, float, bool]]:
    """Number and loss of every step, before it and (True) behind it."""
    number = 0
    for phase in phases:
        optimizer = phase.optimizer()
        for done in range(phase.passes):
            assert all(phase.rate(done, group) == 1 for group in optimizer.param_groups)
            for batch in batches(index):
                optimizer.zero_grad()
                loss = phase.loss(batch)
                loss.backward()
                yield number, loss.item(), False
                optimizer.step()
                phase.after_step()
                yield number, loss.item(), True
                number += 1


@pytest.mark.parametrize("pet", ["adapter", "lora", "prefix"])
def test_both_modules_learn_accumulate_and_predict_as_in_the_public_code(pet):
    method = built(pet)
    for index, task in enumerate(TASKS):
        t = f"{pet}/t{index}"
        method.grow(task)
        with torch.no_grad():
            for parameter, value in zip(method.head.heads[index].parameters(), head(index), strict=True):
                parameter.copy_(value)
        if index == 0:
            features = method.backbone.features(TEST.images, method.edits)
            assert close(f"{pet}/init/features", features)
            assert close(f"{pet}/init/logits", method.head(features))
        newest = method.head.heads[index]
        for number, loss, behind in steps(method.phases(task), index):
            if not behind:
                assert loss == pytest.approx(float(NUMBERS[f"{t}s{number}/loss"]), rel=TOLERANCE)
            if number == 0 and not behind:
                assert close(f"{t}s0/grad/heads.{index}.weight", newest.weight.grad)
                assert close(f"{t}s0/grad/heads.{index}.bias", newest.bias.grad)
            if number == 0 and behind:
                assert close(f"{t}s0/after/heads.{index}.weight", newest.weight)
            if (index, number) in ((0, 0), (1, 2)) and not behind:
                every(f"{t}s{number}/grad", parts(pet, method.edits, grad=True))
            if (index, number) == (0, 0) and behind:
                every(f"{t}s0/after", parts(pet, method.edits), BEHIND_ADAM)
        every(f"{t}/on", parts(pet, method.edits), BEHIND_ADAM)
        if index:
            every(f"{t}/off", parts(pet, method.offline), BEHIND_ADAM)
        assert close(f"{t}/heads.{index}.weight", newest.weight)
        assert close(f"{t}/heads.{index}.bias", newest.bias)
        for name, expert in (("on", method.edits), ("off", method.offline))[: index + 1]:
            z = method.head(method.backbone.features(TEST.images, expert))
            assert close(f"{t}/logits_{name}", z)
        assert close(f"{t}/scores", method.predict(TEST).exp())
    assert close(f"{pet}/t0/heads.0.weight", method.head.heads[0].weight)
