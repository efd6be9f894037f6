r"""SLCA: the whole network learns slowly, and heads are aligned on draws from Gaussians of classes.

Zhang, Wang, Kang, Chen & Wei, "SLCA: Slow Learner with Classifier Alignment for Continual Learning on a
Pre-trained Model", ICCV 2023, arXiv 2303.05118; by the same authors "SLCA++", arXiv 2408.08295. Task t trains
the network, at a hundredth of the rate of its new head, by cross-entropy over its own classes. Mean m_c and
covariance S_c of its classes' features are kept as they are then. From the second task on a copy of all
heads, z^{(i)} the scores of task i's, is trained on equally many draws of every class c seen, i_c its task:
\[ f \sim N(d_c m_c, S_c), \quad d_c = 0.9 + 0.1 \frac{i_c}{t}, \qquad L = CE\Big( \frac{z}{\tau n}, c \Big),
\quad n = \frac1t \sum_i \|z^{(i)}\|. \]
The copy predicts; the next task goes on from the heads as they were trained.

SLCA++ (`plusplus`) trains LoRA, W + s B A, beside attention's input maps and the MLPs', A starting as leading
right singular vectors of W, and the network's norms, biases and class token. Its loss is
\[ a\, CE + b\, RCE, \qquad RCE = -\sum_k p_k \log \max(1_{k = y}, 10^{-4}). \]
In the place of d_c draws are divided by 1 + r (t - i_c), r uniform in \mu \pm 0.01, and for predictions head
i reads (1 + \mu (t - i)) f.

Of d_c and of what is added to S_c the paper says nothing: they are the public code's. That it loses the
pre-trained last norm, and never trains the MLPs' LoRA, stands below the algorithm.
"""

from dataclasses import replace
from typing import Literal

import torch
from cl_bench.methods._slow_learner import Hybrid, HybridConfig, Slow
from pydantic import Field
from torch import Tensor, nn, optim
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.heads import TaskHeads
from cl_bench.training.aligned_method import Aligned
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer

SUMMARY = "the whole network tuned slowly, heads aligned on Gaussians of classes; plusplus=on is SLCA++"
FAMILY, VENUE, PASSES, KEEPS = "whole network", "ICCV 2023", 1, "one Gaussian of features per class"


class SLCAConfig(HybridConfig):
    """The authors' settings for CIFAR-100; rates and what SLCA++ trains stand in `_slow_learner.py`."""

    plusplus: bool = False  # SLCA++
    tau: float = Field(0.1, gt=0)
    mu: float = Field(0.02, ge=0)  # of SLCA++
    final_norm: Literal["pretrained", "fresh_asis"] = "pretrained"  # see `AsRun`
    lora_maps: Literal["all", "attention_asis"] = "all"


class SLCA(Aligned):
    """A slow network, heads as they are trained and as they are aligned, and Gaussians."""

    PRESET = "slca"
    SMALL = {"slow": 0.1, "rank": 2}
    maps = ("qkv", "fc1", "fc2")

    def __init__(self, config: SLCAConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream, TaskHeads(backbone.width))
        self.slow = Hybrid(config, backbone, self.maps) if config.plusplus else Slow(config, backbone)

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """A, once."""
        if task.index == 0:
            self.slow.start()

    def features(self, batch: Batch) -> Tensor:
        """f (B, D) of the network as it is now."""
        return self.slow.network.features(batch.images, self.slow.edits)

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """Over the task's own classes."""
        return self.slow.loss(self.head.current(self.features(batch)), batch.labels - task.first_label)

    def sgd(self) -> dict:
        """Momentum and weight decay, of training and alignment."""
        config = self.config
        decay = config.hybrid_decay if config.plusplus else config.weight_decay
        return {"momentum": config.momentum, "weight_decay": decay}

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """A new SGD for the newest head, and for the parts of the slow learner at rates of their own."""
        parts = [*self.slow.parts(task.index == 0), (self.head.heads[-1].parameters(), 1.0)]
        rate = self.config.learning_rate
        groups = [{"params": [*part], "lr": rate * share, "share": share} for part, share in parts]
        return optim.SGD(groups, **self.sgd())

    def phases(self, task: TaskInfo) -> list[Phase]:
        """One, in which every part has its own rate."""
        [phase] = super().phases(task)
        return [replace(phase, rate=lambda done, group: self.slow.rate(done, group["share"]))]

    def forwards_each(self, task: TaskInfo) -> int:
        """As the slow learner costs."""
        return self.slow.forwards

    def beside(self) -> float:
        """LoRA's."""
        return self.slow.beside()

    def changed(self, drawn: Tensor, generator: torch.Generator) -> Tensor:
        """Draws (K, n, D) around d_c m_c, or divided by 1 + r (t - i_c)."""
        if not self.config.plusplus:
            return super().changed(drawn, generator)
        u = torch.rand(drawn.shape[:2], generator=generator, device=drawn.device)  # (K, n)
        r, tasks = self.config.mu + 0.02 * (u - 0.5), self.head.tasks()
        return drawn / (1 + r * (tasks.max() - tasks)[:, None])[..., None]

    def aligned_loss(self, batch: Batch) -> Tensor:
        """CE(z / (tau n), c) of features (B, D)."""
        z = [head(batch.images) for head in self.aligned.heads]
        n = torch.stack([own.norm(dim=1) + 1e-7 for own in z]).mean(dim=0)  # (B,)
        return F.cross_entropy(torch.cat(z, dim=1) / (self.config.tau * n[:, None]), batch.labels)

    def predict(self, batch: Batch) -> Tensor:
        """Scores of the aligned heads, (B, K_seen); in SLCA++ older ones read larger features."""
        f, heads = self.features(batch), self.aligned.heads
        mu = self.config.mu if self.config.plusplus and self.gaussians else 0.0
        return torch.cat([head((1 + mu * (len(heads) - i)) * f) for i, head in enumerate(heads, 1)], dim=1)


class AsRun(SLCA):
    """What the published program does otherwise, each under its own option."""

    display, Config = "SLCA", SLCAConfig
    AS_PUBLISHED = {"final_norm": "fresh_asis", "lora_maps": "attention_asis", "normalisation": "imagenet"}
    LEFT_DIFFERENT = (
        "random crops are bilinear, and training images of CIFAR-100 keep their brightness",
        "images of CIFAR-100 are not normalized by its own mean and deviation, but by ImageNet's",
        "a class is of its own task where tasks differ in size, in the code of a wrong one",
        "the published class order is that of numpy's older generator, seeds 1993, 1996 and 1997",
    )
    # the code's optimizer leaves out the MLPs' LoRA, which stays zero
    maps = property(lambda self: ("qkv",) if self.config.lora_maps == "attention_asis" else SLCA.maps)

    def __init__(self, config: SLCAConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        if config.final_norm == "fresh_asis":  # the code puts a new norm in the place of the loaded one
            vit = self.slow.network.vit
            if not isinstance(vit.norm, nn.LayerNorm):
                lacks = f"backbone {backbone.spec.name!r} has no LayerNorm behind its blocks"
                raise InputError(f"final_norm=fresh_asis, but {lacks}; give final_norm=pretrained")
            vit.norm = nn.LayerNorm(backbone.width, device=self.device)  # eps 1e-5


METHOD = AsRun
