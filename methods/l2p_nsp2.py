r"""L2P-NSP2: updates of a pool's prompts and keys are projected into the null space of old tasks' attention.

Lu et al., "Visual Prompt Tuning in Null Space for Continual Learning", NeurIPS 2024, Table 5 and appendix D,
which says no more than "prompts in the first three layers", "an orthogonal projection is also applied to the
prompt pool, which is essentially a linear layer", and "the training setting of PGP"; there is no code. Read
here as: for sample x with selection matrix A_x the prompts are A_x P, so
\[ Q_h W_{k,h} \Delta P^T = 0, \qquad S_{x,h} A_x \Delta P = 0, \qquad \hat q \Delta K^T = 0 \]
keep affinity, aggregation and choice: one B_1 (D x D) for all pool rows, B_2 (S L_p x S L_p) from the
attention on prompts scattered into pool rows (those that no image chose stay free), and B_q from the
normalized queries for the keys, whose cosine with a query is linear in K up to its length (`key_exact`
restores that too). All rows move, chosen or not, since B_2 mixes them. L2P-NSP2-B1 is `b2=off,ln=off`.
"""

from typing import Literal

import torch
from cl_bench.methods.l2p import L2P, VOTES_AS_PUBLISHED, PoolConfig
from cl_bench.methods.vpt_nsp2 import NullSpaceConfig, NullSpaceUpdates
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.projection import (
    Projection,
    keep_norm_outside,
    null_projector,
    shares_outside_null,
    stepping,
)
from cl_bench.nn.statistics import AttentionMoments
from cl_bench.training.trainer import Trainer

SUMMARY = "L2P with updates in the null space of old tasks (NSP²)"
FAMILY, VENUE, PASSES = "prompts", "NeurIPS 2024", 2
RECONSTRUCTION = True


class L2PNSP2Config(NullSpaceConfig, PoolConfig):
    """Settings of L2P in PGP's training; eta is that of VPT, the paper names none for L2P."""

    key_proj: bool = True  # project the keys' update
    # and keep the keys' length outside old queries, so that old cosines stay (exact with eta=1,
    # nsp_norm=none)
    key_exact: bool = False
    eta_q: float | None = Field(None, ge=0, le=1)  # overrides eta for the keys
    b2_scope: Literal["pool", "per_prompt"] = "pool"  # B_2 over all pool rows, or a block for each prompt
    freeze_after_task1: bool = False  # control: no update of prompts and keys after the first task


class L2PNSP2(NullSpaceUpdates, L2P):
    """The pool with P <- P + B2 U B1 and K <- K + U B_q from the second task on."""

    Config = L2PNSP2Config
    display = "L2P-NSP²"
    TRUNK = PoolConfig
    version = 2
    AS_PUBLISHED = VOTES_AS_PUBLISHED
    LEFT_DIFFERENT = L2P.LEFT_DIFFERENT

    def __init__(self, config: L2PNSP2Config, backbone: Backbone, stream: StreamInfo):
        if config.carry != "drop":
            enters = "carry=accumulate lets prompt outputs enter the next block"
            raise InputError(f"{enters}, which no projection of L2P-NSP² protects; give carry=drop")
        if config.step != "projected" and (config.key_exact or config.freeze_after_task1):
            undone = f"step={config.step} would undo key_exact=on and freeze_after_task1=on"
            raise InputError(f"{undone}; leave out one of them")
        super().__init__(config, backbone, stream)
        D = backbone.width
        self.register_buffer("Cq", torch.zeros(1, D, D, dtype=torch.float64, device=self.device))
        self.register_buffer("Bq", torch.zeros(1, D, D, dtype=torch.float64, device=self.device))
        self.Rq: list[int] = []
        self.keys_inside = 0.0
        self.register_buffer("K_prev", torch.zeros_like(self.K))

    @property
    def b2_blocks(self) -> int:
        """One block for the pool, or one for each prompt."""
        return self.config.pool_size if self.config.b2_scope == "per_prompt" else 1

    def projections(self, task: TaskInfo) -> list[Projection]:
        """The prompts' projections, and U_K -> U_K B_q for the keys; to nothing with `freeze_after_task1`."""
        if task.index and self.config.freeze_after_task1:
            return [(self.P, torch.zeros_like), (self.K, torch.zeros_like)]
        found = super().projections(task)
        if not (task.index and self.config.key_proj):
            return found
        Bq = self.Bq[0].float()
        Pi = null_projector(self.Cq[0], self.config.nullity)[0].float() if self.config.key_exact else None

        def project(U: Tensor) -> Tensor:
            U_B = U @ Bq
            if not self.config.key_exact:
                return U_B
            old = self.K - U  # Adam has stepped already
            return keep_norm_outside(old + U_B, old, lambda X: X @ Pi) - old

        return [*found, (self.K, stepping(project, self.config.step))]

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """One pass also for the keys alone."""
        own = images if not self.is_last(task) and self.config.key_proj else 0
        return max(own, super().statistics_images(task, images))

    def visit(self, task: Task, trainer: Trainer, moments: AttentionMoments | None) -> None:
        """Attention under the prompts of prediction, and the queries' second moments, if a task follows."""
        if task.index:
            moved = (self.K.detach() - self.K_prev)[None]
            [self.keys_inside] = shares_outside_null(moved, self.Cq, self.config.nullity)
        self.K_prev.copy_(self.K.detach())
        if self.is_last(task) or not (moments or self.config.key_proj):
            return
        sums = torch.zeros_like(self.Cq[0])
        for images, q, chosen in self.visits(task, trainer):
            q = F.normalize(q, dim=1).double()
            sums += q.T @ q / (len(q) if self.config.cov_norm == "batches" else 1)
            if moments:
                self.prompted(images, chosen, moments)
        if self.config.key_proj:
            self.Cq += sums / (len(task) if self.config.cov_norm == "rows" else 1)
            self.Rq = self.update_projections("q", self.config.eta_q, task)

    def diagnostics(self) -> dict:
        """Besides the blocks': the queries' nullity, and the keys' update as old queries see it."""
        return {**super().diagnostics(), "Rq": self.Rq, "key_update_inside_protected": self.keys_inside}


METHOD = L2PNSP2
