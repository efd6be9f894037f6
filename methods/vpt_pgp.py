r"""VPT-PGP: prompt gradients are kept orthogonal to the subspace of old tasks' input tokens.

PGP is Qiao et al., "Prompt Gradient Projection for Continual Learning", ICLR 2024, on the growing basis of GPM (Saha et al., ICLR 2021). VPT-PGP
exists only as a row of NSP2's Table 5 ("same training settings"), without code. Where that leaves a choice: the raw gradient is projected,
\[ g \leftarrow g - (g M) M^T, \]
in feature space, M an orthonormal basis that holds the fraction `energy` of the squared norm of the tokens X entering a block, uncentred and
before norm1, of 768 training images a task. The public PGP code projects with a matrix over samples instead of features and thresholds
fourth powers; neither is copied. Adam scales coordinates after the projection, so its update is not orthogonal to M: the share left
inside is recorded, and `stage=update` projects the finished update instead.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, optim

from cl_bench import seeds
from cl_bench.backbone import Backbone
from cl_bench.errors import InputError
from cl_bench.nn.projection import ProjectedAdam
from cl_bench.nn.statistics import TokenMoments
from cl_bench.prompt_tuning import PromptTuning, PromptTuningConfig
from cl_bench.stream import StreamInfo, Task
from cl_bench.trainer import Trainer

ALIASES = ("pgp",)
SUMMARY = "gradients orthogonal to old tasks' tokens (PGP, ICLR 2024, as compared in NSP2)"


class PGPConfig(PromptTuningConfig):
    """Training as VPT-NSP2 (NSP2 paper, appendix D); the rest is not stated there, see the module's first lines."""

    energy: float = Field(0.50, ge=0, le=1)  # epsilon
    images: int = Field(768, ge=1)  # training images a task whose tokens are collected
    stage: Literal["grad", "update"] = "grad"
    weight_decay_stage: Literal["after", "before"] = "after"  # weight decay joins the gradient after or before its projection
    features: Literal["raw", "ln"] = "raw"  # tokens before or after norm1
    include_prompt: bool = False  # protect the old prompts' own directions too (PGP's second condition), by stacked rows
    energy_of: Literal["sigma2", "sigma4_asis"] = "sigma2"  # energies are second or (public PGP code) fourth powers of singular values
    rank_rule: Literal["geq", "lt_asis"] = "geq"  # fewest directions that reach the energy, or (public PGP code) the most that stay below it
    norm: Literal["none", "nsp"] = "none"  # nsp: the projector as NSP2 scales it, over its Frobenius norm and mixed with the identity by eta
    eta: float = Field(0.97, ge=0, le=1)  # only with norm=nsp


