r"""DualPrompt-PGP: gradients of prefix keys are kept orthogonal to old tasks' attention queries.

Qiao et al., "Prompt Gradient Projection for Continual Learning", ICLR 2024; NSP2 paper, Table 2. A prefix key enters head h's logits as it is, so old
logits stay if \[ Q_h \Delta P_{K,h}^T = 0 \] for every head h; values, pool keys and head are free. From the second task on, after clipping,
\[ g_{K,h} \leftarrow g_{K,h} - (g_{K,h} M_h) M_h^T, \] M_h (d x r) holding the fraction `energy` of the squared norm of head h's queries of
768 training images a task under its own E-prompt. As published (`pgp_space=sample_asis`): one basis a block, from fifty principal scores of the
queries of as many images as there are features, a matrix over samples, multiplied with the gradient of all heads side by side; and the E-prompt of
that pass is chosen by the largest token embeddings, for want of a query (`stat_prompt=fallback_asis`). That pass takes one image at a time, where
`prefix_reshape=reshape_asis` mixes nothing.
"""

from typing import Literal

import torch
from cl_bench.methods import _pgp as pgp
from cl_bench.methods.dualprompt import DualConfig, DualPrompt
from pydantic import Field
from torch import Tensor, nn, optim

from cl_bench import seeds
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.pool import cosines, nearest
from cl_bench.nn.projection import ProjectedAdam
from cl_bench.nn.prompts import Prefixes
from cl_bench.nn.statistics import QueryMoments, block_queries
from cl_bench.nn.subspaces import Subspaces
from cl_bench.training.trainer import Trainer

SUMMARY = "DualPrompt with gradients orthogonal to old tasks' queries (PGP, ICLR 2024)"
SCORES = 50  # principal components of the public code


class DualPGPConfig(pgp.PoolProjectionConfig, DualConfig):
    """Settings of the public code's DualPrompt folder."""

    passes: int = Field(20, ge=1)
    project_values: bool = False  # project the gradient of values too
    stat_prompt: Literal["task", "fallback_asis"] = (
        "task"  # E-prompt of the statistics: the task's, or as the public code happens to choose
    )


