"""The class-incremental stream: tasks that show training images only, and test images out of reach."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.device_images import Frames, uploaded
from cl_bench.data.evaluation import EVALUATION_BATCH, Evaluation, TestImages, positions
from cl_bench.data.feature_store import FeatureStore
from cl_bench.data.frozen import FrozenFeatures
from cl_bench.data.images import ImageSet
from cl_bench.data.preprocess import Preprocess
from cl_bench.data.source import Source
from cl_bench.errors import RunFailed

NO_STORES: Mapping[str, FeatureStore] = MappingProxyType({})


@dataclass(frozen=True)
class StreamInfo:
    """What a method may know before the stream starts."""

    init_seed: int
    num_tasks: int
    templates: tuple[str, ...] = Source.TEMPLATES  # sentences for text towers
    # classes of each task, for published code that predicts classes before it has learned them
    task_sizes: tuple[int, ...] = ()


@dataclass
class TaskInfo:
    """A task's place in the stream."""

    index: int
    classes: tuple[int, ...]  # in stream order
    first_label: int  # position of the first of them in the class order
    names: tuple[str, ...] = ()


def task_infos(
    task_classes: Sequence[Sequence[int]], joint: bool, names: Sequence[str] | None = None
) -> list[TaskInfo]:
    """The tasks that are learned: all classes at once with `joint`."""
    learned = [tuple(classes) for classes in task_classes]
    if joint:
        learned = [tuple(chain.from_iterable(learned))]
    infos, first = [], 0
    for index, classes in enumerate(learned):
        named = tuple(names[c] if names else f"class {c}" for c in classes)
        infos.append(TaskInfo(index, classes, first, named))
        first += len(classes)
    return infos


class Task(TaskInfo):
    """One task as a method sees it: its classes and its training images.

    Labels are positions in the class order, 0..K_seen-1.
    """

    def __init__(
        self,
        info: TaskInfo,
        train: ImageSet,
        evaluated: ImageSet,
        rows: np.ndarray,
        labels: np.ndarray,
        preprocess: Preprocess,
        frozen: FrozenFeatures,
    ):
        super().__init__(info.index, info.classes, info.first_label, info.names)
        self._rows, self._preprocess, self._frozen = rows, preprocess, frozen
        self._train, self._evaluated = train.select(rows), evaluated.select(rows)
        self.labels = torch.from_numpy(labels).to(preprocess.device)

    def _inputs(self, chosen: np.ndarray) -> Tensor:
        return self._preprocess.plain(self._evaluated.pixels(chosen), self._evaluated.ready)

    def __len__(self) -> int:
        return len(self._rows)

    def moved(self, chosen: np.ndarray) -> Frames:
        """The chosen training images (positions within the task) as they are stored, on the device."""
        return self._preprocess.moved(self._train.pixels(chosen))

    def augmented(self, chosen: np.ndarray, pass_index: int | np.ndarray) -> Batch:
        """The chosen images (positions within the task), augmented for their pass."""
        return next(self.augmented_batches([(chosen, pass_index)]))

    def augmented_batches(self, parts: Sequence[tuple[np.ndarray, int | np.ndarray]]) -> Iterator[Batch]:
        """`augmented` of each part; where other processes augment, they are one part ahead."""
        pixels = ((self._train.pixels(chosen), passes, self._rows[chosen]) for chosen, passes in parts)
        unchanged = self._preprocess.transform.augment == "none"
        augmented = self._preprocess.augmented_batches(pixels, self._train.ready)
        for (chosen, passes), images in zip(parts, augmented, strict=True):
            yield self._batch(images, chosen, unchanged, passes * len(self) + chosen)

    def plain(self, batch: int, chosen: np.ndarray | None = None) -> Iterator[Batch]:
        """All images of the task (or those chosen) once, as at evaluation; the last batch may be smaller."""
        chosen = np.arange(len(self)) if chosen is None else chosen
        # a few images do not pay for the whole task's features
        known = len(chosen) == len(self) or self._preprocess.transform.augment == "none"
        for start in range(0, len(chosen), batch):
            part = chosen[start : start + batch]
            yield self._batch(self._inputs(part), part, known)

    def _batch(
        self, images: Tensor, chosen: np.ndarray, known: bool, turns: np.ndarray | None = None
    ) -> Batch:
        labels = self.labels[uploaded(chosen, self._preprocess.device)]
        return Batch(images, labels, self._frozen.at(self._rows[chosen]) if known else None, turns)


