r"""VPT-PGP: prompt gradients are kept orthogonal to the subspace of old tasks' input tokens.

PGP is Qiao et al., "Prompt Gradient Projection for Continual Learning", ICLR 2024, on the growing basis of GPM (Saha et al., ICLR 2021). VPT-PGP
exists only as a row of NSP2's Table 5 ("same training settings"), without code. Where that leaves a choice: the raw gradient is projected,
\[ g \leftarrow g - (g M) M^T, \]
in feature space, M an orthonormal basis that holds the fraction `energy` of the squared norm of the tokens X entering a block, uncentred and
before norm1, of 768 training images a task. The public PGP code works in sample space; see `cl_bench.methods._pgp`.
"""

from typing import Literal

import torch
from cl_bench.methods._pgp import ProjectionConfig, chosen_images, statistics_images
from cl_bench.methods.vpt_seq import PromptTuningConfig, VPTSeq
from pydantic import Field
from torch import Tensor, optim

from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.projection import ProjectedAdam
from cl_bench.nn.statistics import TokenMoments
from cl_bench.nn.subspaces import Subspaces
from cl_bench.training.trainer import Trainer

ALIASES = ("pgp",)
SUMMARY = "gradients orthogonal to old tasks' tokens (PGP, ICLR 2024, as compared in NSP2)"


class PGPConfig(ProjectionConfig, PromptTuningConfig):
    """Training as VPT-NSP2 (NSP2 paper, appendix D); the rest is not stated there, see the module's first lines."""

    pgp_wd: Literal["after", "before"] = (
        "after"  # weight decay joins the gradient after or before its projection
    )
    pgp_feat: Literal["raw", "ln"] = "raw"  # tokens before or after norm1
    pgp_include_prompt: bool = (
        False  # protect the old prompts' own directions too (PGP's second condition), by stacked rows
    )
    pgp_norm: Literal["none", "nsp"] = (
        "none"  # nsp: the projector as NSP2 scales it, over its Frobenius norm and mixed with the identity by eta
    )
    eta: float = Field(0.97, ge=0, le=1)  # only with pgp_norm=nsp


class VPTPGP(VPTSeq):
    """Prompt tuning whose prompt gradients lose their component inside the old tasks' subspace from the second task on."""

    Config = PGPConfig
    display = "VPT-PGP"
    TRUNK = PromptTuningConfig

    def __init__(self, config: PGPConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        if config.pgp_norm == "nsp" and config.pgp_stage == "grad":
            raise InputError("pgp_norm=nsp needs pgp_stage=update: Adam undoes any scaling of the gradient")
        layers, _, D = self.P.shape
        self.subspaces = Subspaces((layers, D, D), self.device)
        self.register_buffer("P_start", torch.zeros_like(self.P))

    @classmethod
    def trunk(cls, config: PGPConfig) -> dict | None:
        """As VPT-Seq, but for who adds the weight decay to the gradient."""
        return (
            {**super().trunk(config), "pgp_wd": config.pgp_wd}
            if config.pgp_wd == "before"
            else super().trunk(config)
        )

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Remember the prompts, to measure the update, and the protected directions of all earlier tasks."""
        self.P_start.copy_(self.P.detach())
        self.subspaces.refresh()

    def adam_settings(self) -> dict:
        """With pgp_wd=before, the decay of prompts joins the gradient in `after_backward`, and that of heads with it."""
        settings = super().adam_settings()
        return {**settings, "weight_decay": 0.0} if self.config.pgp_wd == "before" else settings

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """Plain Adam, or one whose finished prompt update is projected (pgp_stage=update)."""
        if self.config.pgp_stage == "grad" or not any(self.subspaces.ranks()):
            return super().make_optimizer(task)
        return ProjectedAdam(self.trained_parameters(), [(self.P, self.outside)], **self.adam_settings())

    def outside(self, U: Tensor) -> Tensor:
        """The update's component outside the protected subspace; with pgp_norm=nsp over sqrt(D - r) and mixed with U by eta."""
        projected = self.subspaces.outside(U)
        if self.config.pgp_norm == "none":
            return projected
        return (
            self.config.eta * projected / (U.shape[2] - self.subspaces.active_ranks) ** 0.5
            + (1 - self.config.eta) * U
        )

    def after_backward(self, task: TaskInfo) -> None:
        """g <- g - (g M) M^T."""
        if self.config.pgp_wd == "before":
            for parameter in self.trained_parameters():
                parameter.grad.add_(parameter.detach(), alpha=self.config.weight_decay)
        if self.config.pgp_stage == "grad":
            self.P.grad = self.subspaces.outside(self.P.grad)

    @property
    def statistics_name(self) -> str | None:
        """Second moments of the same images' tokens."""
        return f"token-moments-{self.config.pgp_feat}-{self.config.images}"

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """The images whose tokens are collected."""
        return statistics_images(self.config, images, self.is_last(task))

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Grow every block's basis by the task's tokens; nothing to do after the last task."""
        self.inside = self.subspaces.share_inside(self.P.detach() - self.P_start)
        if self.is_last(task) or self.config.energy == 0:
            return
        moments = TokenMoments(self.P, normalised=self.config.pgp_feat == "ln")

        def observe() -> dict[str, Tensor]:
            for batch in trainer.plain(
                task, self.statistics_batch, chosen_images(self.config, task, trainer), shared=True
            ):
                self.backbone.features(batch.images, moments.observing(self.prompts))
            return {"means": moments.means(trainer.group.all_reduce_sum)}

        A = trainer.once(self.statistics_name, observe)["means"]
        if self.config.pgp_include_prompt:
            P = self.P.detach().double()
            A = A + P.mT @ P / P.shape[1]
        self.subspaces.grow(
            A, self.config.energy, self.config.pgp_energy, self.config.pgp_rank_rule, task.index == 0
        )

    def diagnostics(self) -> dict:
        """The rank of every block's basis, and the share of the task's whole prompt update that lies inside the protected subspace."""
        return {"rank": self.subspaces.ranks(), "update_inside_protected": self.inside}


METHOD = VPTPGP
