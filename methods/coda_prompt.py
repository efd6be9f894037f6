r"""CODA-Prompt: prefix prompts that are weighted sums of components, of which each task adds its own.

Smith et al., "CODA-Prompt: COntinual Decomposed Attention-based Prompting for Rehearsal-Free Continual
Learning", CVPR 2023; NSP2 paper, Table 2. In each of the first blocks the prompt of an image with query q is
\[ p = \sum_i w_i P_i, \qquad w_i = \cos(q \odot A_i, K_i), \]
its first half keys, the rest values. Task t trains its own slice of A, K and P, those of earlier tasks are
frozen. A new slice starts orthonormal and orthogonal to all earlier rows; the published sweep subtracts
single projections onto rows that training has bent, and reaches neither (`gs=classical`). The orthogonality
penalty of the paper's scripts is `ortho_mu=0.1`, the released code has 0. The published loader drops the last
partial batch (`drop_last`); the constructor of its schedule leaves the counter one behind, so that the first
two passes both have the full rate (`lr_schedule=lagged`).
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.heads import HeadInit
from cl_bench.nn.pool import attended_cosines
from cl_bench.nn.prompts import Prefixes
from cl_bench.nn.subspaces import orthogonality_loss, orthonormal_beside
from cl_bench.training.phase import coda_cosine
from cl_bench.training.query_method import QueryTuning, QueryTuningConfig
from cl_bench.training.work import Extra, of_components

ALIASES = ("coda",)
SUMMARY = "prompts as weighted sums of components"
FAMILY, VENUE, GROUPS, PASSES = "prompts", "CVPR 2023", ("paper",), 2


class CodaConfig(QueryTuningConfig):
    """Settings of the public code for CIFAR-100."""

    learning_rate: float = Field(0.001, gt=0)
    batch: int = Field(128, ge=1)
    passes: int = Field(20, ge=1)
    grad_clip: float = Field(0.0, ge=0)
    head_init: HeadInit = "uniform"
    lr_schedule: Literal["lagged", "unlagged"] = "lagged"  # the cosine a pass behind (code), or as meant
    components: int = Field(100, ge=1)  # m
    prompt_length: int = Field(8, ge=2, multiple_of=2)  # L, half keys and half values
    layers: int = Field(5, ge=1)  # first blocks that get prompts
    ortho_mu: float = Field(0.0, ge=0)  # mu, weight of the orthogonality penalty
    # orthogonal to the span of all earlier rows, or (published) one sweep of Gram-Schmidt
    gs: Literal["qr", "classical"] = "qr"
    drop_last: bool = False  # leave out the last partial batch of a pass (published)


class CodaPrompt(QueryTuning):
    """A, K (layers, m / T, D) and P (layers, m / T, L D) of each task; those of the last are trained."""

    Config = CodaConfig
    display = "CODA-Prompt"
    SMALL = {"layers": 2, "prompt_length": 4, "components": 8, "grad_clip": 1.0}
    version = 2
    LEFT_DIFFERENT = (
        "a task with fewer images than a batch is refused with drop_last=on, where the code trains on "
        "nothing without a word",
        "the published class orders come from Python's own generator, seed 0 the natural order "
        "(--order natural, or a file)",
    )
    AS_PUBLISHED = {
        "gs": "classical", "drop_last": True, "lr_schedule": "lagged", "head_init": "uniform",
        "normalisation": "unit01",
    }  # fmt: skip

    def __init__(self, config: CodaConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        backbone.first_blocks(config.layers)
        self.slice = config.components // stream.num_tasks  # components of a task
        asked, D = f"components={config.components}", backbone.width
        if self.slice == 0:
            raise InputError(f"{asked} are too few for {stream.num_tasks} tasks; give at least one for each")
        if self.slice * stream.num_tasks > D:
            raise InputError(f"{asked} cannot be orthogonal in {D} dimensions; give at most {D}")
        self.A, self.K, self.P = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()

    def grow(self, task: TaskInfo) -> None:
        """Add the task's head rows and components; earlier ones are frozen."""
        super().grow(task)
        for name, length in (("A", 1), ("K", 1), ("P", self.config.prompt_length)):
            known, shape = getattr(self, name), (self.config.layers, self.slice, length * self.backbone.width)
            known.requires_grad_(False)
            drawn = self.draws(name, shape, task).to(self.device)
            earlier = torch.cat(list(known), dim=1) if known else drawn[:, :0]
            known.append(nn.Parameter(orthonormal_beside(drawn, earlier.detach(), self.config.gs)))

    def draws(self, name: str, shape: tuple[int, int, int], task: TaskInfo) -> Tensor:
        """Normal rows (layers, m / T, D or L D) from which a task's components are made."""
        generator = seeds.generator(self.stream.init_seed, "components", name, task.index)
        return torch.randn(shape, generator=generator)

    def extra(self) -> Extra:
        """L / 2 keys a block, weighted sums over the components of all tasks."""
        n = self.slice * self.stream.num_tasks
        return of_components(self.config.layers, n, self.config.prompt_length, self.backbone.width)

    def trained_prompts(self) -> list[nn.Parameter]:
        """The newest slices of A, K and P."""
        return [self.A[-1], self.K[-1], self.P[-1]]

    def weights(self, q: Tensor, layer: int) -> Tensor:
        """w (B, n) of all components so far: cos(q * A_i, K_i)."""
        A, K = (torch.cat([part[layer] for part in parts]) for parts in (self.A, self.K))  # (n, D)
        return attended_cosines(q, A, K)

    def prefixes(self, q: Tensor) -> Prefixes:
        """Keys and values (B, L / 2, D) of the prompted blocks."""
        blocks = {}
        for layer in range(self.config.layers):
            P = torch.cat([part[layer] for part in self.P])  # (n, L D)
            p = (self.weights(q, layer) @ P).unflatten(1, (self.config.prompt_length, -1))  # (B, L, D)
            blocks[layer] = p.chunk(2, dim=1)
        return Prefixes(blocks)

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE over the current task's classes, and the orthogonality penalty where it has a weight."""
        prefixes = self.prefixes(self.query(batch))
        self.lengths = prefixes.mean_norms()
        loss = self.cross_entropy(self.backbone.features(batch.images, prefixes), batch.labels, task)
        return loss + self.config.ortho_mu * self.penalty() if self.config.ortho_mu else loss

    def penalty(self) -> Tensor:
        """Mean squared entry of X X^T - I, summed over blocks and over A, K and flattened P."""
        rows = [torch.cat(list(parts), dim=1) for parts in (self.A, self.K, self.P)]  # (layers, n, D)
        return sum(orthogonality_loss(X) for X in rows)

    def represent(self, images: Tensor, q: Tensor) -> Tensor:
        """Features under each image's own sum of components."""
        return self.backbone.features(images, self.prefixes(q))

    def rate(self, done: int) -> float:
        """cos(99 pi max(0, e - 1) / (200 (E - 1))) in pass e = 0..E-1; `unlagged` has e for e - 1."""
        return coda_cosine(done, self.config.passes, self.config.lr_schedule == "lagged")

    def diagnostics(self) -> dict:
        """Mean length of an image's prompt in the task's last batch, for every block: it grows with them."""
        return {**super().diagnostics(), "prompt_norm": [float(length) for length in self.lengths]}


METHOD = CodaPrompt
