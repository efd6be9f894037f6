r"""DualPrompt: prefix prompts shared by all tasks in the first blocks, and of each task in those behind them.

Wang et al., "DualPrompt: Complementary Prompting for Rehearsal-free Continual Learning", ECCV 2022; NSP2
paper, Table 2. Prompts stand among keys and values of attention after its projections: the G-prompt in the
first blocks, the E-prompt of one task in those behind them. In training task t the E-prompt is that of the
task; at prediction that of the key k_i nearest to the query.
\[ L = CE(z, y) - \lambda \frac1B \sum_b \cos(q_b, k_t). \] A task's E-prompt starts as the one before it.

Published code: ten E-prompts however many tasks there are, then a vote of the batch (`pool_size=10,
overflow=vote`); a vote at prediction (`batchwise_eval`), over keys of tasks not yet learned too
(`eval_keys=all`); the PyTorch port reads an array (2, B, ...) as (B, 2, ...), which hands images each other's
prompts and keys as values (`prefix_reshape`). The paper splits a prompt into keys and values (`kv_split`).
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.pool import cosines, majority, nearest, picked, uniform
from cl_bench.nn.prompts import Prefixes, prefix_lengths
from cl_bench.training.query_method import QueryTuning, QueryTuningConfig
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra

SUMMARY = "general prefix prompts, and expert ones chosen by key"
FAMILY, VENUE, GROUPS, PASSES = "prompts", "ECCV 2022", ("paper",), 2


class DualConfig(QueryTuningConfig):
    """The PyTorch port's settings for CIFAR-100: learning rate 0.03 x 24 / 256."""

    learning_rate: float = Field(0.0028125, gt=0)
    batch: int = Field(24, ge=1)
    g_layers: int = Field(2, ge=0)  # first blocks, with the G-prompt
    e_layers: int = Field(3, ge=1)  # blocks behind them, with the E-prompts
    g_length: int = Field(5, ge=1)  # L_g
    e_length: int = Field(5, ge=1)  # L_e
    pool_size: int | None = Field(None, ge=1)  # S, E-prompts; None: one for each task
    overflow: Literal["refuse", "vote"] = "refuse"  # tasks beyond S: an error, or (published) a vote
    pull: float = Field(1.0, ge=0)  # lambda
    kv_split: Literal["full", "half"] = "full"  # L keys and L values (code), or L / 2 of each (paper)
    init: Literal["port", "jax"] = "port"  # U(-1, 1) or (original code) U(0, 0.01)
    batchwise_train: bool = True  # a training batch votes for one E-prompt, where its task has none
    batchwise_eval: bool = False  # at prediction too (published; reads the task from the batch)
    eval_batch: int = Field(24, ge=1)  # test images of a task predicted together, where the batch matters
    eval_keys: Literal["seen", "all"] = "seen"  # compared at prediction: of tasks learned, or (published) all
    prefix_reshape: Literal["permute", "reshape_asis"] = "permute"  # as chosen, or as the port mixes them


