"""Options of TUNA, and what its published program does otherwise."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.heads import CosineTaskHeads, Decaying
from cl_bench.training.kept_adapters import KeptAdapters, KeptAdaptersConfig
from cl_bench.training.phase import half_cosine


class TUNAConfig(KeptAdaptersConfig):
    """The public code's settings for CIFAR-100 in 20 tasks."""

    batch: int = Field(16, ge=1)
    passes: int = Field(15, ge=1)
    scale: float = Field(20.0, gt=0)  # s
    margin: float = Field(0.0, ge=0)  # mu
    orthogonality: float = Field(1e-3, ge=0)  # lambda
    align_samples: int = Field(80, ge=1)
    mean_decay: float = Field(0.0, ge=0, le=1)  # of old classes' means in draws, see `decay`
    universal: Literal["merged", "latest_asis"] = "merged"  # for what is not as meant see `AsRun`
    kept: Literal["frozen", "trained_asis"] = "frozen"
    mean_tasks: Literal["own", "negative_asis"] = "own"
    align_schedule: Literal["cosine", "waves_asis"] = "cosine"
    head_decay: Literal["newest", "all_asis"] = "newest"


class DecayingCosines(Decaying, CosineTaskHeads):
    """Cosine heads whose old rows get shorter: no cosine changes, but an alignment turns them faster."""


class Published(KeptAdapters):
    """The adapters of the latest task for universal ones, old adapters that learn on, and the alignment."""

    def __init__(self, config: TUNAConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        if config.head_decay == "all_asis":
            self.head = DecayingCosines(backbone.width, config.scale)
        # the code hands old adapters to the optimizer; only where the likeness counts has W_i a gradient
        self.trains_old = config.kept == "trained_asis" and config.orthogonality > 0

    def grow(self, task: TaskInfo) -> None:
        """Trained, old up-projections have gradient, momentum and weight decay."""
        super().grow(task)
        for adapters in self.adapters[:-1] if self.trains_old else ():
            adapters.up.requires_grad_(True)

    def features(self, batch: Batch) -> Tensor:
        """Trained, adapters change as long as tasks come: nothing is looked up."""
        if not self.trains_old:
            return super().features(batch)
        with torch.no_grad():
            found = [self.backbone.features(batch.images, adapters) for adapters in self.adapters]
        return torch.stack(found, dim=1)

    @property
    def settled_passes(self) -> int:
        """None of what changes."""
        return 0 if self.trains_old else len(self.adapters)

    def united_scores(self, batch: Batch, z: Tensor) -> Tensor:
        """Those of the latest adapters, where the code takes them for the universal ones."""
        return super().united_scores(batch, z) if self.universal is not None else z[:, -1]

    def decay(self) -> Tensor:
        """1 - d (1 - (1 - ceil(k / n)) / t) for class k: the n classes of this task are negative in the code.

        The newest classes then have the smallest means.
        """
        if self.config.mean_tasks == "own":
            return super().decay()
        n, tasks = self.head.heads[-1].out_features, len(self.head.heads)
        k = torch.arange(len(self.gaussians.means), device=self.device)
        return 1 - self.config.mean_decay * (1 - (1 - (k / n).ceil()) / tasks)

    def align_rate(self, done: int) -> float:
        """Down in five passes and up in five more, again and again."""
        return (
            half_cosine(done, 5) if self.config.align_schedule == "waves_asis" else super().align_rate(done)
        )
