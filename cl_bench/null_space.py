r"""Prompt updates in the null space of old tasks' attention: what every NSP2 method on prompted blocks shares.

Lu et al., "Visual Prompt Tuning in Null Space for Continual Learning", NeurIPS 2024, arXiv 2406.05658. For every prompted block
\[ \Delta P = [\eta_2 B_2 + (1-\eta_2) I] \, P_G \, [\eta_1 B_1 + (1-\eta_1) I] \qquad \text{(eq. 29)} \]
where P_G is Adam's finished update, B_1 and B_2 span the null spaces of Omega_1 = [Q_h W_k,h]_h and Omega_2 = [S_P,h]_h of all earlier
tasks (section 4.3, Algorithms 1 and 2), and L_LN (eq. 27) keeps the prompts' mean and standard deviation.

Defaults follow the published code where it and the paper differ: `nullity` (the paper's rule protects a handful of directions on
smooth spectra), `ln_red` (mean over prompts, the paper has a sum). Covariances are a sum over all rows of a task, divided once by
their number (`cov_norm=rows`), so that every task weighs the same; the code sums the means of batches of 100 images, so that a task
weighs by the number of its batches and the images of a short last batch more than others (`cov_norm=batches`). Dividing B by its
Frobenius norm (`nsp_norm=fro`) shrinks every update after the first task by an order of magnitude; `subspace=iso` and
`subspace=random` shrink as much without, or with random, directions, and tell the two effects apart. `affine=exact` uses the
conditions with LayerNorm's scale and the prompts' deviation, which paper and code drop.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, optim

from cl_bench import seeds
from cl_bench.backbone import Backbone
from cl_bench.batch import Batch
from cl_bench.config import Strict
from cl_bench.errors import InputError
from cl_bench.nn.projection import Nullity, ProjectedAdam, fused_projection, ln_loss, share_outside_null
from cl_bench.nn.statistics import AttentionMoments
from cl_bench.stream import StreamInfo, Task, TaskInfo
from cl_bench.trainer import Trainer
from cl_bench.work import EIGEN, Extra

AS_PUBLISHED = {"cov_norm": "batches"}


class NullSpaceConfig(Strict):
    """Settings of the null-space projection; the value of eta is that of 10-split CIFAR-100, NSP2 paper, appendix B."""

    b1: bool = True  # projection for affinity, B_1
    b2: bool = True  # projection for aggregation, B_2
    ln: bool = True  # loss of invariant prompt distribution, L_LN
    eta: float = Field(0.97, ge=0, le=1)  # eta_1 = eta_2
    eta1: float | None = Field(None, ge=0, le=1)  # overrides eta for B_1
    eta2: float | None = Field(None, ge=0, le=1)  # overrides eta for B_2
    ln_weight: float = Field(1.0, ge=0)  # lambda
    nullity: Nullity = "official"
    nsp_norm: Literal["fro", "none"] = "fro"
    affine: Literal["ignore", "exact"] = "ignore"
    ln_red: Literal["mean", "l1"] = "mean"
    cov_norm: Literal["rows", "batches", "sum"] = "rows"  # mean over a task's rows, sum of its batches' means (published), sum
    subspace: Literal["nsp", "iso", "random"] = "nsp"  # iso: the same shrink without a direction; random: a random subspace of equal size


class NullSpaceUpdates:
    """Mixed in before a prompt-tuning method (`P`, `visit`): updates become P <- P + B2 U B1 from the second task on."""

    b2_blocks = 1  # B_2 is made of so many diagonal blocks

    def __init__(self, config: NullSpaceConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        layers, M, D = self.P.shape
        if config.b2 and M // self.b2_blocks < 3:
            raise InputError(
                f"b2=on needs at least 3 prompts to find a null space among them, got prompts={M // self.b2_blocks}; give b2=off or more prompts"
            )
        if config.b1 and not isinstance(backbone.vit.blocks[0].attn.k_norm, torch.nn.Identity):
            raise InputError(f"backbone {backbone.spec.name!r} normalises its keys, for which NSP2's first condition is not linear; give b1=off")
        for name, shape in {"C1": (layers, D, D), "C2": (layers, M, M), "B1": (layers, D, D), "B2": (layers, M, M)}.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64, device=self.device))
        self.register_buffer("P_prev", torch.zeros(layers, M, D, device=self.device))
        self.R1, self.R2, self.inside = [], [], []

    @property
    def statistics_name(self) -> str | None:
        """As the other methods of the same body, unless batches weigh the same."""
        name = super().statistics_name
        return f"{name}-batches" if name and self.config.cov_norm == "batches" else name

    def extra(self) -> Extra:
        """Both projections of every update, the second moments of the prompts' attention, and the null spaces of these."""
        layers, M, D = map(float, self.P.shape)
        vit, found, b1, b2 = self.backbone.vit, super().extra(), self.config.b1, self.config.b2
        rows = vit.blocks[0].attn.num_heads * (vit.patch_embed.num_patches + vit.num_prefix_tokens)
        return replace(
            found,
            step=found.step + layers * (b1 * M * D * D + b2 * M * M * D),
            statistics=found.statistics + layers * rows * (b1 or b2) * M * M,
            task=found.task + b2 * EIGEN * layers * M**3 / self.b2_blocks**2,
            working_bytes=found.working_bytes + 8 * layers * M * M,
        )

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """One pass over the task, shared with what else the method wants to see."""
        own = images if not self.is_last(task) and (self.config.b1 or self.config.b2) else 0
        return max(own, super().statistics_images(task, images))

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE + lambda L_LN; the second term from the second task on."""
        loss = super().loss(batch, task)
        if self.config.ln and task.index > 0:
            loss = loss + self.config.ln_weight * ln_loss(self.P, self.P_prev, self.config.ln_red)
        return loss

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """Adam whose finished updates are projected; plain Adam in the first task or with nothing to project."""
        projections = self.projections() if task.index else []
        return ProjectedAdam(self.trained_parameters(), projections, **self.adam_settings()) if projections else super().make_optimizer(task)

    def projections(self) -> list[tuple[torch.nn.Parameter, Callable[[Tensor], Tensor]]]:
        """The prompts with U -> B2 U B1; empty with both off."""
        if not (self.config.b1 or self.config.b2):
            return []
        B1, B2 = self.B1.float(), self.B2.float()

        def project(U: Tensor) -> Tensor:  # (L, M, D)
            U = U @ B1 if self.config.b1 else U
            return B2 @ U if self.config.b2 else U

        return [(self.P, project)]

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Add the task's covariances and derive B1 and B2 for the next one; neither is needed after the last task."""
        if task.index and self.config.b1:
            deltas = zip(self.P.detach() - self.P_prev, self.C1, strict=True)
            self.inside = [share_outside_null(delta, C, self.config.nullity) for delta, C in deltas]
        self.R1, self.R2 = [], []
        moments = None
        if not self.is_last(task):
            self.P_prev.copy_(self.P.detach())
            if self.config.b1 or self.config.b2:
                moments = AttentionMoments(self.P, self.backbone.vit, self.config.cov_norm == "batches")
        self.visit(task, trainer, moments)
        if moments:
            self._add(moments, task)

    def _add(self, moments: AttentionMoments, task: Task) -> None:
        omega1, omega2 = moments.covariances()
        if self.config.affine == "exact":
            alpha = torch.stack([block.norm1.weight.double() for block in self.backbone.vit.blocks[: len(self.P)]])  # (L, D)
            sigma = self.P.detach().double().std(dim=2, correction=0)  # (L, M)
            omega1 = alpha[:, :, None] * omega1 * alpha[:, None, :]
            omega2 = omega2 / (sigma[:, :, None] * sigma[:, None, :])
        rows = moments.rows if self.config.cov_norm == "rows" else 1
        self.C1 += omega1 / rows
        self.C2 += omega2 / rows
        eta1 = self.config.eta if self.config.eta1 is None else self.config.eta1
        eta2 = self.config.eta if self.config.eta2 is None else self.config.eta2
        if self.config.b1:
            self.R1 = self.update_projections(self.B1, self.C1, eta1, task, "B1")
        if self.config.b2:
            self.R2 = self.update_projections(self.B2, self.C2, eta2, task, "B2", self.b2_blocks)

    def update_projections(self, B: Tensor, C: Tensor, eta: float, task: Task, name: str, blocks: int = 1) -> list[int]:
        """Write eta B + (1 - eta) I of every layer's C (L, n, n), or of its diagonal blocks, into B; returns the nullities R."""
        nullities, width = [], C.shape[1] // blocks
        for layer in range(len(C)):
            R = 0
            for block in range(blocks):
                part = slice(block * width, (block + 1) * width)
                key = (layer,) if blocks == 1 else (layer, block)
                generator = seeds.generator(self.stream.init_seed, "random subspace", name, task.index, *key)
                projection, rank = fused_projection(
                    C[layer, part, part], eta, self.config.nullity, self.config.nsp_norm, self.config.subspace, generator
                )
                B[layer, part, part] = projection
                R += rank
            nullities.append(R)
        return nullities

    def diagnostics(self) -> dict:
        """The nullities of every block, found after this task, and the share of the task's update outside the null spaces before it."""
        return {**super().diagnostics(), "R1": self.R1, "R2": self.R2, "update_inside_protected": self.inside}
