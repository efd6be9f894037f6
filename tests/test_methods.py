"""The contract of every registered method and of the documentation's example, on a toy ViT.

Streams have 1, 2 and 4 tasks of unequal size. A method learns each of them once for all checks that only
look at what comes out; the checks of one method follow each other, so that a process keeps one method's
lessons at a time.
"""

import gc
import re
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch
import toys
from lessons import PASSES, given_lesson, lesson

from cl_bench.data.batch import Batch
from cl_bench.errors import RunFailed
from cl_bench.nn.precision import network_in
from cl_bench.plugins import registry
from cl_bench.training.gradient_method import GradientMethod
from cl_bench.training.query_method import QueryTuning

METHODS = [*sorted(registry.plugins("methods")), toys.DOCUMENTED]
GRADIENT = [name for name in METHODS if issubclass(toys.method_class(name), GradientMethod)]
METHODS.sort(key=lambda name: name not in GRADIENT)  # pytest brings parameters of equal place together
TASKS = {1: [[2, 0, 1, 3]], 2: [[2, 0], [1, 3, 4]], 4: [[2, 0], [1, 3, 4], [5, 6], [8, 7, 9]]}
methods = pytest.mark.parametrize("name", METHODS, scope="module")
gradient_methods = pytest.mark.parametrize("name", GRADIENT, scope="module")
streams = pytest.mark.parametrize("tasks", TASKS.values(), ids=TASKS)


def learned(name, tasks, **options):
    stream = toys.stream(tasks, joint=toys.method_class(name).joint)
    method = toys.method(name, stream.num_tasks, **options)
    toys.learn(method, stream)
    return method, stream


def already_learned(name, tasks):
    """A copy of the method as it learned the stream, which it does once for all checks."""
    return given_lesson(name, tasks)[-1].copy(), toys.stream(tasks, joint=toys.method_class(name).joint)


def some_images(count: int = 20) -> torch.Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(5))


@methods
@streams
def test_scores_cover_exactly_the_classes_seen_after_every_task(name, tasks):
    sizes = toys.stream(tasks).test_sizes
    for index, step in enumerate(given_lesson(name, tasks)):
        method = step.copy()
        seen = sum(len(task) for task in (tasks if method.joint else tasks[: index + 1]))
        scores = method.predict(Batch(some_images()))
        assert scores.shape == (20, seen)
        assert torch.isfinite(scores).all()
        correct = step.evaluation.correct
        assert len(correct) == (len(tasks) if method.joint else index + 1)
        assert all(0 <= right <= size for right, size in zip(correct, sizes, strict=False))


@methods
@pytest.mark.parametrize(
    "tasks", [pytest.param(TASKS[2], id="2"), pytest.param(TASKS[4], marks=pytest.mark.slow, id="4")]
)
def test_it_learns_something(name, tasks):
    if name == "clip-zeroshot":
        pytest.skip("does not learn")
    known = tasks is TASKS[2]  # learned in as many passes
    method, stream = already_learned(name, tasks) if known else learned(name, tasks, passes=PASSES[2])
    final = stream.evaluate(method.predict, stream.num_tasks)
    chance = 1 / sum(len(task) for task in tasks)
    if isinstance(method, QueryTuning):  # scores without a temperature: not comparable on so few images
        assert sum(final.correct_within_task) / sum(stream.test_sizes) > 0.6
    else:
        assert sum(final.correct) / sum(stream.test_sizes) > 1.5 * chance
    assert final.correct_within_task[-1] / stream.test_sizes[-1] > 0.6


@methods
@streams
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


@methods
@streams
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
    kept = method.backbone.state_dict()
    assert all(torch.equal(value, kept[key]) for key, value in fresh.state_dict().items())
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
    outcomes = [given_lesson(name, TASKS[4])[0].copy().predict(Batch(some_images()))]
    shared = toys.method_class(name).SMALL.get("components", 4) // 4  # what CODA-Prompt shares among tasks
    for tasks in (TASKS[4][:1], TASKS[4][:2]):
        stream = toys.stream(tasks)
        method = toys.method(name, stream.num_tasks, components=shared * stream.num_tasks)
        toys.learn(method, stream, upto=1)
        outcomes.append(method.predict(Batch(some_images())))
    assert torch.equal(outcomes[0], outcomes[1]) and torch.equal(outcomes[0], outcomes[2])


@methods
def test_a_restored_method_goes_on_bit_for_bit(name):
    if toys.method_class(name).joint:
        pytest.skip("has one task")
    _, interrupted, _, whole = (step.copy() for step in given_lesson(name, TASKS[4]))
    stream, resumed = toys.stream(TASKS[4]), toys.method(name, 4)
    for index in range(2):
        resumed.grow(stream.info(index))
    resumed.load_state({key: value.clone() for key, value in interrupted.state().items()})
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


@pytest.mark.parametrize("name", sorted(registry.plugins("methods")), scope="module")
def test_what_its_file_says_of_it_without_being_imported_is_so(name):
    told = registry.plugins("methods")[name]
    assert told.family and (told.venue == "" or re.fullmatch(r"\S+ 20\d\d", told.venue))
    method = given_lesson(name, TASKS[4])[-1].copy()
    if not isinstance(told.passes, str):  # such as "t", one a task
        assert told.passes == method.prediction_passes, "the file needs the constant PASSES"
    assert method.keeps == "" or told.keeps.startswith(method.keeps), "the file needs the constant KEEPS"


