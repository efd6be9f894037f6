"""What learning a task does to a few images of every task before, measured before it and after it.

The images are training images that nobody else is given: a method learns from its task alone, as without
being measured. Nothing random is drawn, and nothing is kept from task to task, so that an interrupted run
goes on with the same numbers.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from cl_bench.data.batch import Batch
from cl_bench.data.stream import Stream
from cl_bench.diagnosis.blocks import PromptedBlocks
from cl_bench.diagnosis.drift import Answers, drift
from cl_bench.nn import kernel
from cl_bench.nn.precision import network_in
from cl_bench.records.diagnosis import Diagnosis
from cl_bench.training.method import Method

IMAGES = 8  # of every task


class Measuring:
    """Looks at a method before and after each task; `seconds` is what that took since the task began."""

    def __init__(self, method: Method, stream: Stream):
        self._method, self._stream, self.seconds = method, stream, 0.0
        self._learned = 0
        self._answers: list[Answers] = []
        self._blocks: PromptedBlocks | None = None

    def begin(self, learned: int) -> None:
        """Look at what `learned` tasks have left, before another is learned."""
        self.seconds, self._learned, self._blocks = 0.0, learned, None
        if learned:
            with self._looking():
                self._answers = [Answers.of(self._method, batch) for batch in self._old_images()]
                self._blocks = PromptedBlocks.of(self._method, self._old_images())

    def end(self) -> Diagnosis:
        """What learning that task has changed."""
        if not self._learned:
            return Diagnosis(images=0)
        with self._looking():
            after = [Answers.of(self._method, batch) for batch in self._old_images()]
            last, blocks = self._stream.info(self._learned - 1), self._blocks
            found = Diagnosis(
                images=sum(len(each.scores) for each in after),
                network=drift(self._answers, after, last.first_label + len(last.classes)),
                blocks=blocks.changed(self._method) if blocks else {},
                spectra=blocks.spectra() if blocks else {},
            )
        return found

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """In full precision and evaluation mode, without a trace but the seconds."""
        start, modes = time.perf_counter(), {module: module.training for module in self._method.modules()}
        self._method.eval()
        with torch.no_grad(), network_in("fp32"), kernel.uncounted():
            yield
        for module, training in modes.items():
            module.training = training
        self.seconds += time.perf_counter() - start

    def _old_images(self) -> Iterator[Batch]:
        """A batch of every old task, its images spread evenly over the task's in data set order."""
        for index in range(self._learned):
            task = self._stream.measured(index)
            chosen = np.linspace(0, len(task) - 1, min(IMAGES, len(task))).astype(int)
            yield from (Batch(batch.images) for batch in task.plain(IMAGES, chosen))
