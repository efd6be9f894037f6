"""Aper has the public code's numbers in three tasks, whatever adapts in the first one."""

from collections.abc import Callable

import numpy as np
import oracle
import pytest
import torch
from cl_bench.methods.aper import Aper
from oracle_adapters import BATCH, OPTIONS, PASSES, RATE, TASKS, batch_of, fill, parts, place
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo

pytestmark = oracle.HERE
PUBLISHED = {key: value for key, value in Aper.AS_PUBLISHED.items() if key in Aper.Config.model_fields}
WAYS = {"a_": "adapter", "v_": "vpt-deep", "w_": "vpt-shallow", "x_": "ssf", "f_": "finetune"}
LOOSER = ("_dend", "_dend_probe")  # 2e-4 of the largest value, all else 2e-5
SSF = {  # the names here -> the oracle's, of scales and of shifts
    "norm1": "ssf_{}_1", "norm2": "ssf_{}_2", "qkv": "attn.ssf_{}_1", "proj": "attn.ssf_{}_2",
    "fc1": "mlp.ssf_{}_1", "fc2": "mlp.ssf_{}_2",
}  # fmt: skip


def scales_shifts(edits) -> dict[str, tuple[torch.nn.Parameter, object]]:
    """The oracle's name of each vector, with the tensor and the row of it."""
    found = {}
    for kind, bank in (("scale", edits.scale), ("shift", edits.shift)):
        found |= {f"patch_embed.ssf_{kind}_1": (bank["patches"], ...), f"ssf_{kind}_1": (bank["norm"], ...)}
        for own, name in SSF.items():
            rows = range(len(bank[own]))
            found |= {f"blocks.{l}.{name.format(kind)}": (bank[own], l) for l in rows}
    return found


@torch.no_grad()
def started(method: Aper) -> dict[str, tuple[torch.nn.Parameter, object]]:
    """All that adapts, by the oracle's names, filled as it starts there; the head is filled too."""
    adapt, edits = method.config.adapt, method.edits
    method.head.weight.copy_(oracle.filled("head.0.weight", tuple(method.head.weight.shape)))
    if adapt == "adapter":
        fill(edits, 0)
        return parts(edits)
    if adapt == "finetune":
        return {name: (value, ...) for name, value in method.copied.vit.named_parameters()}
    if adapt == "ssf":
        for name, (bank, row) in scales_shifts(edits).items():
            shape = tuple(bank[row].shape)
            scale = "scale" in name
            bank[row] = 1 + oracle.drawn(name, shape, 0.1) if scale else oracle.drawn(name, shape, 0.02)
        return scales_shifts(edits)
    deep = adapt == "vpt-deep"
    shape = (len(edits.P), 5, oracle.WIDTH) if deep else (1, 5, oracle.WIDTH)
    edits.P.copy_(oracle.drawn("vpt.deep" if deep else "vpt.shallow", shape, 0.04).view_as(edits.P))
    return {"Prompt_Tokens": (edits.P, ... if deep else None)}


class Adapted:
    """What the nine steps of the first task leave behind, by the oracle's keys."""

    def __init__(self, method: Aper):
        self.method, self.named, self.found = method, started(method), {}
        self.start = self.values()

    def values(self, of: Callable = lambda parameter: parameter) -> dict[str, Tensor]:
        """All that is trained, or something of theirs."""
        head = {"head_weight": of(self.method.head.weight), "head_sigma": of(self.method.head.sigma)[None]}
        adapted = {name: of(parameter)[row] for name, (parameter, row) in self.named.items()}
        return {key: value.detach().clone() for key, value in (adapted | head).items()}

    def note(self, when: str, values: dict[str, Tensor]) -> None:
        """Values of a moment, whole and as the oracle probes large tensors."""
        for name, value in values.items():
            key = f"t0_{name.replace('.', '_')}_{when}"
            flat = value.reshape(1, -1) if value.ndim == 1 else value.flatten(1)
            self.found |= {key: value, f"{key}_probe": flat.double() @ oracle.probe(1, flat.shape[1], 2)}

    def learn(self) -> dict[str, Tensor]:
        """Nine steps, the rate of each pass as the phase has it."""
        [phase] = self.method.phases(place(0))
        optimizer, batches, losses = phase.optimizer(), batch_of(place(0)).split(BATCH), []
        factors = [phase.rate(done, {}) for done in range(PASSES)]
        for step in range(PASSES * len(batches)):
            optimizer.param_groups[0]["lr"] = RATE * factors[step // len(batches)]
            optimizer.zero_grad()
            loss = phase.loss(batches[step % len(batches)])
            loss.backward()
            losses.append(loss.item())
            if step == 0:
                gradients = self.values(lambda parameter: parameter.grad)
                self.note("grad", gradients)
            optimizer.step()
            if step == 1:
                self.note("step2", self.values())
        end = self.values()
        self.note("end", end)
        change = {name: value - self.start[name] for name, value in end.items()}
        self.note("dend", change)
        names = sorted(self.named)
        lengths = ("grad_norm", gradients), ("delta_norm", change)
        self.found |= {
            f"t0_{key}": torch.stack([values[name].norm() for name in names]) for key, values in lengths
        }
        return self.found | {"t0_losses": torch.tensor(losses), "t0_lr_factor": torch.tensor(factors)}


@pytest.mark.parametrize(
    ("prefix", "published"),
    [
        *(pytest.param(prefix, {}, id=adapt) for prefix, adapt in WAYS.items()),
        *(pytest.param(prefix, PUBLISHED, id=f"{WAYS[prefix]}-as_published") for prefix in ("v_", "w_")),
    ],
)
def test_three_tasks_are_learned_and_scored_as_by_the_public_code(prefix, published):
    numbers = oracle.numbers("methods/simplecil_aper.npz")
    config = Aper.Config(**OPTIONS, **published, adapt=WAYS[prefix])
    method, test = Aper(config, oracle.backbone(), StreamInfo(0, TASKS)), Batch(oracle.images(9))
    found = {}
    for index in range(TASKS):
        task, t = place(index), f"t{index}"
        method.grow(task)
        if index == 0:
            adapted = Adapted(method)
            found |= adapted.learn()
        method.end_task(task, oracle.Plain(batch_of))
        found |= {f"{t}_features": method.phi(test), f"{t}_scores": method.predict(test)}
        found[f"{t}_proto"] = method.prototypes.means
    names = numbers.pop("f_t0_names")
    if prefix == "f_":
        assert names.tolist() == sorted(adapted.named)
    expected = {key.removeprefix(prefix): value for key, value in numbers.items() if key.startswith(prefix)}
    assert len(expected) >= 17
    # a sum of cosines with both signs: float32 leaves few digits of it
    sigma = found.pop("t0_head_sigma_grad").item()
    assert sigma == pytest.approx(expected.pop("t0_head_sigma_grad").item(), rel=2e-4, abs=1e-7)
    for key, value in expected.items():
        tolerance = 2e-4 if key.endswith(LOOSER) else 2e-5
        assert oracle.close(found[key], np.asarray(value), tolerance), (key, deviation(found[key], value))


def deviation(found: Tensor, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest expected value."""
    return float(np.abs(found.detach().numpy() - expected).max() / np.abs(expected).max())
