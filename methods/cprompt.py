r"""CPrompt: prompts of each task that all classifiers are trained to work with, chosen by keys of classes.

Gao, Cen and Chang, "Consistent Prompting for Rehearsal-Free Continual Learning", CVPR 2024, arXiv 2403.08568;
NSP2 paper, Tables 2 and 4. Task t has a head h_t and prompts P_t, tokens that join the image's in front of
the first and of a later block; g(x; j) is the class token under P_j, before the final norm, q(x) that without
prompts. Task t trains h_t, P_t, the keys K of its classes, and a head aux that is then thrown away:
\[ L = CE(aux(g(x; t)), y) + CE(\cos(q, K), y) + CE(h_t(g(x; j)), y) + L_{ccl}. \]
Prompt consistency: j of 1..t is drawn for each image anew, so that h_t works under all prompts. Classifier
consistency: old heads are not to be sure of new images; with o_k = h_k(g(x; t)), the target without gradient,
\[ L_{ccl} = \frac{\alpha}{t - 1} \sum_{k<t} CE(o_k, softmax(o_k / s_k)), \]
s_k = 1 where max h_t(g(x; t)) > max o_k + margin, else tau. At prediction the task of the key nearest to q
lends its prompts; all heads score. The public code has one parameter for all keys, so that weight decay
shortens those of classes to come, which turn faster then (`keys_trained=all`).
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn, optim
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.device_images import uploaded
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.class_keys import ClassKeys
from cl_bench.nn.heads import HeadInit, new_head
from cl_bench.nn.prompts import TaskPrompts
from cl_bench.training.phase import half_cosine
from cl_bench.training.query_method import QueryTuning, QueryTuningConfig
from cl_bench.training.work import Extra

SUMMARY = "prompts of each task, chosen by keys of classes, that all heads work with"
FAMILY, VENUE, GROUPS, PASSES = "prompts", "CVPR 2024", ("paper",), 2


class FirstTaskConfig(QueryTuningConfig):
    """What decides the first task, as in the public code for CIFAR-100."""

    learning_rate: float = Field(0.01, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(5e-4, ge=0)  # of all that is trained
    passes: int = Field(18, ge=1)
    grad_clip: float = Field(0.0, ge=0)
    head_init: HeadInit = "kaiming"
    prompts: int = Field(50, ge=1)  # M, tokens in front of each of both blocks
    second_block: int = Field(5, ge=1)  # the later one, counted from 0
    keys_trained: Literal["task", "all"] = "task"  # of the task's classes, or (published) of the whole stream


class CPromptConfig(FirstTaskConfig):
    """What later tasks need besides."""

    tau: float = Field(1.2, gt=0)
    margin: float = 0.0
    alpha: float = Field(1.0, ge=0)


class CPrompt(QueryTuning):
    """P_t (2, M, D), K_t (c_t, D) and h_t of every task; those of the last are trained."""

    Config, TRUNK = CPromptConfig, FirstTaskConfig
    display = "CPrompt"
    query_normed = False
    SMALL = {"prompts": 3, "second_block": 1}
    AS_PUBLISHED = {"keys_trained": "all", "normalisation": "unit01"}
    LEFT_DIFFERENT = (
        "training images of CIFAR-100 keep their brightness, which the code varies by a quarter at most",
        "the published class orders come from numpy's old generator, seeds 1993, 87 and 1013",
    )

    def __init__(self, config: CPromptConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        backbone.require_blocks(config.second_block + 1, f"prompts at second_block={config.second_block}")
        self.prompts = TaskPrompts((0, config.second_block), config.prompts, backbone.width)
        self.keys, self.aux = ClassKeys(backbone.width, stream.init_seed), []

    def grow(self, task: TaskInfo) -> None:
        """Add the task's prompts, keys (at first all of the stream's with `keys_trained=all`) and heads."""
        super().grow(task)
        seed, classes = self.stream.init_seed, len(task.classes)
        self.prompts.grow(seeds.generator(seed, "prompts"), self.device)
        if self.config.keys_trained == "task":
            self.keys.requires_grad_(False).grow([classes], self.device)
        elif task.index == 0:
            self.keys.grow(self.stream.task_sizes, self.device)
        generator = seeds.generator(seed, "aux", task.index)  # in a list aux is no part of the state
        self.aux = [new_head(self.backbone.width, classes, self.config.head_init, generator).to(self.device)]

    def trained_prompts(self) -> list[nn.Parameter]:
        """P_t, the keys that are trained, and aux."""
        return [self.prompts.P[-1], *self.keys.trained(), *self.aux[0].parameters()]

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """A new SGD for these and the task's head."""
        rate, momentum, decay = self.config.learning_rate, self.config.momentum, self.config.weight_decay
        return optim.SGD(self.trained_parameters(), rate, momentum, weight_decay=decay)

    def rate(self, done: int) -> float:
        """(1 + cos(pi e / E)) / 2 after e of E passes."""
        return half_cosine(done, self.config.passes)

    def forwards_each(self, task: TaskInfo) -> int:
        """From the second task on an image passes forward once more, under the prompts that it drew."""
        return 3 if task.index else 2

    def extra(self) -> Extra:
        """Both sets of prompts among an image's tokens, and cosines with all keys."""
        M, D, keys = self.config.prompts, self.backbone.width, sum(map(len, self.keys.K))
        return Extra(tokens={0: M, self.config.second_block: M}, image=float(D * keys))

    def prompted(self, images: Tensor, tasks: Sequence[int]) -> Tensor:
        """g(x; j) (B, D) for the task j of each image, or one for all."""
        return self.backbone.class_tokens(images, self.prompts.of(tasks))

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """The four terms; the last from the second task on."""
        t, first, y = task.index, task.first_label, batch.labels
        f = self.prompted(batch.images, [t])
        cos = self.keys.similarity(self.query(batch), first, first + len(task.classes))  # (B, K_seen)
        loss = F.cross_entropy(self.aux[0](f), y - first) + F.cross_entropy(cos, y)
        if t == 0:
            return loss + self.cross_entropy(f, y, task)
        return loss + self.cross_entropy(self.under_drawn(batch, f, t), y, task) + self.consistency(f)

    def under_drawn(self, batch: Batch, f: Tensor, t: int) -> Tensor:
        """g(x; j) (B, D) for the tasks that images draw; where that is t it is f, with its gradient."""
        j = seeds.choices(batch.turns, t + 1, self.stream.init_seed, "drawn prompts", t)
        with torch.no_grad():
            others = self.prompted(batch.images, j)
        return torch.where(uploaded(j == t, f.device)[:, None], f, others)

    def consistency(self, f: Tensor) -> Tensor:
        """L_ccl of features (B, D) under the task's prompts."""
        *old, z = (head(f) for head in self.head.heads)
        total = 0.0
        for o in old:
            s = torch.where(z.amax(dim=1) > o.amax(dim=1) + self.config.margin, 1.0, self.config.tau)
            total = total + F.cross_entropy(o, (o / s[:, None]).softmax(dim=1).detach())
        return self.config.alpha / len(old) * total

    def represent(self, images: Tensor, q: Tensor) -> Tensor:
        """g(x; j) for the task j of the nearest key."""
        return self.prompted(images, self.keys.nearest_task(q, self.tasks_seen).tolist())


METHOD = CPrompt
