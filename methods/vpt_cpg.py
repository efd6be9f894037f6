r"""VPT-CPG: a router mixes each image's prompts from experts, and both learn so that old images keep theirs.

Lu et al., "Training Consistent Mixture-of-Experts-Based Prompt Generator for Continual Learning", AAAI 2025.
In every block the class token q that enters it chooses k of E experts, whose prompts P_e are mixed:
\[ a = q W_g + \epsilon (softplus(q W_n) + 0.01), \quad g = softmax(top_k(a)), \quad P(q) = \sum_e g_e P_e, \]
the noise \epsilon while learning alone. On a task's own classes, the second term a mean over blocks,
\[ L = CE(z / \tau, y) + \lambda \, [CV^2(importance) + CV^2(load)], \]
importance the sum of a batch's gates, load how often an expert is expected to be chosen. What old images are
given stays as it is where W_g moves orthogonally to their q and P, over the experts, to their g: with C_1 and
C_2 the second moments of q and g of all earlier tasks, B_1 and B_2 projectors onto their null spaces as
NSP2's (each over its Frobenius norm), and U Adam's finished update,
\[ \Delta W_g = [\eta_1 B_1 + (1 - \eta_1) I] \, U, \qquad \Delta P = [\eta_2 B_2 + (1 - \eta_2) I] \, U. \]

The paper could not be read in full: equations are those of its abstract, of the routing that its code cites
(Shazeer et al., ICLR 2017), and of that code. The code means to add noise and never does, so that W_n stays
zero and the load has no gradient (`routing_noise=never_asis`), takes the softmax of probabilities (`gating`)
and, were there noise, would compare logits with these (`load_threshold`). Block 0's q is the same for all
images, whose prompts there are the same too. `cov_norm` is VPT-NSP2's.
"""

from typing import Literal

import torch
from cl_bench.methods.vpt_seq import PromptTuningConfig, VPTSeq
from pydantic import Field
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.errors import InputError
from cl_bench.nn.backbone import Backbone, require_class_token
from cl_bench.nn.projection import Nullity, Projection, fused_projections
from cl_bench.nn.prompt_experts import PromptExperts, squared_variation
from cl_bench.training.schedules import Schedule
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, of_prompt_experts

ALIASES, SUMMARY = ("cpg",), "prompts routed from experts, both updated in null spaces (AAAI 2025)"
FAMILY, VENUE, PASSES = "prompts", "AAAI 2025", 1


class CPGConfig(PromptTuningConfig):
    """Settings of the public code for 10-split CIFAR-100."""

    batch: int = Field(360, ge=1)
    lr_milestones: Schedule = "paper"  # after 50 and 80 % as meant, or 40 and 70 as published
    head_init: Literal["published", "fresh"] = "fresh"
    experts: int = Field(36, ge=3)  # E
    top_k: int = Field(4, ge=1)  # k
    balance: float = Field(0.05, ge=0)  # lambda
    eta1: float = Field(1.0, ge=0, le=1)
    eta2: float = Field(0.99, ge=0, le=1)
    nullity: Nullity = "official"
    nsp_norm: Literal["fro", "none"] = "fro"
    cov_norm: Literal["rows", "batches"] = "rows"  # batches: the sum of batches' means (published)
    routing_noise: Literal["training", "never_asis"] = "training"
    gating: Literal["logits", "probabilities_asis"] = "logits"  # of which the k largest enter the softmax
    load_threshold: Literal["logits", "probabilities_asis"] = "logits"