class OnlineTask(Task):
    """A task whose images are shown once, in whatever form. Raises RunFailed where one is asked for again."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._shown = np.zeros(len(self), dtype=bool)

    def _show(self, chosen: np.ndarray) -> None:
        if self._shown[chosen].any() or len(np.unique(chosen)) < len(chosen):
            again = f"an image of task {self.index + 1} is asked for a second time"
            raise RunFailed(f"{again}, and an online stream shows each once; run without --online")
        self._shown[chosen] = True

    def augmented_batches(self, parts: Sequence[tuple[np.ndarray, int | np.ndarray]]) -> Iterator[Batch]:
        """As of any task."""
        for chosen, _ in parts:
            self._show(chosen)
        return super().augmented_batches(parts)

    def plain(self, batch: int, chosen: np.ndarray | None = None) -> Iterator[Batch]:
        """As of any task."""
        self._show(np.arange(len(self)) if chosen is None else chosen)
        return super().plain(batch, chosen)


@dataclass(frozen=True)
class Sides:
    """Training images as they are augmented, the same as they are evaluated, and images to evaluate on."""

    train: ImageSet
    train_evaluated: ImageSet
    test: ImageSet


class Stream:
    """Builds tasks from a data set and keeps its test images to itself."""

    def __init__(
        self,
        sides: Sides,
        task_classes: Sequence[Sequence[int]],
        preprocess: Preprocess,
        joint: bool = False,
        names: Sequence[str] | None = None,
        stores: Mapping[str, FeatureStore] = NO_STORES,
        online: bool = False,
    ):
        """`stores` keep features of frozen networks, of the images of "train" and of "test".

        `online` shows methods every training image once.
        """
        self._kind = OnlineTask if online else Task
        self.task_classes = [tuple(classes) for classes in task_classes]
        self._infos = task_infos(self.task_classes, joint, names)
        self._train, self._train_evaluated = sides.train, sides.train_evaluated
        self._preprocess = preprocess
        seen = [0, *(info.first_label + len(info.classes) for info in self._infos)]
        self._test = TestImages(sides.test, self.task_classes, seen, preprocess, stores.get("test"))
        evaluated = sides.train_evaluated
        self._frozen = FrozenFeatures(
            evaluated.labels,
            lambda rows: preprocess.plain(evaluated.pixels(rows), evaluated.ready),
            stores.get("train"),
        )

    @property
    def num_tasks(self) -> int:
        """Number of tasks to learn."""
        return len(self._infos)

    @property
    def test_sizes(self) -> tuple[int, ...]:
        """Test images of each evaluated task."""
        return self._test.task_sizes

    @property
    def borrowed_seconds(self) -> tuple[float, float]:
        """What features of training and of test images that were found on disk had taken to compute."""
        return self._frozen.borrowed_seconds, self._test.frozen.borrowed_seconds

    @property
    def truth(self) -> np.ndarray:
        """The class of every test image, (N_test,), in the order of `Evaluation.predictions`."""
        return self._test.labels.astype(np.int32)

    def info(self, index: int) -> TaskInfo:
        """What task `index` (0-based) is, without its images."""
        return self._infos[index]

    def task(self, index: int) -> Task:
        """Task `index` (0-based), with its training images in data set order."""
        return self._task(self._kind, index)

    def measured(self, index: int) -> Task:
        """The same task for measuring alone: its images may be asked for again."""
        return self._task(Task, index)

    def _task(self, kind: type[Task], index: int) -> Task:
        info, order = self.info(index), [c for classes in self.task_classes for c in classes]
        rows = np.flatnonzero(np.isin(self._train.labels, info.classes))
        labels = positions(self._train.labels[rows], order)
        images = (self._train, self._train_evaluated)
        return kind(info, *images, rows, labels, self._preprocess, self._frozen)

    def probe(
        self, learned: int, blocks: int, length: int
    ) -> tuple[Callable[[np.ndarray], Tensor], np.ndarray]:
        """Some test images of the tasks seen, see `TestImages.probe`."""
        return self._test.probe(learned, blocks, length)

    def evaluate(
        self,
        predict: Callable[[Batch], Tensor],
        learned: int,
        batch: int = EVALUATION_BATCH,
        together: int | None = None,
    ) -> Evaluation:
        """One pass over the test images of all tasks seen, see `TestImages.evaluate`."""
        return self._test.evaluate(predict, learned, batch, together)
