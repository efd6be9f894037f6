"""Seconds of runs that did not start, from what runs like them took, or from a probe of a few steps."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from cl_bench import environment
from cl_bench.config import canonical_json
from cl_bench.data.stream import TaskInfo, task_infos
from cl_bench.plan.cost import Cost, Shapes
from cl_bench.records.record import RunRecord
from cl_bench.records.spec import RunSpec
from cl_bench.training import work
from cl_bench.training.method import Method


class Speed(NamedTuple):
    """Seconds per bare network's pass."""

    learning: float
    predicting: float


class Spent(NamedTuple):
    """What a method did in so many seconds, its statistics and decompositions among it."""

    tasks: Sequence[tuple[TaskInfo, int]]  # that it learned, with the training images of each
    images: int  # that passed while learning
    learn_seconds: float
    predicted: int  # passes of test images
    evaluate_seconds: float


def speed(method: Method, spent: Spent) -> Speed:
    """From a method that did as much, see `cl_bench.training.work`."""
    one = work.of(method, max(images for _, images in spent.tasks))
    statistics = sum(method.statistics_images(info, images) for info, images in spent.tasks)
    learned = one.of_learning(spent.images, statistics, len(spent.tasks))
    return Speed(spent.learn_seconds / learned, spent.evaluate_seconds / (spent.predicted * one.predicting))


class Measured:
    """What finished tasks on the same processor or GPU took, and their peak memory.

    Runs of the same method count before others on the same network; trials with fewer images or passes count
    too. Other numbers of prompts are scaled by their work, see `cl_bench.training.work`. A probe of a method
    counts where no run of it does.
    """

    def __init__(self, records: Iterable[RunRecord], machine: str, shapes: Shapes):
        self._speeds: dict[str, list[Speed]] = {}
        self._memory: dict[str, float] = {}
        for record in records:
            where = record.environments[-1] if record.environments else {}
            seen, tested = sum(task.images_seen for task in record.tasks), _tested(record)
            if environment.computer(where) != machine or not seen or not sum(tested):
                continue
            grown = shapes.grown_of(record)
            if grown is not None:
                self._add_record(record, grown.method, seen, sum(grown.predicting(tested)))

    def add(self, probed: Mapping[str, Speed]) -> None:
        """Count the speeds of methods, by `kind`, where no run was measured."""
        for key, found in probed.items():
            self._speeds.setdefault(key, [found])

    def _add_record(self, record: RunRecord, method: Method, seen: int, predicted: int) -> None:
        infos = task_infos(record.spec.task_classes, record.spec.joint)
        tasks = [(info, task.training_images) for info, task in zip(infos, record.tasks, strict=False)]
        learned = sum(task.learn_seconds for task in record.tasks)
        evaluated = sum(task.evaluate_seconds for task in record.tasks)
        found = speed(method, Spent(tasks, seen, learned, predicted, evaluated))
        most = max(task.peak_memory_bytes for task in record.tasks)
        besides = most - work.memory_bytes(method, max(images for _, images in tasks))
        for key in (kind(record.spec), _network(record.spec)):
            self._speeds.setdefault(key, []).append(found)
            self._memory[key] = max(self._memory.get(key, besides), besides)

    def knows(self, spec: RunSpec) -> bool:
        """Whether a run or a probe of its method on its network was measured."""
        return kind(spec) in self._speeds

    def seconds(self, spec: RunSpec, cost: Cost, done: int = 0, spared: int = 0) -> float | None:
        """What the tasks after the first `done` will take without the `spared` images.

        None where nothing like it was measured.
        """
        found = self._speeds.get(kind(spec)) or self._speeds.get(_network(spec))
        if found is None:
            return None
        learned = sum(cost.learning[done:]) - spared * cost.work.learning
        predicted = sum(cost.predicted[done:]) * cost.work.predicting
        learning, predicting = map(median, zip(*found, strict=True))
        return learned * learning + predicted * predicting

    def memory_bytes(self, spec: RunSpec, cost: Cost) -> int | None:
        """The largest peak of a run of the same method on the same network, with this one's prompts.

        None where there was none.
        """
        besides = self._memory.get(kind(spec))
        return None if besides is None else round(besides + cost.memory_bytes)


def _tested(record: RunRecord) -> list[int]:
    return [sum(record.test_sizes[: len(task.correct)]) for task in record.tasks]


def kind(spec: RunSpec) -> str:
    """The key of runs of one method that take about as long per image."""
    return canonical_json([*_network_of(spec), spec.method])


def _network(spec: RunSpec) -> str:
    """The key of runs of any method that take about as long per image."""
    return canonical_json(_network_of(spec))


def _network_of(spec: RunSpec) -> list:
    return [spec.weights_sha256, spec.backbone.image_size, spec.precision, spec.transform.augment]
