r"""RanPAC: ridge regression on randomly projected features, which a first task may have adapted.

McDonnell et al., "RanPAC: Random Projections and Pre-trained Models for Continual Learning", NeurIPS 2023,
arXiv 2307.02251. Phase 1, in the first task alone: adapters beside the MLPs and a cosine head are trained,
and then frozen. Every task:
\[ \phi(x) = relu(f(x) W_r), \quad G \leftarrow G + \Phi^T \Phi, \quad Q \leftarrow Q + \Phi^T Y, \quad W = (G
+ \lambda I)^{-1} Q, \]
W_r (D x M) drawn once from N(0, 1), scores phi(x) W. lambda is chosen anew after every task, on the task's
own images: fitted on four fifths of them, of 10^-8 ... 10^8 the one with the least squared error on the rest.
With a fixed lambda the result is that of all data at once, in any order.

`first_task=off` leaves phase 1 out, `projection=0` regresses on the features themselves. The paper adapts by
SSF on ImageNet-R; adapters stand for it here. The authors' float32 solves are noise for small lambda; these
are float64, one decomposition for all of them.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone, EditedBackbone
from cl_bench.nn.edits import NONE
from cl_bench.nn.heads import CosineHeads
from cl_bench.nn.ridge import Ridge, choose_strength
from cl_bench.seeds import permutation
from cl_bench.training.adapting import AdaptingConfig, adapting, new_adapters
from cl_bench.training.method import Method
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, of_ridge, through

SUMMARY = "ridge regression on random projections of features"
FAMILY, VENUE, PASSES = "closed form", "NeurIPS 2023", 1
KEEPS = "second moments of features, their sum per class"
BATCH, FITTED = 100, 0.8  # images of a statistics batch; share of a task that lambda is fitted on


class RanPACConfig(AdaptingConfig):
    """The authors' settings for CIFAR-100; those of adapters are of phase 1."""

    projection: int = Field(10_000, ge=0)  # M; 0: the features themselves
    ridge: float | None = Field(None, gt=0)  # lambda; None: chosen after every task
    first_task: bool = True  # phase 1


class RanPAC(Method):
    """G (M, M), Q and W (M, K), W_r (D, M), and the adapters and head of phase 1."""

    Config = RanPACConfig
    PRESET = "nsp2-paper"
    display = "RanPAC"
    SMALL = {"projection": 48, "bottleneck": 4, "dropout": 0.0}
    keeps = KEEPS

    def __init__(self, config: RanPACConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        D, M = backbone.width, config.projection
        self.edits, self.strength, self.errors = NONE, config.ridge, []
        if config.first_task:
            generator = seeds.generator(stream.init_seed, "adapters")
            self.edits = new_adapters(backbone, config, generator)
            self.head = CosineHeads(D, self.device)
        self.network = EditedBackbone(backbone, self.edits, on_disk=True)
        if M:
            W_r = torch.randn(D, M, generator=seeds.generator(stream.init_seed, "projection"))
            self.register_buffer("W_r", W_r.to(self.device))
        self.ridge = Ridge(M or D, self.device)

    def grow(self, task: TaskInfo) -> None:
        """Make room for the task's classes; the head of phase 1 is the first task's alone."""
        self.ridge.grow(len(task.classes))
        if self.config.first_task and task.index == 0:
            self.head.grow(len(task.classes), seeds.generator(self.stream.init_seed, "head"))
        self.requires_grad_(self.config.first_task and task.index == 0)
        self.backbone.requires_grad_(False)

    def extra(self) -> Extra:
        """The adapters, the projection, and the moments and equations of its features."""
        adapters = through(self.backbone.vit, self.edits) if self.config.first_task else 0.0
        return of_ridge(adapters + float(self.config.projection) * self.backbone.width, len(self.ridge.G))

    def phases(self, task: TaskInfo) -> list[Phase]:
        """Phase 1, in the first task."""
        if not self.config.first_task or task.index:
            return []
        return [adapting(self.backbone, self.edits, self.head, self.config, task)]

    def phi(self, batch: Batch) -> Tensor:
        """relu(f W_r) (B, M), or f (B, D)."""
        f = batch.frozen_features(self.network)
        return F.relu(f @ self.W_r) if self.config.projection else f

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Moments of the task's images in a seeded order; lambda from them alone; the classifier."""
        order, phis, labels = permutation(len(task), trainer.data_seed, "ridge", task.index), [], []
        for batch in trainer.plain(task, BATCH, order):
            phis.append(self.phi(batch))
            labels.append(batch.labels)
            self.ridge.add(phis[-1], labels[-1])
        if self.config.ridge is None:
            seen, classes = (torch.cat(phis), torch.cat(labels)), self.ridge.Q.shape[1]
            self.strength, self.errors = choose_strength(*seen, classes, int(FITTED * len(task)))
        self.ridge.solve(self.strength)

    def predict(self, batch: Batch) -> Tensor:
        """phi W, (B, K_seen)."""
        return self.ridge(self.phi(batch))

    settled_passes = 1  # the network is the first task's

    def diagnostics(self) -> dict:
        """lambda, and the errors among which it was the least."""
        return {"lambda": self.strength, "validation_errors": self.errors}


METHOD = RanPAC
