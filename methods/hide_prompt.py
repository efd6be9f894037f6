r"""HiDe-Prompt: which task an image is of, its features under that task's prompt, and heads, one by one.

Wang et al., "Hierarchical Decomposition of Prompt-Based Continual Learning: Rethinking Obscured
Sub-optimality", NeurIPS 2023, arXiv 2310.07234. Task-identity inference: a head g and an MLP in front of it
learn from features q of the un-prompted network, by cross-entropy over the task's own classes. Within-task
prediction: e_t, prefixes of the first blocks that start as p_{t-1}, and the task's rows of a head h learn by
\[ L = CE(h(f), y) + \lambda L_{con}, \qquad p_t = (1 - \alpha) e_t + \frac{\alpha}{t - 1} \sum_{s<t} p_s, \]
f the features under p_t. L_{con} is the mean over i of -log softmax_j(m_i m_j / 0.8)_i; the m are the f of a
batch, and centers of old classes' f. Task-adaptive prediction: centers of every class's q and f are kept (by
k-means), with the variance around each. From the second task on g, its MLP and all of h are then trained on
draws from them, by cross-entropy over all classes. At prediction the task of g's best class lends its prompt.

The public code decides the form of L_{con}, that a class has ten centers where the paper has a Gaussian
(`statistics=gaussian`), and that a pass over draws has as many steps as earlier tasks have classes. What it
does with images that stand together in a batch is below the algorithm.
"""

import torch
from cl_bench.methods._hide_settings import FirstTaskConfig, HiDeConfig, falling
from cl_bench.methods._inferring import Inferring
from cl_bench.methods._task_inference import clipped
from torch import Tensor, nn, optim
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.contrast import contrast
from cl_bench.nn.pool import picked, uniform
from cl_bench.nn.prompts import Prefixes
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer

SUMMARY = (
    "task inference, prompts of tasks and heads learned one by one, heads aligned on centroids of classes"
)
FAMILY, VENUE, PASSES = "prompts", "NeurIPS 2023", 2
KEEPS = "centroids of two features per class, with variances"
TEMPERATURE = 0.8


class HiDe(Inferring):
    """g, its MLP, p (L, 2, M, D) of every task, h, and centers with variances of q and f."""

    PRESET = "hide_prompt"
    SMALL = {"layers": 1, "tii_rate": 0.01, "centroids": 2, "align_passes": 5, "align_rate": 0.05}
    couples_batch = True
    old: Tensor | None = None  # the mean of p_s, s < t

    def __init__(self, config: HiDeConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        backbone.require_blocks(config.layers, f"layers={config.layers}")
        self.p = nn.ParameterList()

    def grow(self, task: TaskInfo) -> None:
        """e_t starts as the last p, or from U(-1, 1), and is p_t once it is learned."""
        super().grow(task)
        shape = (self.config.layers, 2, self.config.prompt_length, self.backbone.width)
        first = uniform(shape, "port", (self.stream.init_seed, "prompts"), self.device)
        self.p.requires_grad_(False)
        self.p.append(nn.Parameter(self.p[-1].detach().clone()) if self.p else first)

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """What e_t is mixed with."""
        self.of_f.centers(task.first_label)  # found before the first step, no step waits for them
        self.old = torch.stack([*self.p[:-1]]).mean(dim=0) if task.index else None

    def mixed(self) -> Tensor:
        """p_t."""
        alpha, e = self.config.ensemble, self.p[-1]
        return e if self.old is None else (1 - alpha) * e + alpha * self.old

    def features(self, images: Tensor, p: Tensor) -> Tensor:
        """f (B, D) under the prompts p of each image, (B, L, 2, M, D), or (1, L, 2, M, D) for all."""
        return self.backbone.features(images, self.prefixes(p, len(images)))

    def prefixes(self, p: Tensor, batch: int) -> Prefixes:
        """What a batch of so many images is given."""
        return Prefixes({l: pair.unbind(dim=1) for l, pair in enumerate(p.unbind(dim=1))})

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE over the task's own classes, and lambda L_con."""
        f = self.features(batch.images, self.mixed()[None])
        ce = F.cross_entropy(self.head.current(f), batch.labels - task.first_label)
        return ce + self.config.contrast * contrast(self.of_f.centers(task.first_label), f, TEMPERATURE)

    def phases(self, task: TaskInfo) -> list[Phase]:
        """Task-identity inference; within-task prediction, in which h has a smaller rate."""
        config, e, h = self.config, [self.p[-1]], [*self.head.heads[-1].parameters()]
        rates = (config.learning_rate, config.head_share * config.learning_rate)
        groups = [{"params": part, "lr": top, "top": top} for part, top in zip((e, h), rates, strict=True)]
        within = Phase(
            loss=lambda batch: self.loss(batch, task),
            optimizer=lambda: optim.Adam(groups, fused=self.device.type == "cuda"),
            batch=config.batch,
            passes=config.passes,
            rate=lambda done, group: falling(config, done, group["top"]),
            after_backward=clipped(e + h, config.grad_clip),
            asks=False,
        )
        return [self.tii.phase(self.query, config, task), within]

    @torch.no_grad()
    def end_task(self, task: Task, trainer: Trainer) -> None:
        """p_t; centers and variances of the task's classes; task-adaptive prediction."""
        self.p[-1].copy_(self.mixed())
        self.describe(task, trainer, lambda images: self.features(images, self.p[-1][None]))
        with torch.enable_grad():
            self.align(task, trainer)

    def predict(self, batch: Batch) -> Tensor:
        """Scores of h (B, K_seen) under the prompts of the tasks that g infers."""
        tasks = self.tii.tasks(self.query(batch))  # (B,)
        return self.scores(self.features(batch.images, picked(torch.stack([*self.p]), tasks)))


class AsRun(HiDe):
    """What the published program does otherwise, each under its own option."""

    display, Config, TRUNK = "HiDe-Prompt", HiDeConfig, FirstTaskConfig
    AS_PUBLISHED = {
        "prefix_reshape": "reshape_asis", "schedule_lag": "pass_asis", "eval_classes": "all",
        "normalisation": "unit01",
    }  # fmt: skip
    LEFT_DIFFERENT = (
        "L_con is of all images of a step, in the code of those of each of eight GPUs",
        "images of a statistics batch are of all classes of the task, in the code of one class",
        "training images of CIFAR-100 keep their brightness, and are normalized by ImageNet's mean",
        "more tasks than ten have prompts of their own, for which the code needs an option (--size)",
        "the published class order is the natural one (--order natural)",
    )
    mixes = property(lambda self: self.config.prefix_reshape == "reshape_asis")

    @property
    def predicts_together(self) -> int | None:
        """Where images are handed each other's prompts."""
        return self.config.eval_batch if self.mixes else None

    def prefixes(self, p: Tensor, batch: int) -> Prefixes:
        """As chosen, or two keys for each image of a batch's first half, two values for others."""
        found = super().prefixes(p, batch)
        return found.without_permute(0, batch) if self.mixes else found


METHOD = AsRun
