r"""L2P-PGP: gradients of the pool's prompts and keys are kept orthogonal to old tasks' tokens and queries.

Qiao et al., "Prompt Gradient Projection for Continual Learning", ICLR 2024; NSP2 paper, Table 5 (three layers, no code). From the second task on
\[ g_P \leftarrow g_P - (g_P M_p) M_p^T, \qquad g_K \leftarrow g_K - (g_K M_k) M_k^T, \]
after clipping and before Adam. M_p, one per prompted block, holds the fraction `energy` of the squared norm of the image tokens entering it,
stacked with the chosen prompts (PGP's second condition; the paper adds them, and null(x + p) is not null(x) and null(p)); M_k the fraction
`key_energy` of the normalised queries. As published (`pgp_space=sample_asis`): from principal scores, over samples, of the patch embeddings of 768
images (nine, plus nine of the prompts from the second task on) and of their queries (five).
"""

from typing import Literal

import torch
from cl_bench.methods import _pgp as pgp
from cl_bench.methods.l2p import L2P, PoolConfig
from pydantic import Field
from torch import Tensor, optim
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.projection import ProjectedAdam, keep_norm_outside
from cl_bench.nn.statistics import TokenMoments
from cl_bench.nn.subspaces import Subspaces
from cl_bench.training.trainer import Trainer

SUMMARY = "L2P with gradients orthogonal to old tasks' tokens (PGP, ICLR 2024)"


class L2PPGPConfig(pgp.PoolProjectionConfig, PoolConfig):
    """Settings of the public code's L2P folder."""

    key_energy: float = Field(0.97, ge=0, le=1)  # epsilon of the keys
    pgp_keys: bool = True  # project the keys too
    # tokens and chosen prompts stacked, tokens alone, or (public code) their scores added; None: stack or, in sample space, sum_asis
    pgp_combine: Literal["stack", "x_only", "sum_asis"] | None = None
    key_exact: bool = (
        False  # keep the keys' length outside old queries, so that old cosines stay; needs pgp_stage=update
    )


