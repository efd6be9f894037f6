"""VPT-Seq's control: a learning rate of its own from the second task on."""

import pytest
import toys

from cl_bench.plugins import registry

TASKS = [[2, 0], [1, 3, 4]]
ONE_STEP = {"passes": 1, "batch": 1000, "weight_decay": 0.0}


def moved(task: int, **options) -> tuple:
    """How far one step of the task moves the prompts and the current head's weights, at the first element."""
    method, stream = toys.method("vpt-seq", 2, **ONE_STEP, **options), toys.stream(TASKS)
    toys.learn(method, stream, upto=task)
    prompts = method.P.detach().clone()
    toys.learn(method, stream, upto=task + 1, start=task)
    head = method.head.heads[-1].weight.detach()
    fresh = toys.method("vpt-seq", 2, **ONE_STEP)
    for each in range(task + 1):
        fresh.grow(stream.task(each))
    return method.P.detach() - prompts, head - fresh.head.heads[-1].weight.detach()


@pytest.mark.parametrize(("whose", "heads"), [("prompts", 1.0), ("all", 0.25)])
def test_from_the_second_task_on_steps_are_as_much_smaller_as_asked(whose, heads):
    """Adam's first step is the learning rate in every element, whatever the gradient's size."""
    plain, slow = moved(1, head_init="fresh"), moved(1, head_init="fresh", later_lr=0.25, later_lr_of=whose)
    for usual, own, factor in zip(plain, slow, (0.25, heads), strict=True):
        far = usual.abs() > 0.5 * usual.abs().max()  # where eps does not count
        assert far.any() and ((own - factor * usual)[far].abs() < 1e-3 * usual.abs().max()).all()


def test_the_first_task_is_learned_at_the_usual_rate_and_shared_with_every_later_one():
    plain, slow = moved(0), moved(0, later_lr=0.25, later_lr_of="all")
    assert all((a == b).all() for a, b in zip(plain, slow, strict=True))
    kind = registry.method_class("vpt-seq")
    assert kind.trunk(kind.Config()) == kind.trunk(kind.Config(later_lr=0.25))


def test_runs_that_do_not_use_the_control_are_described_as_before_it_came():
    kind = registry.method_class("vpt-seq")
    assert not {"later_lr", "later_lr_of"} & kind.Config().recorded().keys()
    assert kind.Config(later_lr=0.5).recorded()["later_lr"] == 0.5
    assert kind.Config.model_validate(kind.Config().recorded()) == kind.Config()
