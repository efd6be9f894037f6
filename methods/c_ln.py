r"""C-LN: LayerNorms of its own for every task, chosen by the nearest of the tasks' keys.

De Min et al., "On the Effectiveness of LayerNorm Tuning for Continual Learning in Vision Transformers", ICCV
Workshops 2023, arXiv 2308.09610; NSP2 paper, Table 2. Scales and shifts of all LayerNorms start as those of
the task before; the rest of the network is frozen. Task t passes three stages:
\[ L_{key} = -\frac1B \sum_b \cos(q_b, k_t), \qquad L_{norms} = CE(h(f_t(x)), y), \qquad L_{head} =
CE(head(f_{s(x)}(x)), y), \quad s(x) = \arg\max_{s \le t} \cos(q(x), k_s), \]
q the class token of the un-tuned network. h, a twin of the head's new rows, is dropped after the second; the
third, rectification, trains the head with norms as they are chosen at prediction. `routing=layers` has one
pass at prediction and no first stage: every norm chooses by its own class token x, key and attention vector,
cos(x * a_s, k_s), whose mean over the network is subtracted from the second loss.

The public code has one Adam for the first two stages, and its result depends on the version of torch: up to
1.13 gradients are cleared to zero, so that keys go on by their moments while norms are trained, and norms
count the steps of keys from the second task on (`stale_gradients=on`). From 2.0 on neither happens.
"""

import copy
from dataclasses import replace
from typing import Literal

import torch
from cl_bench.methods._stale_gradients import with_stale_gradients
from pydantic import Field
from torch import Tensor, nn, optim
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.norm_banks import NormBanks
from cl_bench.nn.pool import cosines
from cl_bench.nn.projection import adam
from cl_bench.training.phase import Phase
from cl_bench.training.query_method import QueryTuning, QueryTuningConfig
from cl_bench.training.trainer import Trainer

SUMMARY = "LayerNorms of its own for every task, chosen by key (ICCV Workshops 2023)"
FAMILY, VENUE, GROUPS, PASSES = "LayerNorm", "ICCVW 2023", ("paper",), 2


class CLNConfig(QueryTuningConfig):
    """The public code's settings for CIFAR-100: learning rate 0.005 x 128 / 256."""

    learning_rate: float = Field(0.0025, gt=0)
    batch: int = Field(128, ge=1)
    passes: int = Field(5, ge=1)  # E, of each of the first two stages
    grad_clip: float = Field(0.0, ge=0)
    routing: Literal["query", "layers"] = "query"  # two passes and three stages, or one and two
    new_keys: bool | None = None  # rather than copies of the last; None: as the scripts, with routing=query
    rectify: bool = True  # the third stage; off: the head is trained in the second, as its own twin
    rectify_passes: int = Field(5, ge=1)
    rectify_rate: float = Field(0.001, gt=0)  # its learning rate
    stale_gradients: bool = False  # cleared to zero, as up to torch 1.13


class CLN(QueryTuning):
    """Norms and keys of each task (`banks`), and the head."""

    Config = CLNConfig
    display = "C-LN"
    SMALL = {"rectify_passes": 3}
    AS_PUBLISHED = {"eval_classes": "all", "normalisation": "unit01"}
    LEFT_DIFFERENT = (
        "gradients are cleared as from torch 2.0 on (stale_gradients=on: as before)",
        "the published class orders come from Python's own generator (--order, with a file)",
    )

    def __init__(self, config: CLNConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        self.banks = NormBanks(backbone.vit, key_for_each_norm=not self.queries)
        self.h: nn.Linear | None = None

    @property
    def queries(self) -> bool:
        """Whether one key for the whole network is compared with an image's query."""
        return self.config.routing == "query"

    def grow(self, task: TaskInfo) -> None:
        """Add the task's norms and keys, and its rows of the head."""
        super().grow(task)
        drawn = self.queries if self.config.new_keys is None else self.config.new_keys
        self.banks.grow(self.stream.init_seed, drawn)

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Make h, the head's twin or, without rectification, the head itself."""
        super().begin_task(task, trainer)
        self.h = copy.deepcopy(self.head.heads[-1]) if self.config.rectify else self.head.heads[-1]

    def phases(self, task: TaskInfo) -> list[Phase]:
        """The stages."""
        config, [norms] = self.config, super().phases(task)
        keys = replace(
            norms, name="key", forwards=0, loss=self.key_loss,
            optimizer=lambda: self.adam_of([self.banks.keys[-1]]),
        )  # fmt: skip
        head = replace(
            norms, name="rectification", forwards=1, loss=lambda batch: self.head_loss(batch, task),
            optimizer=lambda: self.adam_of([*self.head.heads[-1].parameters()], lr=config.rectify_rate),
            passes=config.rectify_passes, advice="lower rectify_rate",
        )  # fmt: skip
        norms = replace(norms, asks=False)
        stages = [keys, norms] if self.queries else [norms]
        if self.queries and config.stale_gradients:
            stages = with_stale_gradients(keys, norms, from_the_start=task.index > 0)
        return [*stages, head] if config.rectify else stages

    def adam_of(self, parameters: list[nn.Parameter], **changes) -> optim.Optimizer:
        """A new Adam for these alone."""
        return adam(parameters, [], **{**self.adam_settings(), **changes})

    def trained_prompts(self) -> list[nn.Parameter]:
        """The newest norms and, where every norm has some, the newest keys and attention vectors."""
        return self.banks.newest()

    def trained_parameters(self) -> list[nn.Parameter]:
        """What the second stage trains: they and h."""
        return [*self.trained_prompts(), *self.h.parameters()]

    def key_loss(self, batch: Batch) -> Tensor:
        """-cos(q, k_t)."""
        return -cosines(self.query(batch), self.banks.keys[-1]).mean()

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE under the task's norms; where every norm has a key, minus the mean of their cosines."""
        edits = self.banks.of_task() if self.queries else self.banks.routed(-1)
        z = self.h(self.backbone.features(batch.images, edits))  # (B, c_t)
        loss = F.cross_entropy(z, batch.labels - task.first_label)
        return loss if self.queries else loss - edits.mean_similarity()

    def head_loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE under norms as they are chosen at prediction, of which the head alone gets a gradient."""
        with torch.no_grad():
            features = self.represent(batch.images, self.query(batch))
        return self.cross_entropy(features, batch.labels, task)

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Drop h."""
        self.h = None

    def represent(self, images: Tensor, q: Tensor | None) -> Tensor:
        """Features under the norms of the nearest keys."""
        edits = self.banks.nearest(q) if self.queries else self.banks.routed()
        return self.backbone.features(images, edits)


METHOD = CLN
