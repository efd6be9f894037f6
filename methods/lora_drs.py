r"""LoRA-DRS: low-rank updates learned where a network without all earlier ones has most of a task's energy.

Liu & Chang, "LoRA Subtraction for Drift-Resistant Space in Exemplar-Free Continual Learning", CVPR 2025,
arXiv 2503.18985 (also LoRA-Sub). Task t adds B_t A_t to the key and value maps of every block, which keep
what others added: W_t = W + \sum_{i \le t} B_i A_i.
With C the second moments of the normalized tokens that enter a block's attention where a task's images pass
W - \sum_{i<t} B_i A_i, and U the fewest leading eigenvectors with the part \epsilon of its trace,
\[ T = U U^T / \|U U^T\|_F, \qquad \Delta A \leftarrow \Delta A \, T, \qquad \Delta B \leftarrow T \Delta B \]
for every finished update of Adam from the second task on. The loss is cross-entropy of a head over the
task's own classes, which is then thrown away, plus \lambda times the augmented triplet loss, whose negatives
are other classes of the batch and means of old ones. The nearest class mean by cosine predicts; none moves.

The paper projects by U U^T: its norm, which makes steps smaller by the root of the number of directions, is
the public code's, to which the learning rates belong (`norm`). So is the projection of B, which acts on keys
and values while C is of inputs (`projected=A`: A alone). What the code has otherwise is below the algorithm.
"""

from dataclasses import replace
from functools import partial

from cl_bench.methods._drs_as_run import DRSFirstTask, LoRADRSConfig, Published
from torch import Tensor, optim
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.contrast import augmented_triplet
from cl_bench.nn.heads import new_head
from cl_bench.nn.projection import Projection, adam, leading_projectors
from cl_bench.nn.prototypes import Prototypes
from cl_bench.nn.statistics import TokenMoments
from cl_bench.nn.summed_lora import Subtracted, SummedLoRA
from cl_bench.training.method import Method
from cl_bench.training.phase import Phase, coda_cosine
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, of_successive_lora

SUMMARY = "low-rank updates, learned where the network without earlier ones has most energy; class means"
FAMILY, VENUE, PASSES, KEEPS = "LoRA", "CVPR 2025", 1, "the mean of features per class"
BATCH = 100  # images of a statistics batch


class LoRADRS(Method):
    """A_i and B_i, the head that is trained now, and class means."""

    PRESET, keeps = "lora_drs", KEEPS
    SMALL = {"rank": 3}
    couples_batch = True
    sparse = False  # see `Published`

    def __init__(self, config: LoRADRSConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        self.edits = SummedLoRA(backbone.depth, backbone.width, "kv").to(self.device)
        self.prototypes = Prototypes(backbone.width, self.device)
        self.T, self.directions = None, []  # T (L, D, D) of the task that is learned

    def grow(self, task: TaskInfo) -> None:
        """A pair of low rank, a new head, and room for class means."""
        seed, classes = self.stream.init_seed, len(task.classes)
        self.edits.grow(self.config.rank, seeds.generator(seed, "lora", task.index), self.sparse)
        drawn = seeds.generator(seed, "head", task.index)
        self.head = new_head(self.backbone.width, classes, "uniform", drawn).to(self.device)
        self.prototypes.grow(classes)

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """T of every block; in the first task nothing is projected."""
        self.T, self.directions = None, []
        if task.index:
            C, config = self.moments(task, trainer), self.config
            self.T, self.directions = leading_projectors(C, config.energy, config.norm)

    def moments(self, task: Task, trainer: Trainer) -> Tensor:
        """C (L, D, D): means over tokens h of h h^T, of images augmented as in no pass of training."""
        found = TokenMoments(self.edits.A[:, 0], normalized=True)
        without = found.observing(Subtracted(self.edits))
        for batch in trainer.augmented(task, BATCH, None, self.config.passes):
            self.backbone.features(batch.images, without)
        return found.means()

    def phases(self, task: TaskInfo) -> list[Phase]:
        """One."""
        passes = (not task.index and self.config.first_passes) or self.config.passes
        loss, rate = partial(self.loss, task=task), partial(self.rate, passes)
        return [Phase(loss, self.make_optimizer, self.config.batch, passes, rate=rate)]

    def features(self, batch: Batch) -> Tensor:
        """f (B, D) under W_t."""
        return self.backbone.features(batch.images, self.edits)

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """Cross-entropy over the task's own classes, and lambda times the triplet loss."""
        f, old = self.features(batch), self.prototypes.means[: task.first_label]
        found = F.cross_entropy(self.head(f), batch.labels - task.first_label)
        return found + self.config.triplet * augmented_triplet(f, batch.labels, old, self.config.margin)

    def make_optimizer(self) -> optim.Optimizer:
        """A new Adam for A, B and the head, at a rate of its own."""
        head = {"params": [*self.head.parameters()], "lr": self.config.head_rate}
        groups = [{"params": [self.edits.A, self.edits.B]}, head]
        return adam(groups, self.projections(), lr=self.config.learning_rate)

    def projections(self) -> list[Projection]:
        """Updates of A (L, 2, r, D) from the right and of B (L, 2, D, r) from the left."""
        if self.T is None:
            return []
        T = self.T[:, None]
        both = [(self.edits.A, lambda U: U @ T), (self.edits.B, lambda U: T @ U)]
        return both if self.config.projected == "both" else both[:1]

    def rate(self, passes: int, done: int, group: dict) -> float:
        """A quarter of a cosine over the passes of the task."""
        return coda_cosine(done, passes, lagged=False)

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Means of the features of the task's classes, as at evaluation."""
        for batch in trainer.plain(task, BATCH):
            self.prototypes.add(self.features(batch), batch.labels)

    def predict(self, batch: Batch) -> Tensor:
        """Cosines with class means (B, K_seen)."""
        return self.prototypes(self.features(batch))

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """A pass for T from the second task on, and one for class means."""
        return images * (1 + bool(task.index))

    def extra(self) -> Extra:
        """The update of keys and values, the sums of old ones, moments, and their decompositions."""
        found, sums = of_successive_lora(self.edits.A[:, 0], self.backbone.vit), self.edits.old_A.numel()
        return replace(found, step=float(sums) * self.backbone.width, task=found.task / 2)

    def diagnostics(self) -> dict:
        """How many directions T keeps in every block."""
        return {"directions": self.directions} if self.directions else {}


class AsRun(Published, LoRADRS):
    """What the published program does otherwise, each under its own option."""

    display, Config, TRUNK = "LoRA-DRS", LoRADRSConfig, DRSFirstTask
    AS_PUBLISHED = {
        "schedule": "lagged_asis", "start": "sparse_asis", "adam_epsilon": "early_asis",
        "normalisation": "unit01",
    }  # fmt: skip
    LEFT_DIFFERENT = ("the published class order is the natural one (--order natural)",)


METHOD = AsRun
