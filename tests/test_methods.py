"""The contract every registered method, and the README's example, passes on a toy ViT with 1, 2 and 4 tasks of unequal size."""

import copy
import functools
import gc

import numpy as np
import pytest
import torch
import toys
from timm.models.vision_transformer import VisionTransformer

from cl_bench import registry
from cl_bench.data.batch import Batch
from cl_bench.errors import RunFailed
from cl_bench.nn.precision import network_in
from cl_bench.training.method import GradientMethod
from cl_bench.training.query_method import QueryTuning

METHODS = [*sorted(registry.plugins("methods")), toys.README_EXAMPLE]
GRADIENT = [name for name in METHODS if issubclass(toys.method_class(name), GradientMethod)]
TASKS = {1: [[2, 0, 1, 3]], 2: [[2, 0], [1, 3, 4]], 4: [[2, 0], [1, 3, 4], [5, 6], [8, 7, 9]]}
cases = pytest.mark.parametrize(
    ("name", "tasks"),
    [(name, TASKS[n]) for name in METHODS for n in TASKS],
    ids=lambda v: v if isinstance(v, str) else len(v),
)
methods = pytest.mark.parametrize("name", METHODS)
gradient_methods = pytest.mark.parametrize("name", GRADIENT)


def learned(name, tasks, **options):
    stream = toys.stream(tasks, joint=toys.method_class(name).joint)
    method = toys.method(name, stream.num_tasks, **options)
    toys.learn(method, stream)
    return method, stream


def already_learned(name, tasks):
    """As `learned`, but trained once for all tests that only look at what comes out; a copy each."""
    return copy.deepcopy(_learned(name, tuple(map(tuple, tasks))))


@functools.cache
def _learned(name, tasks):
    return learned(name, [list(task) for task in tasks])


def some_images(count: int = 20) -> torch.Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(5))


@cases
def test_scores_cover_exactly_the_classes_seen_after_every_task(name, tasks):
    stream = toys.stream(tasks, joint=toys.method_class(name).joint)
    method = toys.method(name, stream.num_tasks)
    for index in range(stream.num_tasks):
        toys.learn(method, stream, upto=index + 1, start=index)
        seen = sum(len(task) for task in (tasks if method.joint else tasks[: index + 1]))
        scores = method.predict(Batch(some_images()))
        assert scores.shape == (20, seen)
        assert torch.isfinite(scores).all()
        evaluation = stream.evaluate(method.predict, index + 1)
        assert len(evaluation.correct) == (len(tasks) if method.joint else index + 1)
        assert all(
            0 <= right <= size for right, size in zip(evaluation.correct, stream.test_sizes, strict=False)
        )


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "tasks", [pytest.param(TASKS[n], marks=() if n == 2 else pytest.mark.slow, id=str(n)) for n in TASKS]
)
def test_it_learns_something(name, tasks):
    if name == "clip-zeroshot":
        pytest.skip("does not learn")
    method, stream = learned(name, tasks, passes=20)
    final = stream.evaluate(method.predict, stream.num_tasks)
    chance = 1 / sum(len(task) for task in tasks)
    if isinstance(
        method, QueryTuning
    ):  # without a temperature the heads' scores are not comparable on so few images
        assert sum(final.correct_within_task) / sum(stream.test_sizes) > 0.6
    else:
        assert sum(final.correct) / sum(stream.test_sizes) > 1.5 * chance
    assert final.correct_within_task[-1] / stream.test_sizes[-1] > 0.6


@cases
def test_predictions_depend_on_the_image_alone(name, tasks):
    method, _ = already_learned(name, tasks)
    images = some_images()
    together = method.predict(Batch(images))
    alone = torch.cat([method.predict(Batch(image[None])) for image in images])
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    shuffled = method.predict(Batch(images[order]))
    assert torch.allclose(together, alone, atol=1e-5)
    assert torch.allclose(together[order], shuffled, atol=1e-5)
    assert torch.equal(together.argmax(1), alone.argmax(1))


@cases
def test_predicting_changes_nothing(name, tasks):
    method, stream = already_learned(name, tasks)
    before = {key: value.clone() for key, value in method.state_dict().items()}
    first = method.predict(Batch(some_images()))
    stream.evaluate(method.predict, stream.num_tasks)
    assert torch.equal(first, method.predict(Batch(some_images())))
    assert all(torch.equal(value, before[key]) for key, value in method.state_dict().items())


@methods
def test_the_backbone_stays_bit_equal_and_in_evaluation_mode(name):
    method, _ = already_learned(name, TASKS[4])
    fresh = toys.backbone_for(name)
    assert all(
        torch.equal(value, fresh.state_dict()[key]) for key, value in method.backbone.state_dict().items()
    )
    assert not any(parameter.requires_grad for parameter in method.backbone.parameters())
    method.train()
    assert not method.backbone.vit.training


