r"""SimpleCIL: nearest class mean of frozen features, nothing is trained.

Zhou et al., "Revisiting Class-Incremental Learning with Pre-Trained Models: Generalizability and Adaptivity
Are All You Need", IJCV 2024, arXiv 2303.07338. \[ P_k = \frac{1}{n_k} \sum_{y_i = k} f(x_i), \qquad \hat y =
\arg\max_k \cos(f(x), P_k). \] The result does not depend on the class order: what is forgotten is lost to
classes that join the competition. A method that trains has to beat it.
"""

from torch import Tensor

from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.prototypes import Prototypes
from cl_bench.training.method import Method
from cl_bench.training.trainer import Trainer

SUMMARY = "nearest class mean of frozen features, no training"
FAMILY, VENUE, PASSES = "prototypes", "IJCV 2024", 1
KEEPS = "the mean of features per class"
BATCH = 100


class SimpleCILConfig(Strict):
    """Class means have no setting."""


class SimpleCIL(Method):
    """The class means are all that is kept."""

    Config = SimpleCILConfig
    PRESET = "nsp2-paper"
    display = "SimpleCIL"
    frozen = True
    keeps = KEEPS

    def __init__(self, config: SimpleCILConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        self.prototypes = Prototypes(backbone.width, self.device)

    def grow(self, task: TaskInfo) -> None:
        """Make room for the task's classes."""
        self.prototypes.grow(len(task.classes))

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """One pass over the task's images."""
        for batch in trainer.plain(task, BATCH):
            self.prototypes.add(batch.frozen_features(self.backbone), batch.labels)

    def predict(self, batch: Batch) -> Tensor:
        """Cosines with all class means, (B, K_seen)."""
        return self.prototypes(batch.frozen_features(self.backbone))


METHOD = SimpleCIL
