"""A network adapts to a task by SGD, through a cosine head, in adapters or otherwise: RanPAC, EASE, Aper."""

import torch
from pydantic import Field
from torch import Tensor, nn, optim
from torch.nn import functional as F

from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import TaskInfo
from cl_bench.nn.adapter import Adapters
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.edits import Edits
from cl_bench.nn.heads import CosineHeads
from cl_bench.training.phase import Phase, half_cosine


class AdaptingConfig(Strict):
    """AdaptFormer's adapters, trained as RanPAC's authors do on CIFAR-100."""

    bottleneck: int = Field(64, ge=1)
    adapter_scale: float = Field(0.1, gt=0)
    dropout: float = Field(0.1, ge=0, lt=1)  # while training
    learning_rate: float = Field(0.01, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(5e-4, ge=0)  # of all that is trained
    batch: int = Field(48, ge=1)
    passes: int = Field(20, ge=1)


def new_adapters(backbone: Backbone, config: AdaptingConfig, generator: torch.Generator) -> Adapters:
    """Adapters in all blocks, with which the network is as it was."""
    sizes = (backbone.depth, backbone.width, config.bottleneck)
    adapters = Adapters(*sizes, generator, config.adapter_scale, config.dropout)
    return adapters.to(next(backbone.parameters()).device)


def adapting(
    backbone: Backbone, edits: Edits, head: CosineHeads, config: AdaptingConfig, task: TaskInfo
) -> Phase:
    """Cross-entropy of sigma cos(f, w_k), w_k those of the task's classes, over edits, w and sigma.

    Where the network is not frozen it is trained too. The learning rate falls to 0 as half a cosine, pass by
    pass.
    """

    def loss(batch: Batch) -> Tensor:
        features = backbone.features(batch.images, edits)
        return F.cross_entropy(head(features), batch.labels - task.first_label)

    modules = nn.ModuleList(part for part in (backbone, edits, head) if isinstance(part, nn.Module))
    trained = [parameter for parameter in modules.parameters() if parameter.requires_grad]
    sgd = {"lr": config.learning_rate, "momentum": config.momentum, "weight_decay": config.weight_decay}
    return Phase(
        loss=loss,
        optimizer=lambda: optim.SGD(trained, **sgd),
        batch=config.batch,
        passes=config.passes,
        rate=lambda done, group: half_cosine(done, config.passes),
    )