class L2PPGP(L2P):
    """The pool with projected gradients, or updates, from the second task on."""

    Config = L2PPGPConfig
    display = "L2P-PGP"
    TRUNK = PoolConfig
    version = 2
    LEFT_DIFFERENT = (*L2P.LEFT_DIFFERENT, *pgp.LEFT_DIFFERENT)
    AS_PUBLISHED = {**L2P.AS_PUBLISHED, **pgp.AS_PUBLISHED}

    def __init__(self, config: L2PPGPConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        pgp.require_sample_space(config, D := backbone.width)
        sampled = config.pgp_space == "sample_asis"
        self.combine = config.pgp_combine or ("sum_asis" if sampled else "stack")
        if self.combine == ("stack" if sampled else "sum_asis"):
            raise InputError(
                f"pgp_combine={self.combine} and pgp_space={config.pgp_space} exclude each other: scores are added, tokens are stacked"
            )
        if config.key_exact and not (config.pgp_stage == "update" and config.pgp_keys):
            raise InputError(
                "key_exact=on needs pgp_stage=update and pgp_keys=on: with projected gradients Adam moves keys inside the subspace too"
            )
        spaces = {"prompts": config.layers, "keys": 1}
        self.prompt_space, self.key_space = (
            Subspaces((n, D, D), self.device, self._random(name)) for name, n in spaces.items()
        )
        self.register_buffer("P_start", torch.zeros_like(self.P), persistent=False)
        self.register_buffer("K_start", torch.zeros_like(self.K), persistent=False)

    def _random(self, name: str) -> torch.Generator | None:
        return (
            seeds.generator(self.stream.init_seed, "random subspace", name)
            if self.config.pgp_space == "random"
            else None
        )

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Remember prompts and keys, to measure their update, and the protected directions of all earlier tasks."""
        super().begin_task(task, trainer)
        self.P_start.copy_(self.P.detach())
        self.K_start.copy_(self.K.detach())
        self.prompt_space.refresh()
        self.key_space.refresh()

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """Plain Adam, or one whose finished updates are projected (pgp_stage=update)."""
        projections = [(self.P, self.prompt_space.outside)] if any(self.prompt_space.ranks()) else []
        projections += [(self.K, self._key_update)] if any(self.key_space.ranks()) else []
        if self.config.pgp_stage == "grad" or not projections:
            return super().make_optimizer(task)
        return ProjectedAdam(self.trained_parameters(), projections, **self.adam_settings())

    def _key_update(self, U: Tensor) -> Tensor:
        old, projected = self.K - U, self._outside_keys(U)  # Adam has stepped already
        return (
            keep_norm_outside(old + projected, old, self._outside_keys) - old
            if self.config.key_exact
            else projected
        )

    def _outside_keys(self, U: Tensor) -> Tensor:
        return self.key_space.outside(U[None])[0]

    def after_backward(self, task: TaskInfo) -> None:
        """Clip, then g <- g - (g M) M^T; rows that no image chose have no gradient."""
        super().after_backward(task)
        if self.config.pgp_stage == "grad":
            self.P.grad = self.prompt_space.outside(self.P.grad)
            self.K.grad = self._outside_keys(self.K.grad)

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """The images whose tokens are collected."""
        return pgp.statistics_images(self.config, images, self.is_last(task))

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Grow the bases by the task; nothing to do after the last one."""
        self.inside = self.prompt_space.share_inside(self.P.detach() - self.P_start)
        self.keys_inside = self.key_space.share_inside((self.K.detach() - self.K_start)[None])
        if self.is_last(task):
            return
        moments = self._published_moments if self.config.pgp_space == "sample_asis" else self._feature_moments
        (prompts, keys), rules = (
            moments(task, trainer),
            (self.config.pgp_energy, self.config.pgp_rank_rule, task.index == 0),
        )
        if self.config.energy > 0:
            self.prompt_space.grow(prompts, self.config.energy, *rules)
        if self.config.key_energy > 0 and self.config.pgp_keys:
            self.key_space.grow(keys[None], self.config.key_energy, *rules)

    def _feature_moments(self, task: Task, trainer: Trainer) -> tuple[Tensor, Tensor]:
        """Second moments of tokens (L, D, D), with the chosen prompts' added as further rows, and of normalised queries (D, D)."""
        moments, keys, used = (
            TokenMoments(self.P),
            0,
            torch.zeros(self.P.shape[1], dtype=torch.bool, device=self.device),
        )
        for images, q, chosen in self.visits(task, trainer, pgp.chosen_images(self.config, task, trainer)):
            q = F.normalize(q, dim=1).double()
            keys = keys + q.T @ q
            used |= chosen.rows.any(dim=1).any(dim=0)
            self.prompted(images, chosen, moments)
        A = moments.means()
        if self.combine == "stack":
            P = self.P.detach()[:, used].double()
            A = A + P.mT @ P / P.shape[1]
        return A, keys

    def _published_moments(self, task: Task, trainer: Trainer) -> tuple[Tensor, Tensor]:
        """Z Z^T over samples of patch embeddings (plus prompts) and of queries, with the prompts as they were before the task."""
        embeddings, queries = [], []
        for images in pgp.published_images(
            self.config, task, trainer, self.backbone.width, self.statistics_batch, self.config.passes
        ):
            embeddings.append(self.backbone.vit.patch_embed(images).flatten(1))
            queries.append(self.backbone.frozen_features(images))
        Z, Z_k = pgp.principal_scores(torch.cat(embeddings), 9), pgp.principal_scores(torch.cat(queries), 5)
        A = []
        for P in self.P_start:
            Y = (
                pgp.principal_scores(P.T, 9)
                if task.index and self.combine == "sum_asis"
                else torch.zeros_like(Z)
            )
            S = Z[:, : Y.shape[1]] + Y[:, : Z.shape[1]]
            A.append(S @ S.T)
        return torch.stack(A), Z_k @ Z_k.T

    def diagnostics(self) -> dict:
        """Ranks of the bases, and the shares of the task's updates of prompts and keys that lie inside them."""
        found = {
            **super().diagnostics(),
            "rank": self.prompt_space.ranks(),
            "key_rank": self.key_space.ranks(),
        }
        return {
            **found,
            "update_inside_protected": self.inside,
            "key_update_inside_protected": self.keys_inside,
        }


METHOD = L2PPGP