@methods
@streams
def test_learning_looks_at_no_test_image(name, tasks):
    assert not any(step.looks for step in given_lesson(name, tasks))


@pytest.mark.parametrize("joint", [False, True])
def test_no_test_image_is_reachable_from_a_task(joint):
    sides = toys.sides(TASKS[2])
    stream = toys.stream_of(sides, TASKS[2], joint)
    hidden = {id(sides.test), id(sides.test.images), id(sides.test.labels), id(sides), id(stream)}
    assert hidden & reachable(stream)
    for index in range(stream.num_tasks):
        assert not hidden & reachable(stream.task(index))


def reachable(start) -> set[int]:
    """ids of everything the object leads to, without leaving through modules, classes and functions."""
    seen, waiting = set(), [start]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType) or callable(thing):
            continue
        seen.add(id(thing))
        waiting += gc.get_referents(thing)
    return seen


class Recorded:
    """A stream of the one given task."""

    num_tasks = 1

    def __init__(self, task):
        self.only = task

    def task(self, index):
        return self.only


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
    assert {count for p, count, _ in seen if p < 2} == {10, 48 % 10}  # later passes are of statistics


@gradient_methods
def test_what_an_old_head_says_of_a_feature_stays_as_learned(name):
    if toys.method_class(name).joint or name.startswith("clip-"):
        pytest.skip("has one head")
    first, *_, last = (step.copy() for step in given_lesson(name, TASKS[4]))
    head = {key: value for key, value in first.state().items() if key.startswith("head.heads.0")}
    assert head
    assert all(torch.equal(value, last.state()[key]) for key, value in head.items())


@gradient_methods
def test_a_loss_or_parameter_that_is_not_finite_fails_the_run(name):
    stream = toys.stream(TASKS[1], joint=toys.method_class(name).joint)
    method = toys.method(name, 1)
    spoil(method, lambda phase: replace(phase, loss=lambda batch: phase.loss(batch) * np.nan))
    with pytest.raises(RunFailed, match="task 1 became nan in pass 1;"):
        toys.learn(method, stream)
    method = toys.method(name, 1, passes=1, batch=1000)

    def fill():
        """The one loss is finite, what its step leaves is not."""
        next(p.grad for p in method.parameters() if p.grad is not None).fill_(np.inf)

    spoil(method, lambda phase: replace(phase, after_backward=fill))
    with pytest.raises(RunFailed, match="ended with parameters that are not finite"):
        toys.learn(method, stream)


def spoil(method, change):
    """Change every phase of a method."""
    phases = method.phases
    method.phases = lambda task: [change(phase) for phase in phases(task)]


def test_scores_that_are_not_finite_fail_the_run():
    stream = toys.stream(TASKS[1])
    with pytest.raises(RunFailed, match="not finite after task 1"):
        stream.evaluate(lambda images: torch.full((len(images), 4), np.nan), 1)


def test_joint_equals_sequential_tuning_on_one_task_of_all_classes():
    joint, seq = toys.method("vpt-joint", 1), toys.method("vpt-seq", 1)
    [together] = toys.learn(joint, toys.stream([[2, 0], [1, 3]], joint=True))
    [one] = toys.learn(seq, toys.stream([[2, 0, 1, 3]]))
    assert together.pass_losses == one.pass_losses
    assert all(torch.equal(value, seq.state()[key]) for key, value in joint.state().items())


@pytest.mark.slow
@methods
@pytest.mark.parametrize("augment", ["none", "crop"])
def test_what_a_run_costs_is_what_passes_through_the_network(name, augment):
    if augment == "none":
        steps, stream = given_lesson(name, TASKS[4]), toys.stream(TASKS[4])
    else:
        stream = toys.stream(TASKS[4][:3], joint=toys.method_class(name).joint, augment=augment)
        steps = lesson(toys.method(name, stream.num_tasks, batch=5), stream)
    for index, step in enumerate(steps):
        method = step.copy()
        assert step.passed_learning == method.forwards(step.task, step.images, augment != "none")
        assert step.images_seen == method.images_seen(step.task, step.images)
        sizes = stream.test_sizes[: len(step.evaluation.correct)]
        settled = method.settled_passes
        newly = settled - (steps[index - 1].copy().settled_passes if index else 0)
        once = settled * (sizes[-1] if index else sum(sizes)) + newly * sum(sizes[:-1] if index else ())
        assert step.passed_evaluating == sum(sizes) * (method.prediction_passes - settled) + once


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
    kinds = [{k: (value.shape, value.dtype) for k, value in one.state().items()} for one in (half, method)]
    assert kinds[0] == kinds[1]
    assert all(bool(value.isfinite().all()) for value in half.state().values())
    with network_in("bf16"):
        found = half.predict(Batch(some_images()))
    exact = half.predict(Batch(some_images()))
    assert found.dtype == torch.float32 and not torch.equal(found, exact)
    assert torch.allclose(found, exact, rtol=0.1, atol=0.1 * exact.std().item())
