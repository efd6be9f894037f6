"""The class-incremental stream: tasks that show training images only, and test images that no method can reach."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.device_images import Frames, uploaded
from cl_bench.data.frozen import FrozenFeatures
from cl_bench.data.images import ImageSet
from cl_bench.data.preprocess import Preprocess
from cl_bench.data.source import Source
from cl_bench.errors import RunFailed

EVALUATION_BATCH = 256  # test images at a time


@dataclass(frozen=True)
class StreamInfo:
    """What a method may know before the stream starts: the seed of its initialisation, the number of tasks and of the classes of each (for
    published code that predicts classes before it has learned them), sentences for text towers."""

    init_seed: int
    num_tasks: int
    templates: tuple[str, ...] = Source.TEMPLATES
    task_sizes: tuple[int, ...] = ()


@dataclass
class TaskInfo:
    """A task's place in the stream: number, classes in stream order, the label (position in the class order) of the first, their names."""

    index: int
    classes: tuple[int, ...]
    first_label: int
    names: tuple[str, ...] = ()


def task_infos(
    task_classes: Sequence[Sequence[int]], joint: bool, names: Sequence[str] | None = None
) -> list[TaskInfo]:
    """The tasks that are learned: all classes at once with `joint`."""
    learned = (
        [tuple(c for classes in task_classes for c in classes)]
        if joint
        else [tuple(classes) for classes in task_classes]
    )
    starts = np.cumsum([0, *(len(classes) for classes in learned)]).tolist()
    return [
        TaskInfo(index, classes, starts[index], tuple(names[c] if names else f"class {c}" for c in classes))
        for index, classes in enumerate(learned)
    ]


class Task(TaskInfo):
    """One task as a method sees it: its classes and its training images. Labels are positions in the class order, 0..K_seen-1."""

    def __init__(
        self,
        info: TaskInfo,
        train: ImageSet,
        evaluated: ImageSet,
        rows: np.ndarray,
        labels: np.ndarray,
        preprocess: Preprocess,
    ):
        super().__init__(info.index, info.classes, info.first_label, info.names)
        self._rows, self._preprocess = rows, preprocess
        self._train, self._evaluated = train.select(rows), evaluated.select(rows)
        self.labels = torch.from_numpy(labels).to(preprocess.device)
        self._frozen = FrozenFeatures([len(rows)], self._inputs)

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
        for (chosen, _), images in zip(
            parts, self._preprocess.augmented_batches(pixels, self._train.ready), strict=True
        ):
            yield self._batch(images, chosen, known=unchanged)

    def plain(self, batch: int, chosen: np.ndarray | None = None) -> Iterator[Batch]:
        """All images of the task (or the chosen ones), each once, as at evaluation; the last batch may be smaller."""
        chosen = np.arange(len(self)) if chosen is None else chosen
        known = (
            len(chosen) == len(self) or self._preprocess.transform.augment == "none"
        )  # a few images do not pay for the whole task's features
        for start in range(0, len(chosen), batch):
            part = chosen[start : start + batch]
            yield self._batch(self._inputs(part), part, known)

    def _batch(self, images: Tensor, chosen: np.ndarray, known: bool) -> Batch:
        return Batch(
            images,
            self.labels[uploaded(chosen, self._preprocess.device)],
            self._frozen.at(chosen) if known else None,
        )


@dataclass(frozen=True)
class Evaluation:
    """Right answers per task, among all seen classes and within the image's own task; predictions (N_test,) as original classes, -1 unseen."""

    correct: list[int]
    correct_within_task: list[int]
    predictions: np.ndarray


