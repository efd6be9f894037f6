"""SD-LoRA has the public code's numbers in two tasks and at the start of a third."""

import oracle
import pytest
import torch
from cl_bench.methods.sd_lora import AsRun
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.lora import InWeights

pytestmark = oracle.HERE
IMAGES, CLOSE = 12, 1e-5  # images of a set; the page's tolerance
SETTINGS = {
    "learning_rate": 0.05, "batch": 6, "passes": 3, "schedule": "milestone", "milestone": 2 / 3,
    "milestone_decay": 0.1,
}  # fmt: skip
PUBLISHED = {"old_magnitudes": "restart_asis"}


def numbers() -> dict:
    return oracle.numbers("methods/sd_lora.npz")


def images_of(index: int) -> Batch:
    return Batch(oracle.images(index, IMAGES), oracle.labels(index, IMAGES))


@torch.no_grad()
def begin(method: AsRun, index: int) -> TaskInfo:
    """Announce a task; its pair and its head start as the oracle's."""
    task = oracle.task(index)
    method.grow(task)
    for kind, parameter in method.head.heads[-1].named_parameters():
        parameter.copy_(oracle.filled(f"head.{index}.{kind}", tuple(parameter.shape)))
    for l in range(4):
        for place, target in enumerate("qv"):
            name = f"lora.{index}.blocks.{l}.{target}"
            method.edits.A[l, place] = oracle.drawn(f"{name}.A", (10, 48), 0.04)
            method.edits.B[l, place] = oracle.drawn(f"{name}.B", (48, 10), 0.04)
    return task


def built(**options) -> AsRun:
    return AsRun(AsRun.Config(**{**SETTINGS, **options}), oracle.backbone(), StreamInfo(0, 3))


def named(method: AsRun, of=lambda parameter: parameter.detach()) -> dict[str, Tensor]:
    """What is trained, and of heads the old ones too, under the page's names."""
    found, edits, alpha = {}, method.edits, of(method.edits.alpha)
    for l in range(4):
        for place, target in enumerate("qv"):
            found[f"blocks.{l}.{target}.A"] = of(edits.A)[l, place]
            found[f"blocks.{l}.{target}.B"] = of(edits.B)[l, place]
    found |= {"alpha_cur": alpha[-1:]} | {f"alpha_prev.{i}": alpha[i : i + 1] for i in range(len(alpha) - 1)}
    for kind in ("weight", "bias"):
        found[f"fc.{kind}"] = torch.cat([of(getattr(head, kind)) for head in method.head.heads])
    return found


def gradient(parameter: Tensor) -> Tensor:
    return parameter.grad if parameter.requires_grad else torch.zeros_like(parameter)


def compare(found: dict[str, Tensor], page: dict, prefix: str) -> None:
    """All that the page has of one moment."""
    written = [key.removeprefix(f"{prefix}/") for key in page if key.startswith(f"{prefix}/")]
    assert len(written) >= 8
    for key in written:
        if key == "alpha_prev.0" and key not in found:
            continue  # the code makes all slots beforehand
        assert oracle.close(found[key], page[f"{prefix}/{key}"], CLOSE), (prefix, key)


def learn(method: AsRun, task: TaskInfo, page: dict) -> None:
    """The six steps of a task."""
    [phase], t, losses, rates = method.phases(task), task.index, [], []
    optimizer, batches = phase.optimizer(), images_of(task.index).split(6)
    for step in range(6):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * phase.rate(step // 2, group)
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        loss = phase.loss(batches[step % 2])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            compare(named(method, gradient), page, f"grad_{t}")
        optimizer.step()
        if step == 0:
            compare(named(method), page, f"step1_{t}")
    compare(named(method), page, f"end_{t}")
    assert losses == pytest.approx(page[f"losses_{t}"].tolist(), rel=CLOSE)
    assert rates == pytest.approx(page[f"lr_{t}"].tolist(), rel=1e-6)


@torch.no_grad()
def same_features(method: AsRun, number: int, expected) -> bool:
    """Beside the weights and added to them."""
    images, kinds = oracle.images(number, IMAGES), (method.edits, InWeights(method.edits))
    return all(oracle.close(method.backbone.features(images, edits), expected, CLOSE) for edits in kinds)


@torch.no_grad()
def without_B(method: AsRun, number: int, expected) -> bool:
    """The same where the newest pair has learned nothing yet."""
    B = method.edits.B.clone()
    method.edits.B.zero_()
    found = same_features(method, number, expected)
    method.edits.B.copy_(B)
    return found


def test_as_published_it_learns_and_predicts_as_the_public_code():
    page, method = numbers(), built(**PUBLISHED)
    for index in range(2):
        task = begin(method, index)
        assert same_features(method, index, page[f"feat_start_{index}"])
        if index:
            assert without_B(method, 1, page["feat_start_1_B0"])
        learn(method, task, page)
        assert same_features(method, index, page[f"feat_end_{index}"])
        with torch.no_grad():
            scores = method.predict(Batch(oracle.images(2, IMAGES)))
        assert oracle.close(scores, page[f"score_{index}"], CLOSE)
        if index == 0:
            norms = [method.edits.A.flatten(2).norm(dim=2), method.edits.B.flatten(2).norm(dim=2)]
            assert oracle.close(torch.stack(norms, dim=2).flatten(0, 1), page["norms_0"], CLOSE)
    begin(method, 2)
    assert method.edits.alpha.tolist() == pytest.approx([0.8] * 3)
    assert same_features(method, 2, page["feat_start_2_B_filled"])
    assert without_B(method, 2, page["feat_start_2_B0"])


def test_as_meant_the_first_two_tasks_are_the_same_but_for_what_magnitudes_have_learned():
    page, method = numbers(), built()
    learn(method, begin(method, 0), page)
    begin(method, 1)
    learned, started = method.edits.alpha.tolist()
    assert learned == pytest.approx(float(page["end_0/alpha_cur"][0]), rel=1e-6) and started == pytest.approx(
        0.8
    )
    assert learned != pytest.approx(0.8, abs=1e-5)
    method.edits.alpha.detach()[0] = 0.8
    assert same_features(method, 1, page["feat_start_1"])