class VPTCPG(VPTSeq):
    """W_g, W_n and P of every block, C_1 (L, D, D) and C_2 (L, E, E)."""

    Config, PRESET, display = CPGConfig, "vpt_cpg", "VPT-CPG"
    SMALL = {"experts": 6, "top_k": 2}
    couples_batch, layer_prompts = True, None  # each image has prompts of its own, mixed from P
    AS_PUBLISHED = {
        "lr_milestones": "code", "head_init": "published", "cov_norm": "batches",
        "routing_noise": "never_asis", "gating": "probabilities_asis", "load_threshold": "probabilities_asis",
    }  # fmt: skip
    LEFT_DIFFERENT = (
        "the network computes in fp32 or bf16 (precision), routers in fp32, where the code trains in fp16",
        "of experts with equal logits, as at first, the first are chosen; in the code the device decides",
    )

    def __init__(self, config: CPGConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        require_class_token(backbone, self.display)
        self.noise = config.routing_noise == "training"
        self.prompts.W_n.requires_grad_(self.noise)
        layers, E, _, D = self.P.shape
        for name, n in (("C1", D), ("C2", E)):
            self.register_buffer(name, torch.zeros(layers, n, n, dtype=torch.float64, device=self.device))
        self.B: list[Tensor] = []  # eta B + (1 - eta) I of W_g and of P; none in the first task
        self.nullities: list[list[int]] = []

    def make_prompts(self, layers: int, generator: torch.Generator) -> PromptExperts:
        """Routers and experts."""
        config, E, k = self.config, self.config.experts, self.config.top_k
        if k > E:
            raise InputError(f"top_k={k} of experts={E}: no more can be chosen than there are; give fewer")
        twice, mixed = (o == "probabilities_asis" for o in (config.gating, config.load_threshold))
        return PromptExperts((layers, E, config.prompts, self.backbone.width), k, twice, mixed, generator)

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """B_1 and B_2 of the tasks before."""
        config, self.B, self.nullities = self.config, [], []
        for C, eta in ((self.C1, config.eta1), (self.C2, config.eta2)) if task.index else ():
            B, R = fused_projections(C, eta, config.nullity, config.nsp_norm, "nsp", ())
            self.B.append(B.float())
            self.nullities.append(R)

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """CE(z / tau, y) + lambda [CV^2(importance) + CV^2(load)]."""
        uneven = []

        def see(l: int, q: Tensor, g: Tensor, load: Tensor) -> None:
            uneven.append(squared_variation(g.sum(dim=0)) + squared_variation(load))

        ce = super().loss(batch, task, self.prompts.watched(see, self.noise))
        return ce + self.config.balance * torch.stack(uneven).mean()

    def trained_parameters(self) -> list[torch.nn.Parameter]:
        """W_g, W_n where there is noise, P and the current head."""
        trained = [parameter for parameter in self.prompts.parameters() if parameter.requires_grad]
        return [*trained, *self.head.heads[-1].parameters()]

    def projections(self, task: TaskInfo) -> list[Projection]:
        """From the second task on, of W_g (L, D, E) and P (L, E, M, D)."""
        if not self.B:
            return []
        B1, B2 = self.B
        return [(self.prompts.W_g, lambda U: B1 @ U), (self.P, lambda U: (B2 @ U.flatten(2)).view_as(U))]

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """One pass where a task follows."""
        return 0 if self.is_last(task) else images

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """C_1 and C_2 grow by the second moments of the task's q and g."""

        def see(l: int, q: Tensor, g: Tensor, load: Tensor) -> None:
            rows = len(q) if self.config.cov_norm == "batches" else len(task)
            for C, X in ((self.C1, q.double()), (self.C2, g.double())):
                C[l] += X.T @ X / rows

        for batch in () if self.is_last(task) else trainer.plain(task, self.statistics_batch):
            self.backbone.features(batch.images, self.prompts.watched(see, noise=False))

    def extra(self) -> Extra:
        """Routing, mixing and projecting prompts of every image, second moments, and null spaces."""
        return of_prompt_experts(self.P)

    def diagnostics(self) -> dict:
        """Nullities R1 of q and R2 of g in every block while the task was learned."""
        return {**super().diagnostics(), **dict(zip(("R1", "R2"), self.nullities, strict=False))}


METHOD = VPTCPG
