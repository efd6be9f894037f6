r"""EvoPrompt: prompts made by a memory, two linear maps a block, which is fused with itself after every task.

Kurniawan et al., "Evolving Parameterized Prompt Memory for Continual Learning", AAAI 2024; NSP2 paper, Tables
2 and 4. q is the class token of the frozen, un-prompted network before its last norm. In front of block b m
prompts \( P_b = U_b \, relu(V_b q) \) join the image's tokens, and stay. Task t starts its rows w of the head
where old ones stand, by class means mu in the frozen network, for each group of d features (transfer):
\[ w_c = \sum_{c'} softmax_{c'} (\cos(\mu_c, \mu_{c'}) / \tau) \, w_{c'}, \qquad c' \ old. \]
Memory M = (V, U) and rows are trained on the task's classes. Then the units of M are matched with those of R,
the memory before the task, by optimal transport T (alignment), and a unit moves the further, the more it
served this task and the less those before (fusion):
\[ M' = T^\top M, \quad o' = T^\top o, \quad M = R + \alpha (1 + o' - \Omega) (M' - R), \quad \Omega =
\max(\Omega, o'), \]
o a unit's mean activation over the images that are classified correctly; where o' and Omega are compared they
are stretched to [0, 1] in every V_b and U_b. The public code classifies among all classes, those to come too,
by untrained rows (`attribution=all`).
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from cl_bench import seeds
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.heads import HeadInit, transferred
from cl_bench.nn.prompt_memory import PromptMemory, stretched
from cl_bench.nn.prototypes import Prototypes
from cl_bench.training.query_method import QueryTuning, QueryTuningConfig
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, of_memory

SUMMARY = "prompts made by a memory that is fused with itself after every task (AAAI 2024)"
FAMILY, VENUE, GROUPS, PASSES = "prompts", "AAAI 2024", ("paper",), 2
KEEPS = "the mean of features per class"


class EvoPromptConfig(QueryTuningConfig):
    """The public code's settings for CIFAR-100."""

    learning_rate: float = Field(0.005, gt=0)
    batch: int = Field(64, ge=1)
    passes: int = Field(20, ge=1)
    head_init: HeadInit = "uniform"
    prompt_length: int = Field(5, ge=1)  # m
    hidden: int = Field(16, ge=1)  # rows of V_b
    transfer_width: int = Field(4, ge=1)  # d
    transfer_temperature: float = Field(0.05, gt=0)  # tau
    alpha: float = Field(0.5, ge=0)
    attribution: Literal["seen", "all"] = "seen"  # the classes among which an image is classified for o


class EvoPrompt(QueryTuning):
    """The memory, Omega (L, h + m D) of the units of V and U, class means, and a head a task."""

    Config = EvoPromptConfig
    display = "EvoPrompt"
    query_normed = False
    SMALL = {"prompt_length": 2, "hidden": 4}
    keeps = KEEPS
    AS_PUBLISHED = {"attribution": "all", "normalisation": "unit01"}
    LEFT_DIFFERENT = (
        "where no image of a task is classified correctly o is 0, where the code's memory becomes NaN",
        "the code changes the colors of training images too, and takes classes in natural order",
    )

    def __init__(self, config: EvoPromptConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        D, d = backbone.width, config.transfer_width
        if D % d:
            raise InputError(f"transfer_width={d}, but the backbone has {D} features; give a divisor")
        sizes = (backbone.depth, config.prompt_length, D, config.hidden)
        self.memory = PromptMemory(*sizes, seeds.generator(stream.init_seed, "memory")).to(self.device)
        self.sizes = [config.hidden, config.prompt_length * D]
        self.register_buffer("Omega", torch.zeros(backbone.depth, sum(self.sizes), device=self.device))
        self.prototypes = Prototypes(D, self.device)  # mu

    def grow(self, task: TaskInfo) -> None:
        """Add the task's head, and room for its class means."""
        super().grow(task)
        self.prototypes.grow(len(task.classes))

    def extra(self) -> Extra:
        """Prompts from the memory, and alignment."""
        return of_memory(self.memory.V, self.memory.U)

    def trained_prompts(self) -> list[nn.Parameter]:
        """V and U of all blocks."""
        return [*self.memory.parameters()]

    def represent(self, images: Tensor, q: Tensor) -> Tensor:
        """Features under each image's own prompts."""
        return self.backbone.features(images, self.memory.joined(self.memory.units(q)[1]))

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Keep R; class means, in the pass of queries; transfer."""
        super().begin_task(task, trainer)
        self.R = [part.detach().clone() for part in self.memory.parameters()]
        if self.stream.num_tasks > 1:
            for batch in trainer.plain(task, self.statistics_batch, networks=0):
                self.prototypes.add(self.backbone.vit.norm(self.query(batch)), batch.labels)
        if task.index:
            *old, new = (head.weight.data for head in self.head.heads)
            mu, d = self.prototypes.means, self.config.transfer_width
            new.copy_(transferred(torch.cat(old), mu, d, self.config.transfer_temperature))

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Attribution; from the second task on alignment and fusion."""
        if self.stream.num_tasks > 1:
            o = self.attribution(task, trainer)
            self.Omega.copy_(torch.maximum(self.Omega, self.evolve(o) if task.index else o))

    def attribution(self, task: Task, trainer: Trainer) -> Tensor:
        """o (L, h + m D), float64, in one plain pass."""
        total = torch.zeros_like(self.Omega, dtype=torch.float64)
        count = total.new_zeros(())
        for batch in trainer.plain(task, self.statistics_batch, shared=True):
            h, prompts = self.memory.units(self.query(batch))
            features = self.backbone.features(batch.images, self.memory.joined(prompts))
            scores = self.all_scores(features) if self.config.attribution == "all" else self.head(features)
            right = scores.argmax(dim=1) == batch.labels
            total += torch.relu(torch.cat([h, prompts], dim=2)[:, right]).sum(dim=1)
            count += right.sum()
        trainer.group.all_reduce_sum([total, count])
        return total / count.clamp(min=1)

    @torch.no_grad()
    def evolve(self, o: Tensor) -> Tensor:
        """Align and fuse the memory, block by block; o' in the place of o."""
        for l, units in enumerate(o):
            moves = zip(self.memory.parameters(), self.R, self.memory.aligned(l, self.R), strict=True)
            known = zip(units.split(self.sizes), self.Omega[l].split(self.sizes), strict=True)
            for (part, R, (M, T)), (own, old) in zip(moves, known, strict=True):
                own.copy_(T.T @ own)
                gain = self.config.alpha * (1 + stretched(own) - stretched(old))
                part[l] = R[l] + gain[:, None] * (M - R[l])
        return o

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """Each image once, where there is a next task."""
        return images if self.stream.num_tasks > 1 else 0


METHOD = EvoPrompt
