r"""DualPrompt-PGP: gradients of prefix keys are kept orthogonal to old tasks' attention queries.

Qiao et al., "Prompt Gradient Projection for Continual Learning", ICLR 2024; NSP2 paper, Table 2. A prefix key
enters head h's logits as it is, so old logits stay if \[ Q_h \Delta P_{K,h}^T = 0 \] for every head h;
values, pool keys and head are free. From the second task on, after clipping,
\[ g_{K,h} \leftarrow g_{K,h} - (g_{K,h} M_h) M_h^T, \] M_h (d x r) holding the fraction `energy` of the
squared norm of head h's queries of
768 training images a task under its own E-prompt. As published (`pgp_space=sample_asis`): one basis a block,
from fifty principal scores of the queries of as many images as there are features, a matrix over samples,
multiplied with the gradient of all heads side by side; and the E-prompt of that pass is chosen by the largest
token embeddings, for want of a query (`stat_prompt=fallback_asis`). That pass takes one image at a time,
where `prefix_reshape=reshape_asis` mixes nothing.
"""

from typing import Literal

import torch
from cl_bench.methods import _pgp as pgp
from cl_bench.methods.dualprompt import DualConfig, DualPrompt
from pydantic import Field
from torch import Tensor

from cl_bench.data.stream import StreamInfo, Task
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.pool import cosines, nearest
from cl_bench.nn.projection import Projection
from cl_bench.nn.prompts import Prefixes
from cl_bench.nn.statistics import QueryMoments, block_queries
from cl_bench.nn.subspaces import principal_scores
from cl_bench.training.trainer import Trainer

SUMMARY = "DualPrompt with gradients orthogonal to old tasks' queries (PGP)"
FAMILY, VENUE, GROUPS, PASSES = "prompts", "ICLR 2024", ("paper",), 2
SCORES = 50  # principal components of the public code


class DualPGPConfig(pgp.PoolProjectionConfig, DualConfig):
    """Settings of the public code's DualPrompt folder."""

    passes: int = Field(20, ge=1)
    project_values: bool = False  # project the gradient of values too
    # E-prompt of the statistics: the task's, or as the public code happens to choose
    stat_prompt: Literal["task", "fallback_asis"] = "task"


class DualPromptPGP(pgp.GradientProjection, DualPrompt):
    """Prefix prompts with projected gradients, or updates, of their keys from the second task on."""

    Config = DualPGPConfig
    display = "DualPrompt-PGP"
    TRUNK = DualConfig
    version = 2
    LEFT_DIFFERENT = (*DualPrompt.LEFT_DIFFERENT, *pgp.LEFT_DIFFERENT)
    AS_PUBLISHED = {**DualPrompt.AS_PUBLISHED, **pgp.AS_PUBLISHED, "stat_prompt": "fallback_asis"}
    measured = ("G", "E")

    def __init__(self, config: DualPGPConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        pgp.require_sample_space(config, backbone.width)
        attn = backbone.vit.blocks[0].attn
        self.heads, width = attn.num_heads, attn.head_dim
        if config.pgp_space == "sample_asis":  # the public code takes all heads side by side
            self.heads, width = 1, backbone.width
        shape = (config.g_layers + config.e_layers, self.heads, width, width)
        self.space = self.spaces(shape)

    def by_head(self, keys: Tensor) -> Tensor:
        """Keys (layers, n, ..., D) -> (layers, H, rows, d)."""
        return keys.flatten(1, -2).unflatten(2, (self.heads, -1)).transpose(1, 2)

    def outside(self, X: Tensor, first: int) -> Tensor:
        """X (layers, 2, ..., D) of G or E, its keys outside the bases of the blocks from `first` on."""
        if self.space.empty:
            return X
        halves, blocks = [X[:, 0], X[:, 1]], slice(first, first + len(X))
        for half in (0, 1) if self.config.project_values else (0,):
            rows = self.space.outside(self.by_head(halves[half]), blocks)
            halves[half] = rows.transpose(1, 2).flatten(2).view_as(halves[half])
        return torch.stack(halves, dim=1)

    def outsides(self) -> list[Projection]:
        """G and E with their keys outside M."""
        if self.space.empty:
            return []
        G = [(self.G, lambda X: self.outside(X, 0))] if len(self.G) else []
        return [*G, (self.E, lambda X: self.outside(X, len(self.G)))]

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Grow every block's bases by the task's queries; nothing to do after the last task."""
        self.inside = self.share_inside()
        if not self.is_last(task) and self.config.energy > 0:
            published = self.config.pgp_space == "sample_asis"
            moments = self.published_moments if published else self.feature_moments
            with torch.no_grad():
                self.protect(self.space, moments(task, trainer), self.config.energy, task)

    def share_inside(self) -> float:
        """|dK M| / |dK| of the task's update of all keys."""
        inside, whole = 0.0, 0.0
        for name, active in zip("GE", self.space.active.split([len(self.G), len(self.E)]), strict=True):
            if len(active):
                delta = self.by_head(self.moved(name)[:, 0])
                inside += float((delta @ active).square().sum())
                whole += float(delta.square().sum())
        return (inside / whole) ** 0.5 if whole else 0.0

    def statistics_prefixes(self, images: Tensor, task: Task) -> Prefixes:
        """The prompts under which queries are collected."""
        if self.config.stat_prompt == "task" and task.index < self.S:
            return self.chosen_prefixes(torch.full((1,), task.index, device=self.device))
        q = self.backbone.frozen_features(images)
        if self.config.stat_prompt == "fallback_asis":  # over class token and patches, with their positions
            q = self.backbone.vit._pos_embed(self.backbone.vit.patch_embed(images)).amax(1)
        return self.chosen_prefixes(nearest(cosines(q, self.k), 1)[:, 0])

    def feature_moments(self, task: Task, trainer: Trainer) -> Tensor:
        """Q_h^T Q_h over the number of rows, (blocks, H, d, d)."""
        moments = QueryMoments(len(self.space.M), self.backbone.vit)
        for batch in trainer.plain(task, self.statistics_batch, self.chosen_images(task, trainer)):
            prefixes = self.statistics_prefixes(batch.images, task)
            self.backbone.features(batch.images, moments.observing(prefixes))
        return moments.means()

    def published_moments(self, task: Task, trainer: Trainer) -> Tensor:
        """Z Z^T over samples, (blocks, 1, D, D); a pass for each block, to hold the queries of one."""
        vit, found = self.backbone.vit, []
        for block in range(len(self.space.M)):
            queries = [
                block_queries(vit, images, self.statistics_prefixes(images, task), block).flatten(1)
                for images in self.published_images(task, trainer)
            ]
            Z = principal_scores(torch.cat(queries), SCORES)
            found.append((Z @ Z.T)[None])
        return torch.stack(found)

    def diagnostics(self) -> dict:
        """Ranks of the bases, head by head for every block, and the share of the keys' update inside them."""
        return {**super().diagnostics(), "rank": self.space.ranks(), "update_inside_protected": self.inside}


METHOD = DualPromptPGP
