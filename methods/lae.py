r"""LAE: a module in the first blocks and its moving average; of both experts the surer one predicts.

Gao et al., "A Unified Continual Learning Framework with General Parameter-Efficient Tuning" (Learning,
Accumulation, Ensemble), ICCV 2023, arXiv 2303.10070; NSP2 paper, Table 2. Modules are adapters beside
attention, low-rank updates of keys and values, or prefixes (`pet`). Learning: task t trains theta_on and its
head on its own classes; from the second task on theta_on is frozen for the first F of E passes, while the
head adapts to it, and then joins the head's Adam. Accumulation: theta_off starts as theta_on before the
second task, and after every step, also while theta_on is frozen,
\[ \theta_{off} \leftarrow \beta \theta_{off} + (1 - \beta) \theta_{on}. \]
Ensemble, both through the same heads:
\[ p(x) = \max(softmax(z_{on}(x)), softmax(z_{off}(x))). \]

The paper leaves open whether theta_off moves while a task is learned or after it: every step, and F, are the
public code's, whose loader drops the last partial batch (`drop_last`).
"""

import copy
from dataclasses import replace
from functools import cache, partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn, optim
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.adapter import AttentionAdapters
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.heads import HeadInit
from cl_bench.nn.lora import ScaledLoRA
from cl_bench.nn.prompts import TunedPrefixes
from cl_bench.training.phase import Phase
from cl_bench.training.tuning import EditTuning, TuningConfig
from cl_bench.training.work import Extra

SUMMARY = "a module in the first blocks and its moving average, which predict together"
FAMILY, VENUE, GROUPS, PASSES = "adapters", "ICCV 2023", ("paper",), 2
MODULES = {
    "adapter": AttentionAdapters, "lora": partial(ScaledLoRA, targets="kv"), "prefix": TunedPrefixes,
}  # fmt: skip


class OnlineConfig(TuningConfig):
    """What decides the first task, as in the public code for CIFAR-100: learning rate 0.03 x 24 / 256."""

    learning_rate: float = Field(0.0028125, gt=0)
    batch: int = Field(24, ge=1)
    passes: int = Field(5, ge=1)  # E
    schedule: Literal["cosine", "constant"] = "constant"
    head_init: HeadInit = "small"
    pet: Literal["adapter", "lora", "prefix"] = "adapter"  # the module
    rank: int = Field(5, ge=1)  # r of adapters and low-rank updates
    prompt_length: int = Field(10, ge=1)  # keys of a prefix, and as many values
    layers: int = Field(5, ge=1)  # first blocks that get a module
    drop_last: bool = False  # leave out the last partial batch of a pass (published)


class LAEConfig(OnlineConfig):
    """What later tasks need besides."""

    frozen_share: float = Field(0.6, ge=0, le=1)  # F / E: 3 of 5 passes, 30 of 50
    decay: float = Field(0.9999, ge=0, le=1)  # beta


class LAE(EditTuning):
    """theta_on (`edits`), from the second task on theta_off (`offline`), and a head a task."""

    Config, TRUNK = LAEConfig, OnlineConfig
    display = "LAE"
    SMALL = {"layers": 2, "rank": 3, "decay": 0.9}
    AS_PUBLISHED = {"drop_last": True, "normalisation": "unit01"}
    LEFT_DIFFERENT = (
        "the code lets a GPU round the inputs of float32 products; here precision=bf16 does so, for the "
        "network alone",
        "the published class orders are listed with the code, the first the natural one (--order natural, or "
        "a file)",
    )

    def __init__(self, config: LAEConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        size = config.prompt_length if config.pet == "prefix" else config.rank
        sizes = (backbone.first_blocks(config.layers), backbone.width, size)
        generator = seeds.generator(stream.init_seed, config.pet)
        self.edits = MODULES[config.pet](*sizes, generator=generator).to(self.device)
        self.offline: nn.Module | None = None

    def grow(self, task: TaskInfo) -> None:
        """Add the task's head; theta_off <- theta_on before the second task."""
        super().grow(task)
        if task.index == 1:
            self.offline = copy.deepcopy(self.edits).requires_grad_(False)

    def phases(self, task: TaskInfo) -> list[Phase]:
        """One in the first task; later F passes of the head alone, then theta_on joins its Adam."""
        [whole] = super().phases(task)
        if task.index == 0:
            return [whole]
        whole = replace(whole, after_step=self.accumulate)
        frozen = int(self.config.frozen_share * whole.passes + 1e-9)
        head_adam = cache(lambda: self.adam([]))
        alone = replace(whole, optimizer=head_adam, passes=frozen, forwards=1)
        both = replace(whole, optimizer=lambda: self.joined(head_adam(), task), passes=whole.passes - frozen)
        alone = replace(alone, loss=lambda batch: self.head_loss(batch, task))
        both = replace(both, rate=lambda done, group: self.rate(frozen + done))
        return [phase for phase in (alone, both) if phase.passes]

    def joined(self, head_adam: optim.Optimizer, task: TaskInfo) -> optim.Optimizer:
        """An Adam for all that is trained, which has the head's moments and starts theta_on's anew."""
        adam = self.make_optimizer(task)
        adam.state.update(head_adam.state)
        return adam

    @torch.no_grad()
    def accumulate(self) -> None:
        """theta_off <- beta theta_off + (1 - beta) theta_on, learned scales and biases too."""
        for off, on in zip(self.offline.parameters(), self.edits.parameters(), strict=True):
            off.lerp_(on, 1 - self.config.decay)

    def predict(self, batch: Batch) -> Tensor:
        """tau log p (B, K_seen) under softmax(z / tau), p the larger of both probabilities of a class."""
        experts = [self.edits] if self.offline is None else [self.edits, self.offline]
        scores = [self.head(self.backbone.features(batch.images, expert)) for expert in experts]
        tau = self.config.temperature
        return tau * torch.stack([F.log_softmax(z / tau, dim=1) for z in scores]).amax(dim=0)

    @property
    def prediction_passes(self) -> int:
        """One for each module."""
        return 1 if self.offline is None else 2

    def extra(self) -> Extra:
        """The module; prefixes are attended to together with the tokens and by themselves."""
        if self.config.pet != "prefix":
            return super().extra()
        return Extra(keys=dict.fromkeys(range(self.config.layers), 2 * self.config.prompt_length))


METHOD = LAE
