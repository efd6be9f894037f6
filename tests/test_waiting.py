"""No step of any method waits for its device, or mixes tensors of two, as far as a processor can tell."""

import copy

import pytest
import torch
import toys
from waiting import NOWHERE, Waits, Watching, no_waiting, steps_on_nothing, twin

from cl_bench.plugins import registry
from cl_bench.training.trainer import Trainer

TASKS = [[2, 0], [1, 3, 4], [5, 6]]
QUICK = ("vpt-nsp2",)  # the others take minutes in all
METHODS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in sorted(registry.plugins("methods"))
]


def built(name: str) -> tuple:
    """A method and a stream for it, augmented as a run is."""
    joint = toys.method_class(name).joint
    stream = toys.stream(TASKS, joint=joint, augment="autoaugment-cifar10")
    return toys.method(name, stream.num_tasks, passes=1), stream


@pytest.mark.parametrize("name", METHODS)
def test_between_the_first_and_the_last_step_of_a_pass_nothing_is_waited_for(name):
    method, stream = built(name)
    for index in range(min(2, stream.num_tasks)):
        torch.manual_seed(index)
        method.learn(stream.task(index), Watching(data_seed=3))


@pytest.mark.parametrize("name", METHODS)
def test_on_a_gpu_no_step_would_copy_or_meet_a_tensor_of_the_processor(name):
    method, stream = built(name)
    for index in range(min(2, stream.num_tasks)):
        task, trainer = stream.task(index), Trainer(data_seed=3)
        method.grow(task)
        method.begin_task(task, trainer)
        steps_on_nothing(method, task)
        method.minimize(task, trainer)
        method.end_task(task, trainer)


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).any()),
        lambda x: x[x > 0],
        lambda x: (x > 0).nonzero(),
        lambda x: x.unique(),
        lambda x: torch.arange(3).repeat_interleave(torch.tensor([1, 2, 3])),
        lambda x: x.index_put((x > 0,), torch.ones(5)),
    ],
)
def test_what_looks_at_a_result_is_found(wait):
    with pytest.raises(Waits), no_waiting("cpu"):
        wait(torch.arange(6.0))
    wait(torch.arange(6.0))


def test_what_does_not_look_is_let_pass():
    x = torch.arange(6.0)
    with no_waiting("cpu"):
        x[torch.tensor([0, 2])] += 1
        x[x > 3] = 0
        torch.where(x > 0, x, 1.0).topk(2)


class Spoiled:
    """A method whose loss does something with the images besides."""

    def __init__(self, spoil):
        self.method, self.stream = built("vpt-seq")
        self.task = self.stream.task(0)
        self.method.grow(self.task)
        kind = type(self.method)

        class Other(kind):
            def loss(self, batch, task):
                spoil(batch.images)
                return kind.loss(self, batch, task)

        self.method.__class__ = Other


@pytest.mark.parametrize(
    "spoil",
    [
        lambda images: torch.tensor([1.0, 2.0]).to(images.device),
        lambda images: images.cpu(),
        lambda images: images[torch.tensor([0, 1])],
        lambda images: images.mean().item(),
    ],
)
def test_a_copy_or_a_look_in_a_loss_is_found(spoil):
    spoiled = Spoiled(spoil)
    with pytest.raises(Waits):
        steps_on_nothing(spoiled.method, spoiled.task)


def test_a_tensor_of_the_processor_in_a_loss_is_found():
    spoiled = Spoiled(lambda images: images + torch.ones(8, 1, 1, 1))
    with pytest.raises(Exception, match=r"two different devices|same device"):
        steps_on_nothing(spoiled.method, spoiled.task)


def test_a_twin_has_all_tensors_of_a_method_elsewhere():
    method, stream = built("vpt-nsp2")
    method.grow(stream.task(0))
    found, _ = twin(method)
    state, own = found.state_dict(), method.state_dict()
    assert {name: value.shape for name, value in state.items()} == {n: v.shape for n, v in own.items()}
    assert {value.device for value in state.values()} == {NOWHERE}
    assert copy.deepcopy(method).P.device.type == "cpu"  # only twins are copied otherwise
