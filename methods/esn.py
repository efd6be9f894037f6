r"""ESN: every task has a classifier of its own, their energies are brought to one level, temperatures vote.

Wang et al., "Isolation and Impartial Aggregation: A Paradigm of Incremental Learning without Interference",
AAAI 2023, arXiv 2211.15969; NSP2 paper, Table 2. Prompts P join the tokens of the frozen network's input; its
last tokens Z are taken without the final norm. Task t has a token tau_t that attends to them, and a head:
\[ z_t = head_t(TAB_t(\tau_t, Z)), \qquad L = CE(z_t, y) + \lambda \frac1B \sum_b (E(z_t) - \delta)^2. \]
At prediction each temperature T votes for the task with the largest logsumexp(z_i / T); of equally many votes
those for the older task count. After a task, the T that gives most of its images to it joins the voters.

P is meant to learn in the first task alone; the public code trains it in every task, and old classifiers see
the newest (`freeze_prompts=off`). E = -logsumexp(beta z) / beta holds at one level what votes compare; the
code's, -logsumexp(-beta z) / beta, holds the smallest scores at delta instead (`energy_sign=code`).
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn, optim
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone, require_class_token
from cl_bench.nn.class_attention import ClassAttention, normalized
from cl_bench.nn.energies import majority_vote, surest, with_task_first
from cl_bench.nn.heads import TaskHeads, new_head
from cl_bench.nn.pool import nearest
from cl_bench.nn.prompts import JoinedPrompts
from cl_bench.training.gradient_method import GradientMethod
from cl_bench.training.phase import half_cosine
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, tokens

SUMMARY = "a classifier for each task, and temperatures that vote among them (AAAI 2023)"
FAMILY, VENUE, GROUPS, PASSES = "prompts", "AAAI 2023", ("paper",), 1
CANDIDATES = (0.001, 0.01, *(tenth / 10 for tenth in range(1, 11)))  # T; the first until one is chosen


class ESNConfig(Strict):
    """The authors' settings for CIFAR-100."""

    prompts: int = Field(100, ge=1)  # rows of P
    freeze_prompts: bool = True  # after the first task
    energy_weight: float = Field(0.1, ge=0)  # lambda
    anchor: float = -10.0  # delta
    beta: float = Field(1.0, gt=0)
    energy_sign: Literal["standard", "code"] = "standard"
    learning_rate: float = Field(0.01, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(5e-4, ge=0)  # of all that is trained
    batch: int = Field(128, ge=1)
    passes: int = Field(30, ge=1)


class ESN(GradientMethod):
    """P (M, D); of each task a TAB with its token, a head, and the chosen T."""

    Config = ESNConfig
    PRESET = "nsp2-paper"
    display = "ESN"
    SMALL = {"prompts": 3}
    current_task_loss = True
    AS_PUBLISHED = {"freeze_prompts": False, "energy_sign": "code", "normalisation": "imagenet"}
    LEFT_DIFFERENT = (
        "training images of CIFAR-100 keep their brightness, which the code varies by a quarter at most",
        "classes of tasks of unequal size keep their labels, which the code mixes up",
        "the published runs have the natural class order (--order natural)",
    )

    def __init__(self, config: ESNConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        require_class_token(backbone, self.display)
        generator = seeds.generator(stream.init_seed, "prompts")
        self.P = new_head(backbone.width, config.prompts, "uniform", generator).to(self.device).weight
        self.tabs, self.head = nn.ModuleList(), TaskHeads(backbone.width)
        self.register_buffer("T", torch.zeros(0, device=self.device))

    def grow(self, task: TaskInfo) -> None:
        """Freeze what is of old tasks; add a TAB, whose token starts as the network's, a head and a T."""
        self.P.requires_grad_(self.trains_prompts(task))
        vit, generator = self.backbone.vit, seeds.generator(self.stream.init_seed, "head", task.index)
        sizes = (vit.blocks[0].attn.num_heads, self.backbone.width // 2)
        self.tabs.requires_grad_(False).append(ClassAttention(vit.cls_token[0, 0], *sizes, generator))
        self.head.grow(len(task.classes), generator, "uniform", self.device)
        self.T = torch.cat([self.T, self.T.new_full((1,), CANDIDATES[0])])

    def trains_prompts(self, task: TaskInfo) -> bool:
        """Whether P learns in a task."""
        return task.index == 0 or not self.config.freeze_prompts

    def extra(self) -> Extra:
        """P among all tokens of all blocks, and every TAB."""
        M = self.config.prompts
        image = sum(tab.products(M + tokens(self.backbone.vit)) for tab in self.tabs)
        return Extra(tokens={0: M}, all_tokens=True, image=image, step=2.0 * self.backbone.width**2)

    def forwards_each(self, task: TaskInfo) -> int:
        """Where P is frozen nothing goes backward through the network."""
        return 2 if self.trains_prompts(task) else 1

    def scores(self, images: Tensor, first: int = 0) -> list[Tensor]:
        """z_i (B, c_i) of the tasks from `first` on."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.P.requires_grad):
            Z = normalized(self.backbone.hidden(images, self.backbone.depth, JoinedPrompts({0: self.P})))
        return [head(tab(Z)) for tab, head in zip(self.tabs[first:], self.head.heads[first:], strict=True)]

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE over the task's classes, and the distance of energies from the anchor."""
        config, [z] = self.config, self.scores(batch.images, task.index)  # (B, c_t)
        beta = -config.beta if config.energy_sign == "code" else config.beta
        E = -torch.logsumexp(beta * z, dim=1) / config.beta  # (B,)
        alignment = (E - config.anchor).square().mean()
        return F.cross_entropy(z, batch.labels - task.first_label) + config.energy_weight * alignment

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """A new SGD for the task's TAB and head, and for P while it learns."""
        rates = {"lr": self.config.learning_rate, "momentum": self.config.momentum}
        return optim.SGD(self.trained().values(), **rates, weight_decay=self.config.weight_decay)

    def rate(self, done: int) -> float:
        """(1 + cos(pi e / E)) / 2 after e of E passes."""
        return half_cosine(done, self.config.passes)

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """All, once there is a task to tell this one from."""
        return images if task.index else 0

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Choose T: the smallest of those that give most of the task's images to it."""
        if task.index:
            candidates = self.T.new_tensor(CANDIDATES)
            right = torch.zeros(len(candidates), dtype=torch.long, device=self.device)
            for batch in trainer.plain(task, self.config.batch, shared=True):
                right += (surest(self.scores(batch.images), candidates) == task.index).sum(dim=1)
            trainer.group.all_reduce_sum([right])
            self.T[task.index] = candidates[nearest(right[None], 1)[0, 0]]

    def predict(self, batch: Batch) -> Tensor:
        """z of all classes (B, K_seen), of the task voted for above all others."""
        z = self.scores(batch.images)
        return with_task_first(z, majority_vote(surest(z, self.T.unique()), len(z)))


METHOD = ESN
