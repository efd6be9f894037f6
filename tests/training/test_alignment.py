"""Alignment on draws: what is drawn, how often, and what it leaves behind."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cl_bench.data.stream import TaskInfo
from cl_bench.errors import RunFailed
from cl_bench.nn.gaussians import ClassGaussians
from cl_bench.training import alignment
from cl_bench.training.alignment import (
    HeadAlignmentConfig,
    StepAlignmentConfig,
    align_heads,
    align_in_steps,
    around_smaller_means,
    draws,
)
from cl_bench.training.trainer import Trainer

SGD = {"momentum": 0.9, "weight_decay": 0.0}


def known(*means: list[float]) -> ClassGaussians:
    """Narrow Gaussians with these means."""
    made = ClassGaussians(2, 1e-8, torch.device("cpu"))
    made.grow(len(means))
    made.means.copy_(torch.tensor(means))
    made.factors[:, [0, 2]] = 1e-4
    return made


def test_every_class_is_drawn_equally_often_shuffled_and_in_whole_batches(monkeypatch):
    monkeypatch.setattr(alignment, "BATCH", 4)
    made = known([1.0, 0.0], [0.0, 1.0], [5.0, 5.0])
    batches = list(draws(made, 4, (1,)))
    assert [len(batch) for batch in batches] == [4, 4, 4]
    labels, drawn = (torch.cat([getattr(b, part) for b in batches]) for part in ("labels", "images"))
    assert labels.bincount().tolist() == [4, 4, 4] and len(batches[0].labels.unique()) > 1
    assert torch.allclose(drawn, made.means[labels], atol=1e-2)
    again, other = (torch.cat([batch.images for batch in draws(made, 4, (key,))]) for key in (1, 2))
    assert torch.equal(drawn, again) and not torch.equal(drawn, other)


def test_draws_lie_around_the_smaller_means_the_older_a_class_is():
    """Of three tasks with decay 0.1: 0.9 + 0.1 / 3, 0.9 + 0.2 / 3 and 1 times the mean; spread as it was."""
    made = known([3.0, 0.0], [0.0, 3.0], [3.0, 3.0], [6.0, 0.0])
    drawn = made.means[:, None] + torch.tensor([[0.5, 0.0], [-0.5, 0.0]])
    change = around_smaller_means(made, torch.tensor([0, 0, 1, 2]), 0.1)
    expected = torch.tensor([[2.8, 0.0], [0.0, 2.8], [2.9, 2.9], [6.0, 0.0]])
    assert torch.allclose(change(drawn, None).mean(1), expected, atol=1e-6)
    assert torch.allclose(change(drawn, None)[:, 0] - change(drawn, None)[:, 1], torch.tensor([1.0, 0.0]))
    for factor, tasks in ((0.0, [0, 0, 1, 2]), (0.1, [0, 0, 0, 0])):
        same = around_smaller_means(made, torch.tensor(tasks), factor)(drawn, None)
        assert torch.allclose(same, drawn, atol=1e-6)


def test_aligned_heads_tell_the_classes_apart_and_are_frozen_again():
    made, heads = known([1.0, 0.0], [0.0, 1.0]), nn.Linear(2, 2).requires_grad_(False)
    seen = []

    def loss(batch):
        seen.append(len(batch))
        return F.cross_entropy(heads(batch.images), batch.labels)

    config = HeadAlignmentConfig(align_passes=30, align_samples=200, align_rate=0.5)
    task = TaskInfo(1, (1,), 1)
    losses = align_heads(heads, loss, made, config, SGD, lambda drawn, _: drawn, task, Trainer(0), 0)
    assert len(losses) == 30 and losses[-1] < 0.3 * losses[0] and seen[:2] == [256, 144]
    assert heads(made.means).argmax(1).tolist() == [0, 1]
    assert all(p.grad is None and not p.requires_grad for p in heads.parameters())


def test_alignment_in_steps_takes_as_many_a_pass_and_freezes_the_part_again():
    made, seen = known([1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]), []
    part = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)).requires_grad_(False)
    part.register_forward_hook(lambda module, given, out: seen.append(len(out)))
    config, task = StepAlignmentConfig(align_passes=40), TaskInfo(1, (2,), 2)
    losses = align_in_steps(part, made, 0.2, 10, 2, config, task, Trainer(0), (1,))
    assert len(losses) == 40 and losses[-1] < 0.3 * losses[0] and seen == [10] * 80
    assert part(made.means).argmax(1).tolist() == [0, 1, 2]
    assert all(p.grad is None and not p.requires_grad for p in part.parameters())


def test_weight_decay_of_an_alignment_in_steps_shrinks_what_it_trains():
    made, config = known([1.0, 0.0], [0.0, 1.0]), StepAlignmentConfig(align_passes=20)
    lengths = []
    for decay in (0.0, 0.5):
        part = nn.Linear(2, 2)
        nn.init.eye_(part.weight)
        align_in_steps(part, made, 0.1, 8, 2, config, TaskInfo(1, (1,), 1), Trainer(0), (1,), decay)
        lengths.append(part.weight.norm().item())
    assert lengths[1] < 0.7 * lengths[0]


def test_the_rate_of_an_alignment_in_steps_is_as_high_as_it_is_told():
    made, config, part = known([1.0, 0.0], [0.0, 1.0]), StepAlignmentConfig(align_passes=3), nn.Linear(2, 2)
    before, asked = part.weight.detach().clone(), []

    def falls(done: int) -> float:
        asked.append(done)
        return 0.0

    align_in_steps(part, made, 0.1, 8, 2, config, TaskInfo(1, (1,), 1), Trainer(0), (1,), falls=falls)
    assert torch.equal(part.weight, before) and set(asked) == {0, 1, 2}


def test_a_loss_that_is_not_finite_fails_with_what_to_do():
    made, heads = known([1.0, 0.0], [0.0, 1.0]), nn.Linear(2, 2)
    with pytest.raises(
        RunFailed, match="the alignment loss of task 2 became nan in pass 1; lower align_rate"
    ):
        align_heads(
            heads, lambda batch: heads(batch.images).sum() * float("nan"), made, HeadAlignmentConfig(), SGD,
            lambda drawn, _: drawn, TaskInfo(1, (1,), 1), Trainer(0), 0,
        )  # fmt: skip
