"""Prompts in the first blocks of a frozen ViT, as methods tune them (VPT-deep: Jia et al., ECCV 2022)."""

from abc import abstractmethod

import torch
from torch import optim

from cl_bench import seeds
from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.projection import adam
from cl_bench.nn.prompts import DeepPrompts, ExtraKeys
from cl_bench.training.gradient_method import GradientMethod
from cl_bench.training.layer_prompts import LayerPrompts
from cl_bench.training.schedules import factor, together
from cl_bench.training.work import Extra


class Prompted(LayerPrompts, GradientMethod):
    """Prompts in the first blocks of a frozen ViT, with a new Adam for every task.

    Subclasses say what the scores are and what is trained besides.
    """

    PRESET = "nsp2-paper"
    current_task_loss = True
    statistics_batch = 100

    def __init__(self, config: Strict, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        layers = backbone.first_blocks(config.layers)
        self.prompts = self.make_prompts(layers, seeds.generator(stream.init_seed, "prompts")).to(self.device)

    def make_prompts(self, layers: int, generator: torch.Generator) -> torch.nn.Module:
        """Edits with the prompts `P` of so many blocks, the same for all images."""
        return DeepPrompts(layers, self.config.prompts, self.backbone.width, generator)

    @property
    def P(self) -> torch.nn.Parameter:
        """The prompts of all prompted blocks, (L, M, D)."""
        return self.prompts.P

    @property
    def layer_prompts(self) -> torch.nn.Parameter:
        """All of them."""
        return self.P

    def attended(self, batch: Batch) -> ExtraKeys:
        """All of them, whatever the image."""
        return self.prompts

    def extra(self) -> Extra:
        """M keys for every block with prompts, projected once a step."""
        layers, M, D = self.P.shape
        return Extra(keys=dict.fromkeys(range(layers), M), step=2.0 * layers * M * D * D)

    @abstractmethod
    def trained_parameters(self) -> list:
        """The prompts and what else is trained, as parameters or parameter groups."""

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """A new Adam for all that is trained."""
        return adam(self.trained_parameters(), self.projections(task), **self.adam_settings())

    def adam_settings(self) -> dict:
        """Learning rate and coupled weight decay; betas 0.9 and 0.999, eps 1e-8 are torch's own."""
        return {
            "lr": self.config.learning_rate,
            "weight_decay": self.config.weight_decay,
            "fused": self.device.type == "cuda",
        }

    def repeats(self) -> int:
        """As many passes as `epoch_mode` names."""
        return together(self.config.epoch_mode)

    def rate(self, done: int) -> float:
        """As `lr_milestones` says."""
        return factor(self.config.lr_milestones, done, self.config.passes)
