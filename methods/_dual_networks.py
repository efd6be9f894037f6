"""The networks of CL-LoRA: updates that tasks share in the first blocks, and those of each in the rest."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from cl_bench import seeds
from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.dual_lora import Joined, Remembered, SharedLoRA, WeightedLoRA
from cl_bench.nn.edits import NONE
from cl_bench.nn.forward import through_blocks
from cl_bench.nn.heads import CosineHeads
from cl_bench.nn.lora import InWeights
from cl_bench.nn.prototypes import Prototypes
from cl_bench.training.method import Method
from cl_bench.training.work import Extra, through, through_first_blocks


class DualNetworks(Method):
    """A and B, w_i, A_i and B_i of every task, the head that is trained now, and class means."""

    current_task_loss = True
    Head: ClassVar[type[CosineHeads]] = CosineHeads
    rows = "qv"  # of block weights

    def __init__(self, config: Strict, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        self.half = config.general or backbone.depth // 2
        if not 0 < self.half < backbone.depth:
            has = f"backbone {backbone.spec.name!r} has {backbone.depth} blocks"
            raise InputError(f"general={config.general}, but {has}, of which tasks share some and not all")
        drawn = seeds.generator(stream.init_seed, "shared")
        self.shared = SharedLoRA(self.half, backbone.width, config.rank, "qv", drawn).to(self.device)
        self.specific, self.classes = nn.ModuleList(), []  # by task; classes as slices of all
        self.prototypes = Prototypes(backbone.width, self.device)

    def grow(self, task: TaskInfo) -> None:
        """Remember B, freeze the updates so far; new ones, a new head, and room for class means."""
        seed, classes, D = self.stream.init_seed, len(task.classes), self.backbone.width
        self.shared.remember()
        drawn = seeds.generator(seed, "specific", task.index)
        sizes = (self.backbone.depth - self.half, D, self.config.rank, "qv")
        own = WeightedLoRA(*sizes, drawn, self.rows).to(self.device)
        self.specific.requires_grad_(False).append(own)
        self.head = self.Head(D, self.device)
        self.head.grow(classes, seeds.generator(seed, "head", task.index))
        self.classes.append(slice(task.first_label, task.first_label + classes))
        self.prototypes.grow(classes)

    @abstractmethod
    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """The scalar to minimize."""

    def features(self, batch: Batch, index: int) -> Tensor:
        """f (B, D) under the updates of a task, and B as it is now, all of them added to the weights."""
        parts = (InWeights(lora) for lora in (self.shared, self.specific[index]))
        return self.backbone.features(batch.images, Joined(*parts, self.half))

    def lower(self, tokens: Tensor) -> Tensor:
        """Tokens (B, N, D) behind the first half, of those that enter the network."""
        return through_blocks(self.backbone.vit, tokens, self.shared, until=self.half)

    def upper(self, x: Tensor) -> Tensor:
        """f (B, D) of tokens behind the first half, under the updates of the task that is learned."""
        newest = Joined(NONE, self.specific[-1], self.half)
        return self.backbone.finish(x, self.half, newest)

    def exit(self, x: Tensor) -> Tensor:
        """Features (B, D) of tokens behind the first half, as if the network ended there."""
        return self.backbone.finish(x, self.backbone.depth, NONE)

    @torch.no_grad()
    def old_exit(self, tokens: Tensor) -> Tensor:
        """The same of tokens that enter the network, with B as the task before has left it."""
        old = Remembered(self.shared)
        return self.exit(through_blocks(self.backbone.vit, tokens, old, until=self.half))

    @property
    def prediction_passes(self) -> int:
        """One for the updates of every task; B changes in all of them as long as tasks come."""
        return len(self.specific)

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """A pass for class means."""
        return images

    def extra(self) -> Extra:
        """While training, updates beside each token and, in later tasks, twice half of the network.

        Once for B', and once back from distillation; for predictions updates are in the weights.
        """
        vit, own = self.backbone.vit, self.specific[-1:]
        updates = through(vit, self.shared) + sum(through(vit, each) for each in own)
        teacher = through_first_blocks(vit, self.half) * (len(self.specific) > 1)
        return Extra(step=2 * self.config.batch * (updates + teacher))
