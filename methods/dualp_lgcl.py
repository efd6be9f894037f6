r"""DualP-LGCL: DualPrompt whose keys and features are drawn toward what a text encoder says of class names.

Khan et al., "Introducing Language Guidance in Prompt-based Continual Learning", ICCV 2023, arXiv 2308.15827;
NSP2 paper, Table 2. A reconstruction: there is no public code, and its sources say no more than that a frozen
text encoder guides the keys that are chosen toward the classes of the task, and the feature that the head
reads toward the class of the image, without anything more to train. With unit text features l_k of classes
and L_t of tasks, s < t and n a class of these:
\[ L = L_{dual} + \lambda_{task} g(k_t, L_t, L_s) + \lambda_{class} \frac1B \sum_b g(f_b, l_{y_b}, l_n),
\quad g(a, p, n) = 1 - \cos(a, p) + E_n \cos(a, n). \]

Open, and options: both weights; whether a task is told by the mean of its classes or by a sentence of all
their names, which must fit into the encoder (`task_text`); whether the first task, which has no negatives, is
guided (`guide_first`). One negative drawn at random, as the form suggests, has g as its expectation, which
needs no draw. Texts need as many entries as features: those of ViT-L/14 beside a ViT-B/16. With CLIP's own
image tower keys and features go through its frozen projection, and cosines are those of the common space.
"""

from typing import Literal

import torch
from cl_bench.methods.dualprompt import DualConfig, DualPrompt
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone, require_reader
from cl_bench.training.trainer import Trainer

SUMMARY = "DualPrompt with keys and features guided by texts of class names (LGCL)"
FAMILY, VENUE, GROUPS, PASSES, RECONSTRUCTION = "prompts", "ICCV 2023", ("paper",), 2, True


class LanguageConfig(DualConfig):
    """DualPrompt's settings, and weights of 1, which no source states."""

    task_weight: float = Field(1.0, ge=0)  # lambda_task
    class_weight: float = Field(1.0, ge=0)  # lambda_class
    task_text: Literal["mean", "sentence"] = "mean"  # L_t: mean of l_k, or of "a photo of a ... or a ..."
    guide_first: bool = True  # the first task too


class DualPromptLGCL(DualPrompt):
    """DualPrompt with text features l (K, E) of classes and L (T, E) of tasks; prediction uses neither."""

    Config = LanguageConfig
    display = "DualP-LGCL"
    TRUNK = LanguageConfig
    AS_PUBLISHED, LEFT_DIFFERENT = {}, ()  # nothing was published
    needs_names = True

    def __init__(self, config: LanguageConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        require_reader(backbone, "dualp-lgcl")
        if stream.num_tasks > self.S:
            lacking = f"pool_size={self.S} has no key to guide for each of {stream.num_tasks} tasks"
            raise InputError(f"{lacking}; leave out pool_size for one each")
        for name in ("class_texts", "task_texts"):
            self.register_buffer(name, torch.zeros(0, backbone.text.length, device=self.device))

    def grow(self, task: TaskInfo) -> None:
        """Make room for the texts of the task and its classes too."""
        super().grow(task)
        for name, rows in {"class_texts": len(task.classes), "task_texts": 1}.items():
            known = getattr(self, name)
            setattr(self, name, torch.cat([known, known.new_zeros(rows, known.shape[1])]))

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Encode the task and its classes, once: a resumed run has them in its checkpoint."""
        super().begin_task(task, trainer)
        encode, templates = self.backbone.text.encode, self.stream.templates
        self.class_texts[task.first_label :] = encode(task.names, templates)
        told = self.class_texts[task.first_label :].mean(0)
        if self.config.task_text == "sentence":
            self.require_short(together := " or a ".join(task.names))
            [told] = encode([together], templates)
        self.task_texts[task.index] = F.normalize(told, dim=0)

    def require_short(self, names: str) -> None:
        """Raise InputError where the encoder would not read all names of a task."""
        if not all(self.backbone.text.reads(text.replace("{}", names)) for text in self.stream.templates):
            cut = f"the text tower does not read all of {names[:60]!r}...: too many classes in a task"
            raise InputError(f"{cut}; give task_text=mean")

    def guidance(self, x: Tensor, toward: Tensor, away: Tensor) -> Tensor:
        """Mean of g over rows x (n, D), each toward its own unit vector (n, E) and away from all old ones."""
        projection = self.backbone.text.projection
        x = F.normalize(x if projection is None else x @ projection.T, dim=1)  # (n, E)
        return (1 - (x * (toward - away.sum(0) / max(1, len(away)))).sum(1)).mean()

    def guided(self, task: TaskInfo) -> bool:
        """Whether the task's loss has the guidance."""
        return task.index > 0 or self.config.guide_first

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """L, of which `cross_entropy` has the part of the features."""
        dual, t = super().loss(batch, task), task.index
        if not self.guided(task):
            return dual
        texts = self.task_texts
        return dual + self.config.task_weight * self.guidance(self.k[t : t + 1], texts[t : t + 1], texts[:t])

    def cross_entropy(self, features: Tensor, labels: Tensor, task: TaskInfo) -> Tensor:
        """CE over the current task's classes, and the guidance of the features by their classes."""
        ce = super().cross_entropy(features, labels, task)
        if not self.guided(task):
            return ce
        old = self.class_texts[: task.first_label]
        return ce + self.config.class_weight * self.guidance(features, self.class_texts[labels], old)


METHOD = DualPromptLGCL