class VPTPGP(PromptTuning):
    """Prompt tuning whose prompt gradients lose their component inside the old tasks' subspace from the second task on."""

    Config = PGPConfig
    display = "VPT-PGP"

    def __init__(self, config: PGPConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        if config.norm == "nsp" and config.stage == "grad":
            raise InputError("norm=nsp needs stage=update: Adam undoes any scaling of the gradient")
        layers, _, D = self.P.shape
        self.register_buffer("M", torch.zeros(layers, D, D, dtype=torch.float64, device=self.device))  # basis in the first columns, then zeros
        self.register_buffer("P_start", torch.zeros_like(self.P))

    def begin_task(self, task: Task) -> None:
        """Remember the prompts, to measure the update, and the protected directions of all earlier tasks."""
        self.P_start.copy_(self.P.detach())
        ranks = self._ranks()
        self.protected = self.M[..., : max(ranks)].float()  # (L, D, r)
        self.root_nullity = torch.tensor([(self.M.shape[1] - rank) ** 0.5 for rank in ranks], device=self.device).view(-1, 1, 1)  # sqrt(D - r)

    def adam_settings(self) -> dict:
        """With weight_decay_stage=before, the decay of prompts joins the gradient in `after_backward`, and that of heads with it."""
        settings = super().adam_settings()
        return {**settings, "weight_decay": 0.0} if self.config.weight_decay_stage == "before" else settings

    def make_optimizer(self, task: Task) -> optim.Optimizer:
        """Plain Adam, or one whose finished prompt update is projected (stage=update)."""
        if self.config.stage == "grad" or self.protected.shape[2] == 0:
            return super().make_optimizer(task)
        return ProjectedAdam(self.trained_parameters(), self.P, self._outside, **self.adam_settings())

    def _outside(self, U: Tensor) -> Tensor:
        """The update's component outside the protected subspace; with norm=nsp over sqrt(D - r) and mixed with U by eta."""
        M = self.protected
        projected = U - (U @ M) @ M.mT
        if self.config.norm == "none":
            return projected
        return self.config.eta * projected / self.root_nullity + (1 - self.config.eta) * U

    def after_backward(self, task: Task) -> None:
        """g <- g - (g M) M^T."""
        if self.config.weight_decay_stage == "before":
            for parameter in self.trained_parameters():
                parameter.grad.add_(parameter.detach(), alpha=self.config.weight_decay)
        M = self.protected
        if self.config.stage == "grad" and M.shape[2]:
            self.P.grad.sub_((self.P.grad @ M) @ M.mT)

    def _ranks(self) -> list[int]:
        return self.M.any(dim=1).sum(dim=1).tolist()

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Grow every block's basis by the task's tokens; nothing to do after the last task."""
        delta, M = (self.P.detach() - self.P_start).double(), self.M
        self.inside = ((delta @ M).norm() / delta.norm()).item() if delta.any() else 0.0
        if task.index == self.stream.num_tasks - 1 or self.config.energy == 0:
            return
        chosen = seeds.permutation(len(task), trainer.data_seed, "pgp images", task.index)[: self.config.images]
        moments = TokenMoments(self.prompts, normalised=self.config.features == "ln")
        for images, _ in trainer.plain(task, self.statistics_batch, chosen):
            self.backbone.features(images, moments.attend)
        for layer, (rank, A) in enumerate(zip(self._ranks(), moments.sums / moments.rows, strict=True)):
            if self.config.include_prompt:
                prompts = self.P[layer].detach().double()
                A = A + prompts.T @ prompts / len(prompts)
            basis = grown_basis(self.M[layer, :, :rank], A, self.config.energy, self.config.energy_of, self.config.rank_rule)
            self.M[layer, :, : basis.shape[1]] = basis

    def diagnostics(self) -> dict:
        """The rank of every block's basis, and the share of the task's whole prompt update that lies inside the protected subspace."""
        return {"rank": self._ranks(), "update_inside_protected": self.inside}


def grown_basis(M: Tensor, A: Tensor, energy: float, energy_of: str = "sigma2", rank_rule: str = "geq") -> Tensor:
    """[M, new directions] (D, r'), orthonormal, r' <= D - 1: the fewest eigenvectors of A outside span(M) that bring the captured part of
    tr(A) to `energy` (GPM). With `sigma4_asis` all energies are squared, with `lt_asis` one direction fewer is taken."""
    D, r = A.shape[0], M.shape[1]
    outside = torch.eye(D, dtype=A.dtype, device=A.device) - M @ M.T
    values, vectors = torch.linalg.eigh(outside @ A @ outside)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    captured = (M.T @ A @ M).diagonal()
    if energy_of == "sigma4_asis":
        values, captured = values.square(), captured.square()
    missing = energy * (values.sum() + captured.sum()) - captured.sum()
    reached = values.cumsum(0)
    if rank_rule == "lt_asis":
        count = int((reached < missing).sum())
    else:  # rounding must not let energy=1 ask for more than there is
        count = 0 if missing <= 0 else int((reached < missing * (1 - 1e-12)).sum()) + 1
    count = min(count, D - 1 - r)
    basis, _ = torch.linalg.qr(torch.cat([M, vectors[:, :count]], dim=1))
    return basis


METHOD = VPTPGP
