"""OVOR: one prompt for all tasks, passes of the head alone, and what they leave as it is."""

import math

import pytest
import torch
import toys
from lessons import after, alike
from pydantic import ValidationError
from torch.nn import functional as F

from cl_bench.errors import InputError
from cl_bench.nn.prompts import SharedPrefixes
from cl_bench.training.outliers import Samples, regularization
from cl_bench.training.trainer import Trainer

TASKS = [[2, 0], [1, 3, 4], [5, 6]]


def test_passes_with_outliers_train_the_head_and_leave_the_prompts():
    alone, regularized = (after(2, "ovor", passes=1, outlier_passes=count) for count in (0, 2))
    for one, two in zip(alone.edits.P, regularized.edits.P, strict=True):
        assert torch.equal(one, two)  # the rate of a first pass does not depend on how many follow
    heads = [method.head.heads[1].weight for method in (alone, regularized)]
    assert not torch.equal(*heads)
    assert alone.diagnostics() == {"outlier_losses": []}
    assert len(regularized.diagnostics()["outlier_losses"]) == 2


def test_a_pass_of_the_head_alone_comes_first_but_not_in_the_first_task():
    method, stream = toys.method("ovor", 3, warmup_passes=2), toys.stream(TASKS)
    names = [[phase.name for phase in method.phases(stream.info(index))] for index in range(2)]
    assert names == [["training"], ["warm-up", "training"]]
    toys.learn(method, stream, upto=1)
    before = [P.detach().clone() for P in method.edits.P]
    task = stream.task(1)
    method.grow(task)
    method.begin_task(task, None)
    weight = method.head.heads[1].weight.detach().clone()
    Trainer(data_seed=0).fit(task, method.phases(task)[0])
    assert all(torch.equal(P, old) for P, old in zip(method.edits.P, before, strict=True))
    assert not torch.equal(method.head.heads[1].weight, weight)


def test_one_adam_and_one_cosine_go_through_all_passes_of_a_task():
    method, stream = toys.method("ovor", 3, warmup_passes=1, passes=3, outlier_passes=2), toys.stream(TASKS)
    toys.learn(method, stream, upto=1)
    task = stream.task(1)
    method.grow(task)
    method.begin_task(task, None)
    assert not method.moments
    trainer = Trainer(data_seed=0)
    rates = []
    for phase in method.phases(task):
        rates += [phase.rate(done, {}) for done in range(phase.passes)]
        trainer.fit(task, phase)
    method.end_task(task, trainer)
    assert rates == pytest.approx([math.cos(0.495 * math.pi * e / 5) for e in range(4)])
    steps = -(-len(task) // 8)
    head, prompt = method.head.heads[1].weight, method.edits.P[0]
    assert [int(method.moments[part]["step"]) for part in (head, prompt)] == [6 * steps, 3 * steps]


@pytest.mark.parametrize(("schedule", "lag"), [("unlagged", 0), ("lagged", 1)])
def test_the_cosine_covers_the_passes_of_all_kinds(schedule, lag):
    method = toys.method("ovor", 3, warmup_passes=1, passes=16, outlier_passes=4, schedule=schedule)
    assert method.rate(20) == pytest.approx(math.cos(0.495 * math.pi * (20 - lag) / 20))


def test_the_loss_of_a_pass_with_outliers_is_that_of_both_parts():
    method, task = after(1, "ovor", temperature=1.0, outlier_weight=0.3), toys.stream(TASKS).info(0)
    f, o, labels = torch.randn(6, 32), torch.randn(4, 32), torch.arange(6) % 2
    head = method.head.heads[0]
    expected = F.cross_entropy(head(f), labels) + 0.3 * regularization(head(f), head(o), method.config)
    assert method.outlier_loss(Samples(f, labels, o), task).item() == pytest.approx(expected.item(), rel=1e-5)


def test_every_task_tunes_the_same_prompts_on_and_an_image_passes_once():
    method = after(3, "ovor")
    assert [tuple(P.shape) for P in method.edits.P] == [(4, 32), (4, 32)] and method.prediction_passes == 1
    assert {key for key in method.state() if not key.startswith("head.")} == {"edits.P.0", "edits.P.1"}
    assert not alike(method.edits.P, after(2, "ovor").edits.P, ["0", "1"])


def test_the_published_prompts_are_107520_values_between_0_and_1():
    prompts = SharedPrefixes([10, 10, 40, 40, 40], 768, torch.Generator().manual_seed(0))
    values = torch.cat([P.detach().flatten() for P in prompts.P])
    assert len(values) == 107_520 and 0 <= float(values.min()) < 1e-3 < 0.999 < float(values.max()) <= 1
    assert prompts.keys() == {0: 5, 1: 5, 2: 20, 3: 20, 4: 20}


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="g_layers=2 and e_layers=3 need 5 blocks"):
        toys.method("ovor", 3, g_layers=2, e_layers=3)
    with pytest.raises(ValidationError, match="multiple of 2"):
        toys.method("ovor", 3, e_length=5)
