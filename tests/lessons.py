"""What a method's learning of a toy stream leaves behind, once for all checks that only look at it."""

import copy
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import toys
from timm.models.vision_transformer import VisionTransformer

from cl_bench.data.images import ImageSet
from cl_bench.data.stream import Evaluation, Stream, TaskInfo
from cl_bench.training.method import Method

TASKS = [[2, 0], [1, 3, 4], [5, 6]]
PASSES = {2: 20}  # of streams with so many tasks: enough to have learned something


@dataclass(frozen=True)
class Step:
    """One task learned and evaluated: the method as it was then, and what was counted on the way."""

    kept: Method
    task: TaskInfo
    images: int
    images_seen: int
    evaluation: Evaluation
    passed_learning: int
    passed_evaluating: int
    looks: int  # at test images, while learning

    def copy(self) -> Method:
        """The method, to be used as one likes."""
        return copy.deepcopy(self.kept)


@dataclass(frozen=True)
class Watched(ImageSet):
    """Images that note every look at themselves."""

    looks: list[str] = field(default_factory=list)

    def __getattribute__(self, name: str):
        if name in {"images", "labels", "rows"}:
            object.__getattribute__(self, "looks").append(name)
        return object.__getattribute__(self, name)


class Passing:
    """Counts images that pass through networks: once more to go backward, and again where to weights."""

    images = 0

    def count(self, module: torch.nn.Module, given: tuple, out: object) -> None:
        backward = torch.is_grad_enabled() * (2 if module.proj.weight.requires_grad else 1)
        self.images += len(given[0]) * (1 + backward)


@contextmanager
def passing(method: Method) -> Iterator[Passing]:
    """The count of what passes through the method's networks meanwhile."""
    counted = Passing()
    vits = [module for module in method.modules() if isinstance(module, VisionTransformer)]
    hooks = [vit.patch_embed.register_forward_hook(counted.count) for vit in vits]
    yield counted
    for hook in hooks:
        hook.remove()


def lesson(method: Method, stream: Stream, looks: list[str] | None = None) -> list[Step]:
    """The method learns the stream, evaluated after every task; `looks` grows with looks at test images."""
    steps, looks = [], [] if looks is None else looks
    for index in range(stream.num_tasks):
        before = len(looks)
        with passing(method) as learning:
            [trainer] = toys.learn(method, stream, index + 1, index)
        looked = len(looks) - before
        with passing(method) as evaluating:
            evaluation = stream.evaluate(method.predict, index + 1)
        steps.append(
            Step(
                copy.deepcopy(method), stream.info(index), len(stream.task(index)), trainer.images_seen,
                evaluation, learning.images, evaluating.images, looked,
            )
        )  # fmt: skip
    return steps


def after(upto: int, name: str, **options) -> Method:
    """A method that has learned the first tasks of three."""
    method = toys.method(name, 3, **options)
    toys.learn(method, toys.stream(TASKS), upto=upto)
    return method


def alike(one: Method, two: Method, names: list[str]) -> bool:
    """Whether two methods have the same tensors under these names."""
    return all(torch.equal(getattr(one, name), getattr(two, name)) for name in names)


def given_lesson(name: str, tasks: list[list[int]]) -> list[Step]:
    """The lesson of a method on a stream of toy images, which it learns once."""
    return _lesson(name, tuple(map(tuple, tasks)))


@functools.lru_cache(maxsize=3)
def _lesson(name: str, tasks: tuple[tuple[int, ...], ...]) -> list[Step]:
    sides = toys.sides(tasks)
    watched = Watched(sides.test.images, sides.test.labels)
    stream = toys.stream_of(
        toys.Sides(sides.train, sides.train, watched), tasks, toys.method_class(name).joint
    )
    passes = PASSES.get(len(tasks), toys.QUICK["passes"])
    steps = lesson(toys.method(name, stream.num_tasks, passes=passes), stream, watched.looks)
    assert watched.looks  # an evaluation does look
    return steps
