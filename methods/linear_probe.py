"""Linear probe: a linear classifier on frozen features, all classes learned as one task.

What the features alone are good for, with any classifier: the distance from here to joint tuning is what
adapting the network can bring.
"""

from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import TaskInfo
from cl_bench.training.tuning import Tuning, TuningConfig

SUMMARY = "a linear classifier on frozen features, all classes at once, the bound of what trains no network"
FAMILY, VENUE, PASSES = "head", "", 1


class LinearProbe(Tuning):
    """Only the head learns; the features are computed once where images always enter in the same way."""

    Config = TuningConfig
    display = "Linear probe (upper bound)"
    joint = True
    frozen = True

    def features(self, batch: Batch) -> Tensor:
        """Features of the frozen network."""
        return batch.frozen_features(self.backbone)

    def trained_groups(self) -> list[dict]:
        """The head is all that is trained."""
        return []

    def forwards(self, task: TaskInfo, images: int, augmented: bool) -> int:
        """One a step, or one an image where images enter unchanged; no pass goes backward."""
        return self.trained_images(task, images) if augmented else images


METHOD = LinearProbe