@methods
def test_the_same_seeds_give_the_same_numbers(name):
    first, second = already_learned(name, TASKS[4])[0], learned(name, TASKS[4])[0]
    assert all(torch.equal(value, second.state()[key]) for key, value in first.state().items())


@methods
def test_the_first_task_does_not_depend_on_how_many_follow(name):
    if toys.method_class(name).joint:
        pytest.skip("learns everything as one task")
    outcomes = []
    for tasks in (TASKS[4][:1], TASKS[4][:2], TASKS[4]):
        stream = toys.stream(tasks)
        method = toys.method(
            name, stream.num_tasks, components=2 * stream.num_tasks
        )  # CODA-Prompt shares its components among the tasks
        toys.learn(method, stream, upto=1)
        outcomes.append(method.predict(Batch(some_images())))
    assert torch.equal(outcomes[0], outcomes[1]) and torch.equal(outcomes[0], outcomes[2])


@methods
def test_a_restored_method_goes_on_bit_for_bit(name):
    if toys.method_class(name).joint:
        pytest.skip("has one task")
    stream = toys.stream(TASKS[4])
    whole = toys.method(name, 4)
    toys.learn(whole, stream)
    interrupted = toys.method(name, 4)
    toys.learn(interrupted, stream, upto=2)
    state = {key: value.clone() for key, value in interrupted.state().items()}
    resumed = toys.method(name, 4)
    for index in range(2):
        resumed.grow(stream.info(index))
    resumed.load_state(state)
    assert torch.equal(resumed.predict(Batch(some_images())), interrupted.predict(Batch(some_images())))
    toys.learn(resumed, stream, start=2)
    assert all(torch.equal(value, resumed.state()[key]) for key, value in whole.state().items())


@methods
def test_a_checkpoint_of_other_names_or_shapes_is_refused(name):
    method, _ = already_learned(name, TASKS[1])
    state = method.state()
    key = next(iter(state))
    with pytest.raises(RuntimeError):
        method.load_state({k: v for k, v in state.items() if k != key})
    with pytest.raises(RuntimeError):
        method.load_state({**state, key: torch.zeros(3, 5)})


@methods
def test_no_test_image_is_reachable_while_learning(name):
    stream = toys.stream(TASKS[2], joint=toys.method_class(name).joint)
    test = stream._test
    hidden = {id(test), id(test.images), id(test.labels), id(stream)}
    method = toys.method(name, stream.num_tasks)
    for index in range(stream.num_tasks):
        task = stream.task(index)
        assert not hidden & reachable(task)
        stream.__dict__["_test"] = None  # any look at it now fails
        toys.learn(method, Recorded(task), start=0)
        stream.__dict__["_test"] = test


class Recorded:
    """A stream of the one given task."""

    num_tasks = 1

    def __init__(self, task):
        self._task = task

    def task(self, index):
        return self._task


def reachable(start) -> set[int]:
    """ids of everything the object leads to, without leaving through modules, classes and functions."""
    seen, waiting = set(), [start]
    while waiting:
        thing = waiting.pop()
        if (
            id(thing) in seen
            or isinstance(thing, type)
            or callable(thing)
            or type(thing).__name__ == "module"
        ):
            continue
        seen.add(id(thing))
        waiting += gc.get_referents(thing)
    return seen


@gradient_methods
def test_every_training_image_is_seen_once_a_pass_and_the_last_partial_batch_too(name):
    stream = toys.stream(TASKS[1], joint=toys.method_class(name).joint)
    task, seen = stream.task(0), []
    original = task.augmented_batches

    def counted(parts):
        seen.extend((pass_index, len(chosen), tuple(chosen)) for chosen, pass_index in parts)
        return original(parts)

    task.augmented_batches = counted
    toys.learn(toys.method(name, 1, batch=10, passes=2), Recorded(task))
    for pass_index in range(2):
        rows = [row for p, _, chosen in seen if p == pass_index for row in chosen]
        assert sorted(rows) == list(range(len(task)))
    assert {count for _, count, _ in seen} == {10, 48 % 10}


@gradient_methods
def test_what_an_old_head_says_of_a_feature_stays_as_learned(name):
    if toys.method_class(name).joint or name.startswith("clip-"):
        pytest.skip("has one head")
    stream = toys.stream(TASKS[4])
    method = toys.method(name, 4)
    toys.learn(method, stream, upto=1)
    head = {key: value.clone() for key, value in method.state().items() if key.startswith("head.heads.0")}
    assert head
    toys.learn(method, stream, start=1)
    assert all(torch.equal(value, method.state()[key]) for key, value in head.items())


