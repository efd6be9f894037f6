r"""L2P-PGP: gradients of the pool's prompts and keys are kept orthogonal to old tasks' tokens and queries.

Qiao et al., "Prompt Gradient Projection for Continual Learning", ICLR 2024; NSP2 paper, Table 5 (three
layers, no code). From the second task on
\[ g_P \leftarrow g_P - (g_P M_p) M_p^T, \qquad g_K \leftarrow g_K - (g_K M_k) M_k^T, \]
after clipping and before Adam. M_p, one per prompted block, holds the fraction `energy` of the squared norm
of the image tokens entering it, stacked with the chosen prompts (PGP's second condition; the paper adds them,
and null(x + p) is not null(x) and null(p)); M_k the fraction `key_energy` of the normalized queries. As
published (`pgp_space=sample_asis`): from principal scores, over samples, of the patch embeddings of 768
images (nine, plus nine of the prompts from the second task on) and of their queries (five).
"""

from typing import Literal

import torch
from cl_bench.methods import _pgp as pgp
from cl_bench.methods.l2p import L2P, PoolConfig
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from cl_bench.data.stream import StreamInfo, Task
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.projection import Projection, keep_norm_outside
from cl_bench.nn.statistics import TokenMoments
from cl_bench.nn.subspaces import principal_scores
from cl_bench.training.trainer import Trainer

SUMMARY = "L2P with gradients orthogonal to old tasks' tokens (PGP)"
FAMILY, VENUE, PASSES = "prompts", "ICLR 2024", 2
SCORES, KEY_SCORES = 9, 5  # principal components of the public code


class L2PPGPConfig(pgp.PoolProjectionConfig, PoolConfig):
    """Settings of the public code's L2P folder."""

    key_energy: float = Field(0.97, ge=0, le=1)  # epsilon of the keys
    pgp_keys: bool = True  # project the keys too
    # tokens and chosen prompts stacked, tokens alone, or (public code) their scores added; None: stack, or
    # sum_asis in sample space
    pgp_combine: Literal["stack", "x_only", "sum_asis"] | None = None
    key_exact: bool = False  # keep the keys' length outside old queries, so that old cosines stay


class L2PPGP(pgp.GradientProjection, L2P):
    """The pool with projected gradients, or updates, from the second task on."""

    Config = L2PPGPConfig
    display = "L2P-PGP"
    TRUNK = PoolConfig
    version = 2
    LEFT_DIFFERENT = (*L2P.LEFT_DIFFERENT, *pgp.LEFT_DIFFERENT)
    AS_PUBLISHED = {**L2P.AS_PUBLISHED, **pgp.AS_PUBLISHED}
    measured = ("P", "K")

    def __init__(self, config: L2PPGPConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        pgp.require_sample_space(config, D := backbone.width)
        sampled = config.pgp_space == "sample_asis"
        self.combine = config.pgp_combine or ("sum_asis" if sampled else "stack")
        if self.combine == ("stack" if sampled else "sum_asis"):
            pair = f"pgp_combine={self.combine} and pgp_space={config.pgp_space}"
            raise InputError(f"{pair} exclude each other: scores are added, tokens are stacked")
        if config.key_exact and not (config.pgp_stage == "update" and config.pgp_keys):
            needed = "key_exact=on needs pgp_stage=update and pgp_keys=on"
            raise InputError(f"{needed}: with projected gradients Adam moves keys inside the subspace too")
        if config.key_exact and config.pgp_space == "range":
            raise InputError("pgp_space=range moves keys inside the subspace alone; give key_exact=off")
        self.prompt_space = self.spaces((config.layers, D, D), "prompts")
        self.key_space = self.spaces((1, D, D), "keys")

    def outsides(self) -> list[Projection]:
        """P outside M_p and K outside M_k."""
        P = [] if self.prompt_space.empty else [(self.P, self.prompt_space.outside)]
        K = [] if self.key_space.empty else [(self.K, self.project_keys)]
        return P + K

    def project_keys(self, U: Tensor) -> Tensor:
        """U - (U M_k) M_k^T of the keys' gradient or finished update; `key_exact` restores their length."""
        projected = self.outside_keys(U)
        if not self.config.key_exact:
            return projected
        old = self.K - U  # Adam has stepped already
        return keep_norm_outside(old + projected, old, self.outside_keys) - old

    def outside_keys(self, U: Tensor) -> Tensor:
        """The part of rows (S, D) outside old queries."""
        return self.key_space.outside(U[None])[0]

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Grow the bases by the task; nothing to do after the last one."""
        self.inside = self.prompt_space.share_inside(self.moved("P"))
        self.keys_inside = self.key_space.share_inside(self.moved("K")[None])
        if self.is_last(task):
            return
        published = self.config.pgp_space == "sample_asis"
        moments = self.published_moments if published else self.feature_moments
        prompts, keys = moments(task, trainer)
        if self.config.energy > 0:
            self.protect(self.prompt_space, prompts, self.config.energy, task)
        if self.config.key_energy > 0 and self.config.pgp_keys:
            self.protect(self.key_space, keys[None], self.config.key_energy, task)

    def feature_moments(self, task: Task, trainer: Trainer) -> tuple[Tensor, Tensor]:
        """Second moments of tokens, stacked with prompts (L, D, D), and of normalized queries (D, D)."""
        moments, keys = TokenMoments(self.P), 0
        used = torch.zeros(self.P.shape[1], dtype=torch.bool, device=self.device)
        for images, q, chosen in self.visits(task, trainer, self.chosen_images(task, trainer)):
            q = F.normalize(q, dim=1).double()
            keys = keys + q.T @ q
            used |= chosen.rows.any(dim=1).any(dim=0)
            self.prompted(images, chosen, moments)
        A = moments.means()
        if self.combine == "stack":
            P = self.P.detach()[:, used].double()
            A = A + P.mT @ P / P.shape[1]
        return A, keys

    def published_moments(self, task: Task, trainer: Trainer) -> tuple[Tensor, Tensor]:
        """Z Z^T over samples of patch embeddings and of queries, with the prompts as before the task."""
        embeddings, queries = [], []
        for images in self.published_images(task, trainer):
            embeddings.append(self.backbone.vit.patch_embed(images).flatten(1))
            queries.append(self.backbone.frozen_features(images))
        Z = principal_scores(torch.cat(embeddings), SCORES)
        Z_k = principal_scores(torch.cat(queries), KEY_SCORES)
        A = []
        for P in self.P_start:
            S = Z
            if task.index and self.combine == "sum_asis":
                Y = principal_scores(P.T, SCORES)
                S = Z[:, : Y.shape[1]] + Y[:, : Z.shape[1]]
            A.append(S @ S.T)
        return torch.stack(A), Z_k @ Z_k.T

    def diagnostics(self) -> dict:
        """Ranks of the bases, and the shares of the task's updates of prompts and keys inside them."""
        return {
            **super().diagnostics(),
            "rank": self.prompt_space.ranks(),
            "key_rank": self.key_space.ranks(),
            "update_inside_protected": self.inside,
            "key_update_inside_protected": self.keys_inside,
        }


METHOD = L2PPGP
