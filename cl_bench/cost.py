"""What a run costs before it starts: passes through the network, what is trained and kept; seconds once its kind was measured."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from cl_bench import assemble, certificate, environment, runner
from cl_bench.config import canonical_json
from cl_bench.method import GradientMethod, Method
from cl_bench.record import RunRecord, RunSpec
from cl_bench.stream import task_infos


@dataclass(frozen=True)
class Cost:
    """The first four are per task. A forward-equivalent is one image's pass through the backbone, a backward pass counts as one more."""

    forwards: tuple[int, ...]  # of learning
    evaluating: tuple[int, ...]  # of the evaluation after the task, with the losses that are followed, and the certificate after the last
    images: tuple[int, ...]  # that pass while learning
    test_images: tuple[int, ...]  # that are predicted after the task
    shared_forwards: int  # of the first task's training alone, which runs may share
    shared_images: int
    statistics_name: str | None  # under which the first task's statistics are shared too
    statistics_images: int  # a forward pass each
    parameters: int  # trained in the last task
    stored_bytes: int  # kept besides the backbone after the last task: the size of a checkpoint


def costs(specs: Sequence[RunSpec]) -> dict[str, Cost]:
    """The cost of every run by its id; for runs that differ in seeds only it is worked out once."""
    sources, labels, found = {}, {}, {}
    for spec in specs:
        place = (spec.dataset, spec.dataset_argument)
        if place not in sources:
            sources[place] = assemble.open_source(spec)
            labels[place] = tuple(sources[place].labels(side) for side in ("train", "test"))
        if spec.family_id() not in found:
            method = assemble.build_method(spec, sources[place], torch.device("cpu"), spec.num_learned)
            found[spec.family_id()] = _cost(spec, method, *labels[place])
    return {spec.run_id(): found[spec.family_id()] for spec in specs}


def _cost(spec: RunSpec, method: Method, train: np.ndarray, test: np.ndarray) -> Cost:
    rows, held = assemble.training_rows(spec, train)
    train, test = train[rows], test if held is None else train[held]
    infos = task_infos(spec.task_classes, spec.joint)
    for info in infos:
        method.grow(info)
    sizes, tests = ([int(np.isin(labels, info.classes).sum()) for info in infos] for labels in (train, test))
    seen = np.cumsum(tests).tolist()
    evaluating = [count * (not method.frozen) + new * (method.queries or method.frozen) for count, new in zip(seen, tests, strict=True)]
    evaluating[-1] += 3 * (1 + method.queries) * min(seen[-1], certificate.BLOCKS * certificate.BATCH)
    followed = [sum(sizes[: min(index + 1, runner.FOLLOWED_TASKS)]) if spec.losses else 0 for index in range(len(infos))]
    evaluating = [count + kept for count, kept in zip(evaluating, followed, strict=True)]
    augmented, last = spec.transform.augment != "none", len(infos) - 1
    first = method.statistics_images(sizes[0], last == 0) if isinstance(method, GradientMethod) else 0
    forwards = tuple(method.forwards(size, index == last, augmented) for index, size in enumerate(sizes))
    images = tuple(method.images_seen(size, index == last) for index, size in enumerate(sizes))
    return Cost(
        forwards=forwards,
        evaluating=tuple(evaluating),
        images=images,
        test_images=tuple(seen),
        shared_forwards=forwards[0] - first,
        shared_images=images[0] - first,
        statistics_name=method.statistics_name,
        statistics_images=first,
        parameters=sum(parameter.numel() for parameter in method.parameters() if parameter.requires_grad),
        stored_bytes=sum(value.numel() * value.element_size() for value in method.state().values()),
    )


class Measured:
    """What finished tasks on the same processor or GPU took: seconds per image learned and per image predicted, and the largest peak memory.

    Runs of the same method count before others on the same network; trials with fewer images or passes count too.
    """

    def __init__(self, records: Iterable[RunRecord], machine: str):
        self._learning, self._predicting, self._memory = {}, {}, {}
        for record in records:
            where = record.environments[-1] if record.environments else {}
            seen, predicted = sum(task.images_seen for task in record.tasks), sum(_tested(record))
            if environment.computer(where) != machine or not seen or not predicted:
                continue
            for key in _kinds(record.spec):
                self._learning.setdefault(key, []).append(sum(task.learn_seconds for task in record.tasks) / seen)
                self._predicting.setdefault(key, []).append(sum(task.evaluate_seconds for task in record.tasks) / predicted)
                self._memory[key] = max(self._memory.get(key, 0), *(task.peak_memory_bytes for task in record.tasks))

    def seconds(self, spec: RunSpec, cost: Cost, done: int = 0, spared: int = 0) -> float | None:
        """What the tasks after the first `done` will take without the `spared` images; None where nothing like it was measured."""
        key = next((key for key in _kinds(spec) if key in self._learning), None)
        if key is None:
            return None
        return (sum(cost.images[done:]) - spared) * median(self._learning[key]) + sum(cost.test_images[done:]) * median(self._predicting[key])

    def memory_bytes(self, spec: RunSpec) -> int | None:
        """The largest peak of a run of the same method on the same network, None where there was none."""
        return self._memory.get(_kinds(spec)[0])


def _tested(record: RunRecord) -> list[int]:
    return [sum(record.test_sizes[: len(task.correct)]) for task in record.tasks]


def _kinds(spec: RunSpec) -> list[str]:
    """Keys of runs that take about as long per image, the most alike first."""
    network = [spec.weights_sha256, spec.backbone.image_size, spec.precision, spec.transform.augment]
    return [canonical_json([*network, spec.method]), canonical_json(network)]