@gradient_methods
def test_a_loss_or_parameter_that_is_not_finite_fails_the_run(name):
    stream = toys.stream(TASKS[1], joint=toys.method_class(name).joint)
    method = toys.method(name, 1)
    original, method.loss = method.loss, lambda *arguments: original(*arguments) * np.nan
    with pytest.raises(RunFailed, match="task 1 became nan in pass 1"):
        toys.learn(method, stream)
    method = toys.method(name, 1, passes=1, batch=1000)
    # the one loss is finite, what its step leaves is not
    method.after_backward = lambda task: next(p for p in method.parameters() if p.requires_grad).grad.fill_(
        np.inf
    )
    with pytest.raises(RunFailed, match="ended with parameters that are not finite"):
        toys.learn(method, stream)


def test_scores_that_are_not_finite_fail_the_run():
    stream = toys.stream(TASKS[1])
    with pytest.raises(RunFailed, match="not finite after task 1"):
        stream.evaluate(lambda images: torch.full((len(images), 4), np.nan), 1)


def test_joint_equals_sequential_tuning_on_one_task_of_all_classes():
    joint, seq = toys.method("vpt-joint", 1), toys.method("vpt-seq", 1)
    losses = [
        toys.learn(joint, toys.stream([[2, 0], [1, 3]], joint=True))[0].pass_losses,
        toys.learn(seq, toys.stream([[2, 0, 1, 3]]))[0].pass_losses,
    ]
    assert losses[0] == losses[1] and all(
        torch.equal(value, seq.state()[key]) for key, value in joint.state().items()
    )


class Passing:
    """Counts the images that pass through a method's networks, once more where they will go backward, and again where to the weights."""

    def __init__(self, method):
        self.images = 0
        for vit in (module for module in method.modules() if isinstance(module, VisionTransformer)):
            vit.patch_embed.register_forward_hook(
                lambda module, given, out: self.count(module, len(given[0]))
            )

    def count(self, module, images: int) -> None:
        self.images += images * (1 + torch.is_grad_enabled() * (2 if module.proj.weight.requires_grad else 1))


@pytest.mark.parametrize("augment", ["none", "crop"])
@methods
def test_what_a_run_costs_is_what_passes_through_the_network(name, augment):
    stream = toys.stream([[2, 0], [1, 3, 4], [5, 6]], joint=toys.method_class(name).joint, augment=augment)
    method = toys.method(name, stream.num_tasks, batch=5)
    passing = Passing(method)
    for index in range(stream.num_tasks):
        task, images, before = stream.info(index), len(stream.task(index)), passing.images
        [trainer] = toys.learn(method, stream, index + 1, index)
        assert passing.images - before == method.forwards(task, images, augment != "none")
        assert trainer.images_seen == method.images_seen(task, images)
        before = passing.images
        evaluation = stream.evaluate(method.predict, index + 1)
        sizes = stream.test_sizes[: len(evaluation.correct)]
        asked = (method.queries or method.frozen) * (sizes[-1] if index else sum(sizes))
        assert passing.images - before == sum(sizes) * (not method.frozen) + asked


@gradient_methods
def test_a_batch_learned_in_parts_has_the_gradient_of_the_whole(name):
    stream = toys.stream([[2, 0, 1]])
    whole, parts = (toys.method(name, 1, passes=1, batch=9, learning_rate=1e-3) for _ in range(2))
    if whole.couples_batch:
        pytest.skip("looks at the whole batch")
    for method, micro_batch in ((whole, None), (parts, 4)):
        toys.learn(method, stream, micro_batch=micro_batch)
    for (key, one), two in zip(whole.trained().items(), parts.trained().values(), strict=True):
        assert torch.allclose(one, two, atol=2e-5), key


@methods
def test_with_the_network_in_bf16_it_learns_and_keeps_full_precision(name):
    method, stream = already_learned(name, TASKS[2])
    half = toys.method(name, stream.num_tasks)
    toys.learn(half, stream, precision="bf16")
    assert {key: (value.shape, value.dtype) for key, value in half.state().items()} == {
        key: (value.shape, value.dtype) for key, value in method.state().items()
    }
    assert all(bool(value.isfinite().all()) for value in half.state().values())
    with network_in("bf16"):
        found = half.predict(Batch(some_images()))
    exact = half.predict(Batch(some_images()))
    assert (
        found.dtype == torch.float32
        and not torch.equal(found, exact)
        and torch.allclose(found, exact, rtol=0.1, atol=0.1 * exact.std().item())
    )
