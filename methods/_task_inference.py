"""Task-identity inference of HiDe-Prompt: un-prompted features say which task an image is of."""

from collections.abc import Callable
from functools import partial

import torch
from cl_bench.methods._hide_settings import InferenceConfig
from torch import Tensor, nn, optim
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.data.stream import TaskInfo
from cl_bench.nn.heads import TaskHeads, new_head
from cl_bench.training.phase import Phase

HIDDEN = 2  # width of the MLP's inner layer, in that of a feature


class TaskInference(nn.Module):
    """g(LN(q + MLP(q))): scores (B, K_seen) of queries q (B, D), by one head for each task."""

    def __init__(self, width: int, generator: torch.Generator):
        super().__init__()
        self.up = new_head(width, HIDDEN * width, "normal", generator)
        self.down = new_head(HIDDEN * width, width, "normal", generator)
        self.norm, self.head = nn.LayerNorm(width), TaskHeads(width)

    def mapped(self, q: Tensor) -> Tensor:
        """What g reads, (B, D)."""
        return self.norm(q + self.down(F.gelu(self.up(q))))

    def forward(self, q: Tensor) -> Tensor:
        """Scores of all classes seen."""
        return self.head(self.mapped(q))

    def tasks(self, q: Tensor) -> Tensor:
        """The task (B,) of the class with the largest score."""
        return self.head.tasks()[self(q).argmax(dim=1)]

    def products(self) -> float:
        """Multiply-adds of a query."""
        return float(sum(parameter.numel() for parameter in self.parameters() if parameter.ndim > 1))

    def phase(self, query: Callable[[Batch], Tensor], config: InferenceConfig, task: TaskInfo) -> Phase:
        """CE of the newest head, by a new Adam at one rate; the network gets no gradient."""
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]

        def loss(batch: Batch) -> Tensor:
            z = self.head.current(self.mapped(query(batch)))  # (B, c_t)
            return F.cross_entropy(z, batch.labels - task.first_label)

        return Phase(
            loss=loss,
            optimizer=lambda: optim.Adam(trained, config.tii_rate, fused=trained[0].is_cuda),
            batch=config.batch,
            passes=config.tii_passes,
            after_backward=clipped(trained, config.grad_clip),
            name="task inference",
            advice="lower tii_rate",
            forwards=0,
        )


def clipped(parameters: list[nn.Parameter], largest: float) -> Callable[[], None]:
    """What clips the norm of their gradient; with 0 nothing does."""
    return partial(nn.utils.clip_grad_norm_, parameters, largest) if largest else lambda: None
