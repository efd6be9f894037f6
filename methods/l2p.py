r"""L2P: a pool of prompts, of which each image is given those whose keys are nearest to its query.

Wang et al., "Learning to Prompt for Continual Learning", CVPR 2022; NSP2 paper, Tables 2, 4 and 5. An image
with query q is given the k prompts whose keys K_i have the largest cosine with it, and
\[ L = CE(z, y) - \lambda \frac1B \sum_b \sum_{i \in idx_b} \cos(q_b, K_i). \]
Nothing acts against forgetting but the shared pool itself. Two forms. The original (`layers=1,
carry=accumulate, head=prompt`): prompts are tokens from the first block on, and the head reads the mean of
their outputs. That of the NSP2 paper, appendix D ("prompts in the first three layers"; no code): each block
has its own prompts, one choice serves all, prompt outputs are dropped and the head reads the class token, as
the null-space conditions need (`layers=3, carry=drop, head=token`).

The published PyTorch code lets each batch vote for one set of prompts, at prediction too, where batches hold
one task's images: the task is then read from the neighbors. Here prediction is per image unless
`batchwise_eval=on`, which predicts `eval_batch` test images of one task at a time; classes not yet learned
compete there (`eval_classes=all`). What even `as_published` does otherwise is LEFT_DIFFERENT.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone, require_class_position
from cl_bench.nn.forward import tokens
from cl_bench.nn.pool import Carried, Chosen, cosines, majority, nearest, uniform
from cl_bench.nn.statistics import AttentionMoments, TokenMoments
from cl_bench.training.layer_prompts import PoolPrompts
from cl_bench.training.query_method import QueryTuning, QueryTuningConfig
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, of_pool

VOTES_AS_PUBLISHED = {
    "batchwise_train": True, "batchwise_eval": True, "eval_batch": 16, "eval_classes": "all",
    "head_init": "normal", "normalisation": "unit01",
}  # fmt: skip
SUMMARY = "prompts chosen from a pool by keys (L2P)"
FAMILY, VENUE, GROUPS, PASSES = "prompts", "CVPR 2022", ("paper",), 2


class PoolConfig(QueryTuningConfig):
    """The PyTorch port's settings for CIFAR-100, which PGP shares: learning rate 0.03 x 16 / 256."""

    pool_size: int = Field(10, ge=1)  # S
    prompt_length: int = Field(5, ge=1)  # L_p
    top_k: int = Field(5, ge=1)  # k
    pull: float = Field(0.1, ge=0)  # lambda; 1.0 in the original code
    layers: int = Field(3, ge=1)  # first blocks that get prompts
    carry: Literal["drop", "accumulate"] = "drop"  # prompt outputs: dropped, or tokens of the later blocks
    head: Literal["token", "prompt"] = "token"  # reads the class token, or the mean of all prompt outputs
    position: Literal["none", "cls"] = "none"  # of carried prompts: none, or (port) the class token's
    init: Literal["port", "jax"] = "port"  # U(-1, 1) or (original code) U(0, 0.01)
    batchwise_train: bool = True  # one choice of prompts for a whole training batch, by majority (published)
    batchwise_eval: bool = False  # at prediction too (published; reads the task from the batch)
    eval_batch: int = Field(16, ge=1)  # test images of a task predicted together, where the batch matters


class L2P(PoolPrompts, QueryTuning):
    """Prompts P (L, S * L_p, D), keys K (S, D); subclasses change their gradients or updates."""

    Config = PoolConfig
    display = "L2P"
    TRUNK = PoolConfig
    version = 2
    AS_PUBLISHED = {
        **VOTES_AS_PUBLISHED, "layers": 1, "carry": "accumulate", "head": "prompt", "position": "cls",
    }  # fmt: skip
    SMALL = {"layers": 2, "pool_size": 4, "prompt_length": 4, "top_k": 2}
    LEFT_DIFFERENT = (
        "the classes of the published runs come in their natural order (--order natural)",
        "of prompts with equally many votes the lower ones are taken, where the code leaves it to torch.topk",
    )

    def __init__(self, config: PoolConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        if config.top_k > config.pool_size:
            raise InputError(f"top_k={config.top_k} of a pool of {config.pool_size}; give a smaller top_k")
        layers, S, D = backbone.first_blocks(config.layers), config.pool_size, backbone.width
        if config.carry == "drop" and (config.head == "prompt" or config.position == "cls"):
            needed = "head=prompt and position=cls need carry=accumulate"
            raise InputError(f"{needed}: with carry=drop prompts are no tokens")
        if config.position == "cls":
            require_class_position(backbone)
        init, seed = config.init, stream.init_seed
        self.P = uniform((layers, S * config.prompt_length, D), init, (seed, "prompts"), self.device)
        self.K = uniform((S, D), init, (seed, "keys"), self.device)

    def trained_prompts(self) -> list[nn.Parameter]:
        """The whole pool with its keys, whichever prompts were chosen."""
        return [self.P, self.K]

    def extra(self) -> Extra:
        """The chosen prompts as keys or as tokens, and their choice."""
        return of_pool(self.P, self.config.pool_size, self.config.top_k, self.config.carry == "accumulate")

    @property
    def couples_batch(self) -> bool:
        """With the vote of a training batch."""
        return self.config.batchwise_train

    @property
    def predicts_together(self) -> int | None:
        """With the vote of a test batch."""
        return self.config.eval_batch if self.config.batchwise_eval else None

    def choose(self, similarity: Tensor, vote: bool) -> Chosen:
        """The top k of each image's cosines (B, S), or those that most images of the batch have."""
        ids = nearest(similarity, self.config.top_k)
        return Chosen(self.P, majority(ids, self.config.pool_size) if vote else ids, self.config.pool_size)

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE over the current task's classes minus the pull of the chosen keys toward the queries."""
        similarity = cosines(self.query(batch), self.K)  # (B, S)
        chosen = self.choose(similarity.detach(), self.config.batchwise_train)
        self.count("selected", chosen.ids, self.config.pool_size, len(batch) // len(chosen.ids))
        pulled = similarity.gather(1, chosen.ids.expand(len(batch), -1)).sum(1).mean()
        ce = self.cross_entropy(self.prompted(batch.images, chosen), batch.labels, task)
        return ce - self.config.pull * pulled

    def represent(self, images: Tensor, q: Tensor) -> Tensor:
        """Features under each image's own prompts, or the batch's with `batchwise_eval`."""
        return self.prompted(images, self.choose(cosines(q, self.K), self.config.batchwise_eval))

    def prompted(
        self, images: Tensor, chosen: Chosen, moments: AttentionMoments | TokenMoments | None = None
    ) -> Tensor:
        """Features (B, D) with the chosen prompts, while `moments` may see the image tokens."""
        vit = self.backbone.vit
        if self.config.carry == "drop":
            return self.backbone.features(images, moments.observing(chosen) if moments else chosen)
        carried = Carried(chosen, vit.pos_embed[:, :1] if self.config.position == "cls" else None, moments)
        if self.config.head == "token":
            return self.backbone.features(images, carried)
        x = tokens(vit, images, carried)  # (B, N + L k L_p, D)
        return vit.fc_norm(x[:, -self.config.layers * carried.size :].mean(1))

    def visits(
        self, task: Task, trainer: Trainer, rows: np.ndarray | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Chosen]]:
        """Images, queries, and the prompts of prediction, in one plain pass over the task or given rows."""
        for batch in trainer.plain(task, self.statistics_batch, rows):
            q = self.query(batch)
            yield batch.images, q, self.choose(cosines(q, self.K), self.config.batchwise_eval)


METHOD = L2P
