"""What a run costs before it starts: passes, what is trained, and what is kept."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import ValidationError

from cl_bench.config import canonical_json
from cl_bench.data.declared import declared
from cl_bench.data.source import Source
from cl_bench.data.stream import StreamInfo, task_infos
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.nn.backbone import Backbone
from cl_bench.plan import outline
from cl_bench.plan.grown import Grown
from cl_bench.plugins import registry
from cl_bench.records.record import RunRecord
from cl_bench.records.spec import RunSpec
from cl_bench.run import assemble, certificate, learning
from cl_bench.training import work
from cl_bench.training.work import Work


@dataclass(frozen=True)
class Cost:
    """What a run costs in forward-equivalents, images and bytes; the first five are per task.

    A forward-equivalent is one image's pass through the backbone, a backward pass counts as one more, and so
    does what prompts and projections add, in whole passes: a pass with half as much work on top still counts
    as one.
    """

    forwards: tuple[int, ...]  # of learning
    # of the evaluation after the task, with the losses that are followed, and the certificate after the last
    evaluating: tuple[int, ...]
    images: tuple[int, ...]  # that pass while learning
    looks: tuple[float, ...]  # how often each of them does, on average
    test_images: tuple[int, ...]  # that are predicted after the task
    predicted: tuple[int, ...]  # passes of these, at least one each
    learning: tuple[float, ...]  # the work of learning, in passes through the bare network
    work: Work  # of one image
    shared_forwards: int  # of the first task's training alone, which runs may share
    shared_images: int
    statistics_name: str | None  # under which the first task's statistics are shared too
    statistics_images: int
    statistics_forwards: int
    parameters: int  # trained in the last task
    stored_bytes: int  # kept besides the backbone after the last task: the size of a checkpoint
    memory_bytes: float  # what learning takes at least besides the network
    prediction_passes: int  # of one image, after the last task


class Shapes:
    """Data sets and backbones of specifications, each opened once, and methods on the backbones' shapes."""

    def __init__(self, counted: bool = False):
        """`counted` is as of `cl_bench.plan.resolve.Opened`."""
        self._counted = counted
        self._sources: dict[tuple, tuple[Source, np.ndarray, np.ndarray]] = {}
        self._backbones: dict[str, Backbone] = {}
        self._by_weights: dict[tuple, Backbone] = {}

    def data(self, spec: RunSpec) -> tuple[Source, np.ndarray, np.ndarray]:
        """The data set with the labels of its two sides."""
        place = (spec.dataset, spec.dataset_argument)
        if place not in self._sources:
            kind = registry.source_class(spec.dataset)
            source = declared(kind) if self._counted and kind.SIZES else assemble.open_source(spec)
            self._sources[place] = (source, source.labels("train"), source.labels("test"))
        return self._sources[place]

    def grown(self, spec: RunSpec, images: int) -> Grown:
        """The method after its tasks, of about so many images each, were announced. Raises InputError."""
        key = canonical_json(spec.backbone.model_dump())
        if key not in self._backbones:
            found = self._backbones[key] = outline.of(load.load(spec.backbone, self._counted))
            self._by_weights[found.weights_sha256, spec.backbone.image_size] = found
        return self._grown(spec, self._backbones[key], images)

    def grown_of(self, record: RunRecord) -> Grown | None:
        """The method of a record.

        None where its network is not one that was asked for, or it is not a method of now.
        """
        spec = record.spec
        shape = self._by_weights.get((spec.weights_sha256, spec.backbone.image_size))
        try:
            return None if shape is None else self._grown(spec, shape, record.tasks[0].training_images)
        except (InputError, ValidationError):
            return None

    @staticmethod
    def _grown(spec: RunSpec, shape: Backbone, images: int) -> Grown:
        kind = registry.method_class(spec.method)
        sizes = tuple(len(classes) for classes in spec.task_classes)
        info = StreamInfo(spec.init_seed, spec.num_learned, task_sizes=sizes)
        config = kind.Config.model_validate(spec.options)
        method, passes = outline.build(kind, config, shape, info, spec.label, images), []
        with method.device:
            for task in task_infos(spec.task_classes, spec.joint):
                method.grow(task)
                passes.append((method.prediction_passes, method.settled_passes))
        return Grown(method, *zip(*passes, strict=True))


def costs(specs: Sequence[RunSpec], shapes: Shapes | None = None) -> dict[str, Cost]:
    """The cost of every run by its id; for runs that differ in seeds only it is worked out once.

    Raises InputError.
    """
    shapes, found = shapes or Shapes(), {}
    for spec in specs:
        if spec.family_id() not in found:
            found[spec.family_id()] = _cost(spec, shapes)
    return {spec.run_id(): found[spec.family_id()] for spec in specs}


def _cost(spec: RunSpec, shapes: Shapes) -> Cost:
    _, train, test = shapes.data(spec)
    rows, held = assemble.training_rows(spec, train)
    train, test = train[rows], test if held is None else train[held]
    infos = task_infos(spec.task_classes, spec.joint)
    sizes, tests = ([int(np.isin(labels, info.classes).sum()) for info in infos] for labels in (train, test))
    grown = shapes.grown(spec, max(sizes))
    method, seen = grown.method, np.cumsum(tests).tolist()
    one = work.of(method, max(sizes))
    evaluating = [count * max(1, round(one.predicting)) for count in _evaluated(spec, grown, sizes, tests)]
    statistics = [method.statistics_images(info, size) for info, size in zip(infos, sizes, strict=True)]
    images = tuple(method.images_seen(info, size) for info, size in zip(infos, sizes, strict=True))
    learning = tuple(one.of_learning(count, some, 1) for count, some in zip(images, statistics, strict=True))
    augmented = spec.transform.augment != "none"
    passes = [method.forwards(info, size, augmented) for info, size in zip(infos, sizes, strict=True)]
    counts = zip(learning, images, strict=True)
    times = [max(1, round(done / count)) if count else 1 for done, count in counts]
    return Cost(
        forwards=tuple(count * factor for count, factor in zip(passes, times, strict=True)),
        evaluating=tuple(evaluating),
        images=images,
        looks=tuple(count / size for count, size in zip(images, sizes, strict=True)),
        test_images=tuple(seen),
        predicted=grown.predicting(seen),
        learning=learning,
        work=one,
        shared_forwards=(passes[0] - statistics[0]) * times[0],
        shared_images=images[0] - statistics[0],
        statistics_name=method.statistics_name,
        statistics_images=statistics[0],
        statistics_forwards=statistics[0] * times[0],
        parameters=sum(parameter.numel() for parameter in method.parameters() if parameter.requires_grad),
        stored_bytes=sum(value.numel() * value.element_size() for value in method.state().values()),
        memory_bytes=work.memory_bytes(method, max(sizes)),
        prediction_passes=grown.prediction_passes[-1],
    )


def _evaluated(spec: RunSpec, grown: Grown, sizes: Sequence[int], tests: Sequence[int]) -> list[int]:
    """Passes after every task: evaluation, losses that are followed and, after the last, the certificate."""
    seen = np.cumsum(tests).tolist()
    counts = zip(seen, grown.repeated, grown.settled(tests), strict=True)
    found = [count * times + once for count, times, once in counts]
    found[-1] += 3 * grown.prediction_passes[-1] * min(seen[-1], certificate.BLOCKS * certificate.BATCH)
    if spec.losses:
        followed = [sum(sizes[: min(index + 1, learning.FOLLOWED_TASKS)]) for index in range(len(sizes))]
        found = [passes + more for passes, more in zip(found, grown.predicting(followed), strict=True)]
    return found
