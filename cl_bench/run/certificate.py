"""The inductive certificate: does what a method says of an image depend on the images beside it?

Test batches come task by task. A method that lets a batch vote, or mixes its images in any other way, reads
the task from its neighbours, and its accuracy is not that of a classifier of images.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import Stream
from cl_bench.records.record import Certificate
from cl_bench.seeds import permutation

BATCH, BLOCKS = 128, 4


@torch.inference_mode()
def certify(predict: Callable[[Batch], Tensor], stream: Stream, learned: int) -> Certificate:
    """Predict up to 512 test images alone, in batches of 128 in stream order, and in such batches shuffled.

    In full precision.
    """
    inputs, labels = stream.probe(learned, BLOCKS, BATCH)

    def answers(order: np.ndarray, batch: int) -> np.ndarray:
        found = np.empty(len(order), np.int64)
        for start in range(0, len(order), batch):
            part = order[start : start + batch]
            found[part] = predict(Batch(inputs(part))).argmax(1).cpu().numpy()
        return found

    ordered = np.arange(len(labels))
    alone, together, shuffled = (
        answers(ordered, 1),
        answers(ordered, BATCH),
        answers(permutation(len(labels), "certificate"), BATCH),
    )
    return Certificate(
        images=len(labels),
        batch=BATCH,
        changed_in_batches=int((together != alone).sum()),
        changed_when_shuffled=int((shuffled != alone).sum()),
        right_alone=int((alone == labels).sum()),
        right_in_batches=int((together == labels).sum()),
        right_when_shuffled=int((shuffled == labels).sum()),
    )
