r"""SEMA: adapters that routers mix, to which a block adds one when images are unlike those before.

Wang, Lu, Yao & Gong, "Self-Expansion of Pre-trained Models with Mixture of Adapters for Continual Learning",
CVPR 2025, arXiv 2403.18886. Beside the MLP of every block stands an adapter. The last blocks may have more,
and add to their MLP, of tokens x with mean m,
\[ \sum_k softmax(W m + b)_k f_k(x). \]
Each of these f_k has a descriptor g_k, an autoencoder of m. With the mean and the deviation of its error e_k
over the images that f_k learned,
\[ z_k = (e_k - \mu_k) / \sigma_k, \qquad e_k = mean (g_k(m) - m)^2. \]

The first task trains all adapters and a linear head, by cross-entropy over its own classes, then the
descriptors, by e_k. A later one scans its images, batch by batch. The first block in which
\[ \min_k mean_{batch} |z_k| > threshold \]
adds f, g and a row of W and b, at most once in a task; they are trained, f with the row and the head, then g,
while all older ones stay. The scan goes on behind that batch, and starts again until it finds nothing new. A
task in which no block has added anything trains the head alone.

That batches decide, by |z| (`deviation=above`: by z, so that only large errors are new), and that adapters
have neither the scale 0.1 nor the dropout 0.1 which its settings name, is the public code's. So is that a
router with a single row learns nothing and decays. Which errors that code takes the mean and deviation of,
and how its head decays, stands below the algorithm. Scans and errors are of images augmented as in training.
"""

from functools import partial

import torch
from cl_bench.methods._expanding import LOOKS, Expanding
from cl_bench.methods._sema_as_run import Published, SEMAConfig
from torch import Tensor, optim
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import Task, TaskInfo
from cl_bench.training.phase import Phase, half_cosine
from cl_bench.training.trainer import Trainer

SUMMARY = "adapters that routers mix, to which blocks add one where a task's images are unlike earlier ones"
FAMILY, VENUE, PASSES = "adapters", "CVPR 2025", 1
KEEPS = "mean and deviation of an error per added adapter"


class SEMA(Expanding):
    """Of its network and what a task may add to it see `Expanding`."""

    PRESET, keeps = "sema", KEEPS
    SMALL = {"bottleneck": 4, "descriptor": 4, "expandable": 1, "descriptor_passes": 2, "scan_batch": 8}

    def phases(self, task: TaskInfo) -> list[Phase]:
        """Two for all blocks at first, later two for each that adds an adapter, or one of the head."""
        added = self.added(task)
        together = [[l] for l in added] if task.index and added else [added]
        return [phase for blocks in together for phase in self.stages(task, blocks)]

    def stages(self, task: TaskInfo, blocks: list[int]) -> list[Phase]:
        """What is new in these blocks with the head, then its descriptors; of no block the head alone."""
        config = self.config

        def stage(loss, trained, rate: float, passes: int, forwards: int) -> Phase:
            sgd = {"lr": rate, "momentum": config.momentum, "weight_decay": config.weight_decay}
            return Phase(
                loss=partial(loss, task=task, blocks=blocks),
                optimizer=lambda: optim.SGD(trained(task, blocks), **sgd),
                batch=config.batch,
                passes=passes,
                rate=lambda done, group: half_cosine(done, passes),
                forwards=forwards,
            )

        forwards = 2 if blocks else 1
        first = stage(self.loss, self.adapting, config.learning_rate, config.passes, forwards)
        rate, passes = config.descriptor_rate, config.descriptor_passes
        return [first, stage(self.description_loss, self.describing, rate, passes, 1)] if blocks else [first]

    def loss(self, batch: Batch, task: TaskInfo, blocks: list[int]) -> Tensor:
        """CE over the task's own classes."""
        with torch.set_grad_enabled(bool(blocks)):
            f = self.features(batch, self.network(task, blocks))
        return F.cross_entropy(self.head.current(f), batch.labels - task.first_label)

    def description_loss(self, batch: Batch, task: TaskInfo, blocks: list[int]) -> Tensor:
        """The mean of e, summed over blocks."""
        means = self.token_means(batch, max(blocks) + 1)
        return sum(self.branch(l, task).errors(means[l]).mean() for l in blocks)

    def minimize(self, task: Task, trainer: Trainer) -> None:
        """What scans find to be needed; if that is nothing the head, in the first task with all adapters."""
        self.scanned[task.index], self.largest, self.looks, free = 0, {}, LOOKS, self.free(task)
        while self.scan(task, trainer):
            pass
        nothing = self.free(task) == free
        self.spare.clear()
        if nothing:
            self.fit(task, trainer, [] if task.index else self.expandable)

    def fit(self, task: Task, trainer: Trainer, blocks: list[int]) -> None:
        """Train what is new in these blocks, and nothing else but the head."""
        self.train()
        planned = sum(phase.passes for phase in self.phases(task))  # the most that may be
        for phase in self.stages(task, blocks):
            trainer.fit(task, phase, planned)
        self.eval()
        self.settle(task, trainer, blocks)

    def scan(self, task: Task, trainer: Trainer) -> bool:
        """Add and train what a pass over the task's images needs; whether another may need more."""
        size, free, self.looks = self.config.scan_batch, self.free(task), self.looks + 1
        order = seeds.permutation(len(task), trainer.data_seed, "scan", task.index, self.looks)
        for part in (order[start : start + size] for start in range(0, len(order), size)):
            l = self.surprised(task, trainer, part) if self.free(task) else None
            if l is not None:
                self.add(l, task)
                self.fit(task, trainer, [l])
        return 0 < len(self.free(task)) < len(free)

    def surprised(self, task: Task, trainer: Trainer, chosen) -> int | None:
        """The first block that is to add an adapter for these images."""
        [batch] = trainer.augmented(task, len(chosen), chosen, self.looks)
        self.scanned[task.index] += len(batch)
        means = self.token_means(batch)
        for l in self.free(task):
            z = torch.stack([branch.deviations(means[l]) for branch in self.mixture.at(l)]).detach()  # (K, B)
            z = float((z.abs() if self.config.deviation == "absolute" else z).mean(dim=1).min())
            self.largest[l] = max(z, self.largest.get(l, z))
            if z > self.config.threshold:
                return l
        return None

    def predict(self, batch: Batch) -> Tensor:
        """Scores (B, K_seen)."""
        return self.head(self.features(batch))


class AsRun(Published, SEMA):
    """What the published program does otherwise, each under its own option."""

    display, Config = "SEMA", SEMAConfig
    AS_PUBLISHED = {"errors": "moving_asis", "head_decay": "all_asis", "normalisation": "unit01"}
    LEFT_DIFFERENT = (
        "scans end where no block may add an adapter any more; in the code they go on, and find nothing",
        "the published class order is that of PILOT's family, seed 1993 (--order pilot:1993)",
    )


METHOD = AsRun
