r"""VPT-NSP2: prompt updates are projected into the null space of old tasks' attention.

Lu et al., "Visual Prompt Tuning in Null Space for Continual Learning", NeurIPS 2024, arXiv 2406.05658, Tables
1 to 5. For every prompted block
\[ \Delta P = [\eta_2 B_2 + (1-\eta_2) I] \, P_G \, [\eta_1 B_1 + (1-\eta_1) I] \qquad \text{(eq. 29)} \]
where P_G is Adam's finished update, B_1 and B_2 span the null spaces of Omega_1 = [Q_h W_k,h]_h and Omega_2 =
[S_P,h]_h of all earlier tasks (section 4.3, Algorithms 1 and 2), and L_LN (eq. 27) keeps the prompts' mean
and standard deviation.

Defaults follow the published code where it and the paper differ (`nullity`, `ln_red`), but covariances are
means over a task's rows, so that every task weighs the same; the code sums means of batches of 100 images
(`cov_norm=batches`). Dividing B by its Frobenius norm (`nsp_norm=fro`) shrinks later updates tenfold;
`subspace=iso`, `random` and `range` shrink as much with no, random, or the protected directions, and `step`
keeps direction or size alone. `affine=exact` has the conditions with LayerNorm's scale and the prompts'
deviation, which paper and code drop.
"""

from typing import Literal

import torch
from cl_bench.methods._steps import StepConfig, require_step
from cl_bench.methods.vpt_seq import LaterRate, LaterRateConfig, PromptTuningConfig, VPTSeq
from pydantic import Field
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn import projection
from cl_bench.nn.backbone import Backbone, require_linear_keys
from cl_bench.nn.projection import Nullity, Projection
from cl_bench.nn.statistics import AttentionMoments
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, with_null_spaces

ALIASES, SUMMARY = ("nsp2",), "updates projected into the null space of old tasks"
FAMILY, VENUE, GROUPS, PASSES = "prompts", "NeurIPS 2024", ("paper",), 1


class NullSpaceConfig(StepConfig):
    """Settings of the null-space projection; eta is that of 10-split CIFAR-100, NSP2 paper, appendix B."""

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
    cov_norm: Literal["rows", "batches", "sum"] = "rows"  # batches: the sum of batches' means (published)
    subspace: Literal["nsp", "iso", "random", "range"] = "nsp"  # or one that shrinks updates as much


class NullSpaceUpdates:
    """Mixed in before a prompt-tuning method (`P`, `visit`): P <- P + B2 U B1 from the second task on."""

    AS_PUBLISHED = {"cov_norm": "batches"}
    LEFT_DIFFERENT = ("the frozen network is in fp32 or bf16 (precision), where the code trains in fp16",)
    b2_blocks = 1  # B_2 is made of so many diagonal blocks

    def __init__(self, config: NullSpaceConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        layers, M, D = self.P.shape
        require_step(config, (config.b1 or config.b2) and config.subspace != "iso", "b1=on, not subspace=iso")
        if config.b1:
            require_linear_keys(backbone)
        if config.b2:
            projection.require_null_space(M // self.b2_blocks)
        for name, n in {"C1": D, "C2": M, "B1": D, "B2": M}.items():
            self.register_buffer(name, torch.zeros(layers, n, n, dtype=torch.float64, device=self.device))
        self.register_buffer("P_prev", torch.zeros(layers, M, D, device=self.device))
        self.R1, self.R2, self.inside = [], [], []

    @property
    def statistics_name(self) -> str | None:
        """As the other methods of the same body, unless batches weigh the same."""
        name = super().statistics_name
        return f"{name}-batches" if name and self.config.cov_norm == "batches" else name

    def extra(self) -> Extra:
        """Both projections of every update, the moments of the prompts' attention, and their null spaces."""
        which = self.config.b1, self.config.b2
        return with_null_spaces(super().extra(), self.P, self.backbone.vit, *which, self.b2_blocks)

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """One pass over the task, shared with what else the method wants to see."""
        needed = not self.is_last(task) and (self.config.b1 or self.config.b2)
        return max(images if needed else 0, super().statistics_images(task, images))

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE + lambda L_LN; the second term from the second task on."""
        ce = super().loss(batch, task)
        weight = self.config.ln_weight if self.config.ln and task.index else 0.0
        return ce + weight * projection.ln_loss(self.P, self.P_prev, self.config.ln_red) if weight else ce

    def projections(self, task: TaskInfo) -> list[Projection]:
        """Adam's finished update U of the prompts becomes B2 U B1; not in the first task."""
        B1, B2 = self.B1.float() if self.config.b1 else None, self.B2.float() if self.config.b2 else None
        project = projection.stepping(lambda U: projection.between(B2, U, B1), self.config.step)
        return [(self.P, project)] if task.index and (self.config.b1 or self.config.b2) else []

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Add the task's covariances and derive B1 and B2 for the next one, where one follows."""
        config, moments = self.config, None
        if task.index and config.b1:
            moved = self.P.detach() - self.P_prev
            self.inside = projection.shares_outside_null(moved, self.C1, config.nullity)
        if not self.is_last(task):
            self.P_prev.copy_(self.P.detach())
            if config.b1 or config.b2:
                moments = AttentionMoments(self.P, self.backbone.vit, config.cov_norm == "batches")
        self.visit(task, trainer, moments)
        if moments:
            rows = moments.rows if config.cov_norm == "rows" else 1
            omega1, omega2 = moments.covariances(self.P.detach() if config.affine == "exact" else None)
            self.C1 += omega1 / rows
            self.C2 += omega2 / rows
        self.R1 = self.update_projections("1", config.eta1, task) if moments and config.b1 else []
        self.R2 = self.update_projections("2", config.eta2, task) if moments and config.b2 else []

    def update_projections(self, name: str, eta: float | None, task: Task) -> list[int]:
        """Write eta B + (1 - eta) I of C (L, n, n), or of its diagonal blocks, into B; the nullities R."""
        C, B, config = getattr(self, f"C{name}"), getattr(self, f"B{name}"), self.config
        rules = (config.nullity, config.nsp_norm, config.subspace)
        key = (self.stream.init_seed, "random subspace", f"B{name}", task.index)
        eta, blocks = config.eta if eta is None else eta, self.b2_blocks if name == "2" else 1
        B[:], nullities = projection.fused_projections(C, eta, *rules, key, blocks)
        return nullities

    def diagnostics(self) -> dict:
        """Nullities of every block after the task, and the share of its update outside those before it."""
        return {**super().diagnostics(), "R1": self.R1, "R2": self.R2, "update_inside_protected": self.inside}


class NSP2Config(NullSpaceConfig, LaterRateConfig, PromptTuningConfig):
    """Defaults: 10-split CIFAR-100, NSP2 paper, appendix B."""


class VPTNSP2(LaterRate, NullSpaceUpdates, VPTSeq):
    """Prompt tuning whose prompt updates are P <- P + B2 U B1 from the second task on."""

    Config = NSP2Config
    display = "VPT-NSP²"
    TRUNK = PromptTuningConfig


METHOD = VPTNSP2
