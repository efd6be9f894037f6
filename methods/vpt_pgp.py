r"""VPT-PGP: prompt gradients are kept orthogonal to the subspace of old tasks' input tokens.

PGP is Qiao et al., "Prompt Gradient Projection for Continual Learning", ICLR 2024, on the growing basis of
GPM (Saha et al., ICLR 2021). VPT-PGP exists only as a row of NSP2's Table 5 ("same training settings"),
without code. Where that leaves a choice: the raw gradient is projected,
\[ g \leftarrow g - (g M) M^T, \]
in feature space, M an orthonormal basis that holds the fraction `energy` of the squared norm of the tokens X
entering a block, uncentered and before norm1, of 768 training images a task. The public PGP code works in
sample space; see `cl_bench.methods._pgp`.
"""

from typing import ClassVar, Literal

from cl_bench.methods._pgp import GradientProjection, ProjectionConfig
from cl_bench.methods._steps import StepConfig, require_step
from cl_bench.methods.vpt_seq import LaterRate, LaterRateConfig, PromptTuningConfig, VPTSeq
from pydantic import Field
from torch import Tensor

from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.projection import Projection, stepping
from cl_bench.nn.statistics import TokenMoments
from cl_bench.training.trainer import Trainer

ALIASES = ("pgp",)
SUMMARY = "gradients orthogonal to old tasks' tokens (PGP, as compared in NSP2)"
FAMILY, VENUE, PASSES = "prompts", "ICLR 2024", 1
RECONSTRUCTION = True


class PGPConfig(ProjectionConfig, StepConfig, LaterRateConfig, PromptTuningConfig):
    """Training as VPT-NSP2 (NSP2 paper, appendix D); nothing else is stated there."""

    ADDED: ClassVar = frozenset({"pgp_space"})
    # controls: as many random directions (random), or updates inside the subspace alone (range)
    pgp_space: Literal["feature", "random", "range"] = "feature"
    pgp_wd: Literal["after", "before"] = "after"  # weight decay joins the gradient after or before projection
    pgp_feat: Literal["raw", "ln"] = "raw"  # tokens before or after norm1
    pgp_include_prompt: bool = False  # old prompts' directions too, as further rows (PGP's second condition)
    # nsp: the projector as NSP2 scales it, over its Frobenius norm and mixed with the identity by eta
    pgp_norm: Literal["none", "nsp"] = "none"
    eta: float = Field(0.97, ge=0, le=1)  # only with pgp_norm=nsp


class VPTPGP(LaterRate, GradientProjection, VPTSeq):
    """Prompt tuning whose gradients lose their part inside old tasks' subspace from the second task on."""

    Config = PGPConfig
    display = "VPT-PGP"
    TRUNK = PromptTuningConfig
    measured = ("P",)
    measured_state = True

    def __init__(self, config: PGPConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        if config.pgp_norm == "nsp" and config.pgp_stage == "grad":
            raise InputError("pgp_norm=nsp needs pgp_stage=update: Adam undoes any scaling of the gradient")
        require_step(
            config, config.pgp_stage == "update" and config.energy > 0, "pgp_stage=update, energy above 0"
        )
        layers, _, D = self.P.shape
        self.subspaces = self.spaces((layers, D, D))

    @classmethod
    def trunk(cls, config: PGPConfig) -> dict | None:
        """As VPT-Seq, but for who adds the weight decay to the gradient."""
        shared = super().trunk(config)
        return {**shared, "pgp_wd": config.pgp_wd} if config.pgp_wd == "before" else shared

    def adam_settings(self) -> dict:
        """With pgp_wd=before, all decay joins the gradient in `after_backward`."""
        settings = super().adam_settings()
        return {**settings, "weight_decay": 0.0} if self.config.pgp_wd == "before" else settings

    def outsides(self) -> list[Projection]:
        """P outside the protected subspace."""
        return [] if self.subspaces.empty else [(self.P, self.outside)]

    def projections(self, task: TaskInfo) -> list[Projection]:
        """As `step` says, with pgp_stage=update."""
        return [(P, stepping(project, self.config.step)) for P, project in super().projections(task)]

    def outside(self, U: Tensor) -> Tensor:
        """U - (U M) M^T; with pgp_norm=nsp over sqrt(D - r) and mixed with U by eta."""
        projected, eta = self.subspaces.outside(U), self.config.eta
        if self.config.pgp_norm == "none":
            return projected
        return eta * projected / (U.shape[2] - self.subspaces.active_ranks) ** 0.5 + (1 - eta) * U

    def after_backward(self, task: TaskInfo) -> None:
        """g <- g - (g M) M^T, the decay in g before with pgp_wd=before."""
        if self.config.pgp_wd == "before":
            for parameter in VPTSeq.trained_parameters(self):
                parameter.grad.add_(parameter.detach(), alpha=self.config.weight_decay)
        super().after_backward(task)

    @property
    def statistics_name(self) -> str | None:
        """Second moments of the same images' tokens."""
        return f"token-moments-{self.config.pgp_feat}-{self.config.images}"

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Grow every block's basis by the task's tokens; nothing to do after the last task."""
        self.inside = self.subspaces.share_inside(self.moved("P"))
        if self.is_last(task) or self.config.energy == 0:
            return
        chosen = self.chosen_images(task, trainer)
        moments = TokenMoments(self.P, normalized=self.config.pgp_feat == "ln")

        def observe() -> dict[str, Tensor]:
            for batch in trainer.plain(task, self.statistics_batch, chosen, shared=True):
                self.backbone.features(batch.images, moments.observing(self.prompts))
            return {"means": moments.means(trainer.group.all_reduce_sum)}

        A = trainer.once(self.statistics_name, observe)["means"]
        if self.config.pgp_include_prompt:
            P = self.P.detach().double()
            A = A + P.mT @ P / P.shape[1]
        self.protect(self.subspaces, A, self.config.energy, task)

    def diagnostics(self) -> dict:
        """The rank of every block's basis, and the share of the task's prompt update inside the subspace."""
        return {"rank": self.subspaces.ranks(), "update_inside_protected": self.inside}


METHOD = VPTPGP