class DualPrompt(QueryTuning):
    """G (g_layers, 2, L_g, D), E (e_layers, 2, S, L_e, D), k (S, D); the 2 are keys and values."""

    Config = DualConfig
    display = "DualPrompt"
    TRUNK = DualConfig
    version = 2
    SMALL = {"g_layers": 1, "e_layers": 1, "pool_size": 4}
    AS_PUBLISHED = {
        "pool_size": 10, "overflow": "vote", "batchwise_train": True, "batchwise_eval": True,
        "eval_batch": 24, "eval_keys": "all", "eval_classes": "all", "prefix_reshape": "reshape_asis",
        "head_init": "normal", "normalisation": "unit01",
    }  # fmt: skip
    LEFT_DIFFERENT = (
        "the classes of the published runs come in their natural order (--order natural)",
        "of E-prompts with equally many votes the lower one is taken, where the code leaves it to torch.topk",
    )
    statistics_query = False

    def __init__(self, config: DualConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        asked = f"g_layers={config.g_layers} and e_layers={config.e_layers}"
        backbone.require_blocks(config.g_layers + config.e_layers, asked)
        self.S, D = config.pool_size or stream.num_tasks, backbone.width
        if stream.num_tasks > self.S and config.overflow == "refuse":
            short = f"pool_size={self.S} has no E-prompt for each of {stream.num_tasks} tasks"
            raise InputError(f"{short}; leave out pool_size for one each, or give overflow=vote (published)")
        L_g, L_e = prefix_lengths(config.kv_split, g_length=config.g_length, e_length=config.e_length)
        init, seed = config.init, stream.init_seed
        self.G = uniform((config.g_layers, 2, L_g, D), init, (seed, "G"), self.device)
        self.E = uniform((config.e_layers, 2, self.S, L_e, D), init, (seed, "E"), self.device)
        self.k = uniform((self.S, D), init, (seed, "k"), self.device)

    def trained_prompts(self) -> list[nn.Parameter]:
        """G, all of E, and the keys."""
        return [self.G, self.E, self.k]

    def extra(self) -> Extra:
        """The prefixes of every block, and their choice among S by a product."""
        lengths = [self.G.shape[2]] * len(self.G) + [self.E.shape[3]] * len(self.E)
        return Extra(keys=dict(enumerate(lengths)), image=float(self.k.numel() + self.E.numel()))

    @property
    def couples_batch(self) -> bool:
        """Where prompts are voted for, or handed to other images."""
        voted = self.stream.num_tasks > self.S and self.config.batchwise_train
        return voted or self.config.prefix_reshape == "reshape_asis"

    @property
    def predicts_together(self) -> int | None:
        """Where a test batch votes, or its images are handed each other's prompts."""
        mixed = self.config.batchwise_eval or self.config.prefix_reshape == "reshape_asis"
        return self.config.eval_batch if mixed else None

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Start the task's E-prompt from the one before it."""
        super().begin_task(task, trainer)
        if 0 < task.index < self.S:
            self.E.detach()[:, :, task.index] = self.E.detach()[:, :, task.index - 1]

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE over the current task's classes minus the pull of the chosen key toward the queries."""
        similarity = cosines(self.query(batch), self.k)  # (B, S)
        ids = nearest(similarity.detach()[:, : self.tasks_seen], 1)
        self.count("nearest", ids, self.S)
        if task.index < self.S:
            ids = torch.full((1, 1), task.index, device=self.device)
        elif self.config.batchwise_train:
            ids = majority(ids, self.S)
        self.count("selected", ids, self.S, len(batch) // len(ids))
        pulled = similarity.gather(1, ids.expand(len(batch), -1)).mean()
        features = self.backbone.features(batch.images, self.prefixes(ids[:, 0], len(batch)))
        return self.cross_entropy(features, batch.labels, task) - self.config.pull * pulled

    def represent(self, images: Tensor, q: Tensor) -> Tensor:
        """Features under the G-prompt and the E-prompt whose key is nearest to the query."""
        keys = self.k if self.config.eval_keys == "all" else self.k[: self.tasks_seen]
        ids = nearest(cosines(q, keys), 1)
        ids = majority(ids, self.S) if self.config.batchwise_eval else ids
        return self.backbone.features(images, self.prefixes(ids[:, 0], len(images)))

    def chosen_prefixes(self, ids: Tensor) -> Prefixes:
        """The prefixes of images that use the E-prompts `ids` (B,), or (1,) for all."""
        blocks = {l: (K[None], V[None]) for l, (K, V) in enumerate(self.G)}
        for l, pair in enumerate(self.E, start=len(self.G)):
            blocks[l] = tuple(picked(E, ids) for E in pair)  # (B, L_e, D)
        return Prefixes(blocks)

    def prefixes(self, ids: Tensor, batch: int) -> Prefixes:
        """What a batch is given: the chosen ones, or (public code) as it mixes them."""
        found = self.chosen_prefixes(ids)
        return found if self.config.prefix_reshape == "permute" else found.without_permute(len(self.G), batch)


METHOD = DualPrompt