@dataclass(frozen=True)
class Sides:
    """Training images as they are augmented, the same ones as they are evaluated, and the images to evaluate on."""

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
    ):
        train, test = sides.train, sides.test
        self.task_classes = [tuple(classes) for classes in task_classes]
        self._infos = task_infos(self.task_classes, joint, names)
        self._train, self._train_evaluated, self._test, self._preprocess = (
            train,
            sides.train_evaluated,
            test,
            preprocess,
        )
        order = [c for classes in self.task_classes for c in classes]
        self._position = np.full(int(max(train.labels.max(), test.labels.max(), max(order))) + 1, -1)
        self._position[order] = np.arange(len(order))
        self._task_of_position = np.repeat(
            np.arange(len(self.task_classes)), [len(classes) for classes in self.task_classes]
        )
        self._order = np.array(order)
        positions = self._position[test.labels]
        known = np.flatnonzero(positions >= 0)
        self._test_rows = known[
            np.argsort(self._task_of_position[positions[known]], kind="stable")
        ]  # task after task
        self._frozen = FrozenFeatures(self.test_sizes, self._test_inputs)

    def _test_inputs(self, places: np.ndarray) -> Tensor:
        """Network input of test images by their place in stream order."""
        return self._preprocess.plain(self._test.pixels(self._test_rows[places]), self._test.ready)

    @property
    def num_tasks(self) -> int:
        """Number of tasks to learn."""
        return len(self._infos)

    @property
    def test_sizes(self) -> tuple[int, ...]:
        """Test images of each evaluated task."""
        return tuple(int(np.isin(self._test.labels, classes).sum()) for classes in self.task_classes)

    @property
    def truth(self) -> np.ndarray:
        """The class of every test image, (N_test,), in the order of `Evaluation.predictions`."""
        return self._test.labels.astype(np.int32)

    def info(self, index: int) -> TaskInfo:
        """What task `index` (0-based) is, without its images."""
        return self._infos[index]

    def task(self, index: int) -> Task:
        """Task `index` (0-based), with its training images in data set order."""
        info = self.info(index)
        rows = np.flatnonzero(np.isin(self._train.labels, info.classes))
        return Task(
            info,
            self._train,
            self._train_evaluated,
            rows,
            self._position[self._train.labels[rows]],
            self._preprocess,
        )

    def _seen(self, learned: int) -> tuple[int, np.ndarray]:
        """Classes seen after learning `learned` tasks, and the rows of their test images, task after task."""
        seen = sum(len(info.classes) for info in self._infos[:learned])
        return seen, self._test_rows[self._position[self._test.labels[self._test_rows]] < seen]

    def probe(
        self, learned: int, blocks: int, length: int
    ) -> tuple[Callable[[np.ndarray], Tensor], np.ndarray]:
        """Some test images of the tasks seen for the inductive certificate: a function from positions to network input, and the labels.

        `blocks` runs of `length` consecutive images, spread evenly over the stream, so that most batches hold one task's images as those of
        an evaluation do; all images where there are no more.
        """
        rows = self._seen(learned)[1]
        if len(rows) > blocks * length:
            rows = np.concatenate(
                [
                    rows[start : start + length]
                    for start in np.linspace(0, len(rows) - length, blocks).astype(int)
                ]
            )
        labels = self._position[self._test.labels[rows]]
        return lambda chosen: self._preprocess.plain(
            self._test.pixels(rows[chosen]), self._test.ready
        ), labels

    def _batches(self, positions: np.ndarray, batch: int, together: int | None) -> list[np.ndarray]:
        """Places of test images in stream order, given their classes' positions, that are predicted at a time."""
        places = np.arange(len(positions))
        if together is None:
            return [places[start : start + batch] for start in range(0, len(places), batch)]
        ends = np.flatnonzero(np.diff(self._task_of_position[positions])) + 1
        tasks = np.split(places, ends)
        return [task[start : start + together] for task in tasks for start in range(0, len(task), together)]

    @torch.inference_mode()
    def evaluate(
        self,
        predict: Callable[[Batch], Tensor],
        learned: int,
        batch: int = EVALUATION_BATCH,
        together: int | None = None,
    ) -> Evaluation:
        """One pass over the test images of all tasks seen after learning `learned` tasks; `predict` gets images without labels.

        `together`, where predictions depend on the batch, is the size of batches that hold one task's images each.
        """
        seen, rows = self._seen(learned)
        positions = self._position[self._test.labels]
        device = self._preprocess.device
        task_of_class = torch.from_numpy(self._task_of_position).to(device)
        labels = torch.from_numpy(positions[rows]).to(device)
        answers, answers_within, finite = [], [], torch.ones((), dtype=torch.bool, device=device)
        for places in self._batches(positions[rows], batch, together):
            scores = predict(Batch(self._test_inputs(places), None, self._frozen.at(places)))
            if scores.shape not in ((len(places), seen), (len(places), len(self._order))):
                raise RuntimeError(
                    f"predict returned scores of shape {tuple(scores.shape)}, expected {(len(places), seen)}"
                )
            finite &= torch.isfinite(scores).all()
            own = task_of_class[labels[places[0] : places[-1] + 1]]
            foreign = task_of_class[None, : scores.shape[1]] != own[:, None]
            answers.append(scores.argmax(1))
            answers_within.append(scores.masked_fill(foreign, -torch.inf).argmax(1))
        if not finite:
            raise RunFailed(f"predict returned scores that are not finite after task {learned}")
        tasks = task_of_class[labels]
        count = int(tasks.max()) + 1
        answer = torch.cat(answers)
        predictions = np.full(len(positions), -1, np.int32)
        predictions[rows] = self._order[answer.cpu().numpy()]
        right, right_within = answer == labels, torch.cat(answers_within) == labels
        return Evaluation(
            torch.bincount(tasks[right], minlength=count).tolist(),
            torch.bincount(tasks[right_within], minlength=count).tolist(),
            predictions,
        )