class DualPromptPGP(DualPrompt):
    """Prefix prompts with projected gradients, or updates, of their keys from the second task on."""

    Config = DualPGPConfig
    display = "DualPrompt-PGP"
    TRUNK = DualConfig
    version = 2
    LEFT_DIFFERENT = (*DualPrompt.LEFT_DIFFERENT, *pgp.LEFT_DIFFERENT)
    AS_PUBLISHED = {**DualPrompt.AS_PUBLISHED, **pgp.AS_PUBLISHED, "stat_prompt": "fallback_asis"}

    def __init__(self, config: DualPGPConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        pgp.require_sample_space(config, backbone.width)
        attn = backbone.vit.blocks[0].attn
        # public code takes all heads side by side
        self.heads, width = (
            (1, backbone.width) if config.pgp_space == "sample_asis" else (attn.num_heads, attn.head_dim)
        )
        generator = (
            seeds.generator(stream.init_seed, "random subspace") if config.pgp_space == "random" else None
        )
        self.space = Subspaces(
            (config.g_layers + config.e_layers, self.heads, width, width), self.device, generator
        )
        for name in ("G", "E"):
            self.register_buffer(f"{name}_start", torch.zeros_like(getattr(self, name)), persistent=False)

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Remember the prompts, to measure their update, and the protected directions of all earlier tasks."""
        super().begin_task(task, trainer)
        self.G_start.copy_(self.G.detach())
        self.E_start.copy_(self.E.detach())
        self.space.refresh()

    def _by_head(self, keys: Tensor) -> Tensor:
        """Keys (layers, n, ..., D) -> (layers, H, rows, d)."""
        return keys.flatten(1, -2).unflatten(2, (self.heads, -1)).transpose(1, 2)

    def outside(self, X: Tensor, first: int) -> Tensor:
        """G or E, its gradient or update (layers, 2, ..., D), with the keys' part outside the subspaces of the blocks from `first` on."""
        if self.space.active.shape[-1] == 0:
            return X
        M = self.space.active[first : first + len(X)]
        halves = [X[:, 0], X[:, 1]]
        for half in (0, 1) if self.config.project_values else (0,):
            rows = self._by_head(halves[half])
            halves[half] = (rows - (rows @ M) @ M.mT).transpose(1, 2).flatten(2).view_as(halves[half])
        return torch.stack(halves, dim=1)

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """Plain Adam, or one whose finished updates are projected (pgp_stage=update)."""
        if self.config.pgp_stage == "grad" or not any(self.space.ranks()):
            return super().make_optimizer(task)
        projections = [
            (prompts, lambda U, first=first: self.outside(U, first)) for prompts, first in self._prompts()
        ]
        return ProjectedAdam(self.trained_parameters(), projections, **self.adam_settings())

    def _prompts(self) -> list[tuple[nn.Parameter, int]]:
        return [(prompts, first) for prompts, first in ((self.G, 0), (self.E, len(self.G))) if len(prompts)]

    def after_backward(self, task: TaskInfo) -> None:
        """Clip, then g <- g - (g M) M^T; E-prompts that no image used have no gradient."""
        super().after_backward(task)
        if self.config.pgp_stage == "grad":
            for prompts, first in self._prompts():
                prompts.grad = self.outside(prompts.grad, first)

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """The images whose tokens are collected."""
        return pgp.statistics_images(self.config, images, self.is_last(task))

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Grow every block's bases by the task's queries; nothing to do after the last task."""
        keys = [
            self._by_head((now.detach() - start)[:, 0])
            for now, start in ((self.G, self.G_start), (self.E, self.E_start))
            if len(now)
        ]
        inside, whole = 0.0, 0.0
        for delta, M in zip(keys, self.space.active.split([len(delta) for delta in keys]), strict=True):
            inside, whole = inside + float((delta @ M).square().sum()), whole + float(delta.square().sum())
        self.inside = (inside / whole) ** 0.5 if whole else 0.0
        if not self.is_last(task) and self.config.energy > 0:
            moments = (
                self._published_moments if self.config.pgp_space == "sample_asis" else self._feature_moments
            )
            with torch.no_grad():
                rules = (self.config.pgp_energy, self.config.pgp_rank_rule, task.index == 0)
                self.space.grow(moments(task, trainer), self.config.energy, *rules)

    def statistics_prefixes(self, images: Tensor, task: Task) -> Prefixes:
        """The prompts under which queries are collected."""
        if self.config.stat_prompt == "task" and task.index < self.S:
            return self.chosen_prefixes(torch.full((1,), task.index, device=self.device))
        q = self.backbone.frozen_features(images)
        if self.config.stat_prompt == "fallback_asis":  # over class token and patches, with their positions
            q = self.backbone.vit._pos_embed(self.backbone.vit.patch_embed(images)).amax(1)
        return self.chosen_prefixes(nearest(cosines(q, self.k), 1)[:, 0])

    def _feature_moments(self, task: Task, trainer: Trainer) -> Tensor:
        """Q_h^T Q_h over the number of rows, (blocks, H, d, d)."""
        moments = QueryMoments(len(self.space.M), self.backbone.vit)
        for batch in trainer.plain(
            task, self.statistics_batch, pgp.chosen_images(self.config, task, trainer)
        ):
            self.backbone.features(
                batch.images, moments.observing(self.statistics_prefixes(batch.images, task))
            )
        return moments.means()

    def _published_moments(self, task: Task, trainer: Trainer) -> Tensor:
        """Z Z^T over samples, (blocks, 1, D, D); one pass a block, so that the queries of one block at a time are in memory."""
        found = []
        for block in range(len(self.space.M)):
            images = pgp.published_images(
                self.config, task, trainer, self.backbone.width, self.statistics_batch, self.config.passes
            )
            parts = [
                block_queries(self.backbone.vit, some, self.statistics_prefixes(some, task), block).flatten(1)
                for some in images
            ]
            Z = pgp.principal_scores(torch.cat(parts), SCORES)
            found.append((Z @ Z.T)[None])
        return torch.stack(found)

    def diagnostics(self) -> dict:
        """Ranks of the bases, head by head for every block, and the share of the task's update of keys that lies inside them."""
        return {**super().diagnostics(), "rank": self.space.ranks(), "update_inside_protected": self.inside}


METHOD = DualPromptPGP
