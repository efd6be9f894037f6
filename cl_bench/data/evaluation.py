"""The test images of a stream, out of every method's reach: predicted task after task, and counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.feature_store import FeatureStore
from cl_bench.data.frozen import FrozenFeatures
from cl_bench.data.images import ImageSet
from cl_bench.data.preprocess import Preprocess
from cl_bench.errors import RunFailed

EVALUATION_BATCH = 256  # test images at a time


@dataclass(frozen=True)
class Evaluation:
    """What was predicted for the test images, and how much of it is right."""

    correct: list[int]  # right answers per task, among all seen classes
    correct_within_task: list[int]  # the same, among the classes of the image's own task
    predictions: np.ndarray  # (N_test,), original classes; -1 for images of tasks not yet seen


def positions(labels: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Positions (n,) of labels in the class order, -1 for those that are not in it."""
    found = np.full(max(int(labels.max(initial=0)), *order) + 1, -1)
    found[list(order)] = np.arange(len(order))
    return found[labels]


class TestImages:
    """Test images in stream order: those of the first task, then those of the second, and so on."""

    def __init__(
        self,
        images: ImageSet,
        task_classes: Sequence[Sequence[int]],
        seen: Sequence[int],
        preprocess: Preprocess,
        store: FeatureStore | None = None,
    ):
        """`seen` are the numbers of classes seen after learning 0, 1, 2, ... tasks."""
        self.images, self.labels, self._seen, self._preprocess = images, images.labels, seen, preprocess
        self._order = np.array([c for classes in task_classes for c in classes])
        self._positions = positions(self.labels, self._order.tolist())
        self._task_of_position = np.repeat(np.arange(len(task_classes)), list(map(len, task_classes)))
        known = np.flatnonzero(self._positions >= 0)
        tasks = self._task_of_position[self._positions[known]]
        self._rows = known[np.argsort(tasks, kind="stable")]
        self.task_sizes = tuple(int(np.isin(self.labels, classes).sum()) for classes in task_classes)
        self.frozen = FrozenFeatures(self.labels, self._inputs, store)

    def _inputs(self, rows: np.ndarray) -> Tensor:
        """Network input of test images by their row."""
        return self._preprocess.plain(self.images.pixels(rows), self.images.ready)

    def _rows_seen(self, learned: int) -> np.ndarray:
        """The rows of the test images of the classes seen after learning `learned` tasks, task after task."""
        return self._rows[self._positions[self._rows] < self._seen[learned]]

    def probe(
        self, learned: int, blocks: int, length: int
    ) -> tuple[Callable[[np.ndarray], Tensor], np.ndarray]:
        """Some test images of the tasks seen, for the inductive certificate.

        Returns a function from positions to network input, and the labels. `blocks` runs of `length`
        consecutive images are spread evenly over the stream, so that most batches hold one task's images as
        those of an evaluation do; all images where there are no more.
        """
        rows = self._rows_seen(learned)
        if len(rows) > blocks * length:
            starts = np.linspace(0, len(rows) - length, blocks).astype(int)
            rows = np.concatenate([rows[start : start + length] for start in starts])
        return lambda chosen: self._inputs(rows[chosen]), self._positions[rows]

    def _batches(self, positions: np.ndarray, batch: int, together: int | None) -> list[np.ndarray]:
        """Places in stream order that are predicted at a time, of images with these classes' positions."""
        places = np.arange(len(positions))
        if together is None:
            return [places[start : start + batch] for start in range(0, len(places), batch)]
        ends = np.flatnonzero(np.diff(self._task_of_position[positions])) + 1
        tasks = np.split(places, ends)
        return [task[start : start + together] for task in tasks for start in range(0, len(task), together)]

    @torch.inference_mode()
    def evaluate(
        self, predict: Callable[[Batch], Tensor], learned: int, batch: int, together: int | None
    ) -> Evaluation:
        """One pass over the test images of all tasks seen after learning `learned` tasks.

        `predict` gets images without labels. `together`, where predictions depend on the batch, is the size
        of batches that hold one task's images each. Raises RunFailed for scores that are not finite.
        """
        seen, rows = self._seen[learned], self._rows_seen(learned)
        device = self._preprocess.device
        task_of_class = torch.from_numpy(self._task_of_position).to(device)
        labels = torch.from_numpy(self._positions[rows]).to(device)
        answers, answers_within, finite = [], [], torch.ones((), dtype=torch.bool, device=device)
        for places in self._batches(self._positions[rows], batch, together):
            part = rows[places]
            scores = predict(Batch(self._inputs(part), None, self.frozen.at(part)))
            self._require_columns(scores, len(places), seen)
            finite &= torch.isfinite(scores).all()
            own = task_of_class[labels[places[0] : places[-1] + 1]]
            foreign = task_of_class[None, : scores.shape[1]] != own[:, None]
            answers.append(scores.argmax(1))
            answers_within.append(scores.masked_fill(foreign, -torch.inf).argmax(1))
        if not finite:
            raise RunFailed(f"predict returned scores that are not finite after task {learned}")
        answer, within = torch.cat(answers), torch.cat(answers_within)
        predictions = np.full(len(self.labels), -1, np.int32)
        predictions[rows] = self._order[answer.cpu().numpy()]
        tasks = task_of_class[labels]
        return Evaluation(_counts(tasks, answer == labels), _counts(tasks, within == labels), predictions)

    def _require_columns(self, scores: Tensor, images: int, seen: int) -> None:
        if scores.shape not in ((images, seen), (images, len(self._order))):
            expected = f"expected {(images, seen)}"
            raise RuntimeError(f"predict returned scores of shape {tuple(scores.shape)}, {expected}")


def _counts(tasks: Tensor, right: Tensor) -> list[int]:
    """Right answers of each task, from the images' tasks (N,) and which are right (N,)."""
    return torch.bincount(tasks[right], minlength=int(tasks.max()) + 1).tolist()
