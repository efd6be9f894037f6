"""Options of SEMA, and what its published program does otherwise."""

from typing import Literal

import torch
from cl_bench.methods._expanding import Expanding
from pydantic import Field
from torch import Tensor

from cl_bench.config import Strict
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.edits import Edits
from cl_bench.nn.heads import DecayingHeads
from cl_bench.nn.mixture import Branch, Noting
from cl_bench.training.trainer import Trainer


class SEMAConfig(Strict):
    """The public code's settings for CIFAR-100 in 10 tasks."""

    bottleneck: int = Field(16, ge=1)  # of adapters
    descriptor: int = Field(128, ge=1)  # units of the autoencoders
    expandable: int = Field(3, ge=1)  # last blocks that may add adapters
    threshold: float = Field(2.0, ge=0)
    deviation: Literal["absolute", "above"] = "absolute"  # |z|, or z: whether small errors are new too
    learning_rate: float = Field(0.005, gt=0)  # of adapters, routers and the head
    passes: int = Field(5, ge=1)
    descriptor_rate: float = Field(0.01, gt=0)
    descriptor_passes: int = Field(20, ge=1)
    batch: int = Field(32, ge=1)
    scan_batch: int = Field(128, ge=1)  # images that decide together
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(5e-4, ge=0)  # of all that is trained
    adapter_scale: float = Field(1.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)  # in adapters while training
    errors: Literal["settled", "moving_asis"] = "settled"  # for what is not as meant see `Published`
    record: int = Field(500, ge=3)  # errors that moving_asis remembers
    head_decay: Literal["newest", "all_asis"] = "newest"


class Recording(Branch):
    """A branch that remembers its latest errors of training, at most `longest`.

    While there is room, what is left of a batch when it ends is not remembered.
    """

    longest, record = 0, torch.zeros(0)

    def errors(self, means: Tensor) -> Tensor:
        """As of any branch."""
        found = super().errors(means)
        if self.training:
            own, new = self.record, found.detach().float().cpu()
            room = self.longest - len(own)
            self.record = torch.cat([own, new[:room]]) if room else torch.cat([own, new])[-self.longest :]
        return found


class Published(Expanding):
    """Errors of all training with descriptors that move, and a head whose rows decay in every task."""

    def __init__(self, config: SEMAConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        if config.head_decay == "all_asis":
            self.head = DecayingHeads(backbone.width, self.device)

    @property
    def moving(self) -> bool:
        """Whether the errors of a descriptor are those of its training, the random one's among them."""
        return self.config.errors == "moving_asis"

    couples_batch = moving  # what is remembered depends on where a batch ends

    def kind(self, *sizes) -> Branch:
        """One that remembers."""
        if not self.moving:
            return Branch(*sizes)
        branch = Recording(*sizes)
        branch.longest = self.config.record
        return branch

    def network(self, task: TaskInfo, blocks: list[int]) -> Edits:
        """The mixture; moving, errors of what is trained in `blocks` are remembered as images pass."""

        def see(l: int, means: Tensor) -> None:
            if l in blocks:
                self.branch(l, task).errors(means)

        return Noting(self.mixture, see) if self.moving else super().network(task, blocks)

    def settling(self, task: TaskInfo) -> int:
        """Moving, none."""
        return 0 if self.moving else super().settling(task)

    def settle(self, task: Task, trainer: Trainer, blocks: list[int]) -> None:
        """Moving, those remembered."""
        if not self.moving:
            return super().settle(task, trainer, blocks)
        for branch in (self.branch(l, task) for l in blocks):
            branch.settle(branch.record)
